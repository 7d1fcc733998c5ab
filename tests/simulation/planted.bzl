"""Simulators that have a bug planted."""

load("//:causeway.bzl", "causeway_cc_binary")

def planted_bugs(bugs, deps):
    """For each bug, planted_NAME: the simulation with mutations/NAME.patch applied.

    The patched source is linked before the library that has the real one, which
    then contributes nothing. A patch that does not apply breaks the build.

    Args:
      bugs: from the bug's name to the path of the source that is patched.
      deps: what the patched sources need.
    """
    for name, path in bugs.items():
        package, _, source = path.rpartition("/")
        label = "//%s:%s" % (package, source)
        native.genrule(
            name = name + "_source",
            srcs = [
                "mutations/%s.patch" % name,
                label,
            ],
            outs = ["planted/%s/%s" % (name, source)],
            cmd = "cp $(location %s) $@ && chmod u+w $@ && " % label +
                  "patch --quiet --force $@ $(location mutations/%s.patch)" % name,
        )
        causeway_cc_binary(
            name = "planted_" + name,
            testonly = True,
            srcs = ["planted/%s/%s" % (name, source)],
            # Bugs may leave things unused.
            copts = ["-w"],
            deps = [":main"] + deps,
        )
