"""Simulators whose coordinator has a bug planted."""

load("//:causeway.bzl", "causeway_cc_binary")

def planted_bugs(bugs):
    """For each bug, planted_NAME: the simulation with mutations/NAME.patch applied.

    The patched source is linked before the library that has the real one, which
    then contributes nothing. A patch that does not apply breaks the build.

    Args:
      bugs: from the bug's name to the source in //server that is patched.
    """
    for name, source in bugs.items():
        native.genrule(
            name = name + "_source",
            srcs = [
                "mutations/%s.patch" % name,
                "//server:" + source,
            ],
            outs = ["planted/%s/%s" % (name, source)],
            cmd = "cp $(location //server:%s) $@ && chmod u+w $@ && " % source +
                  "patch --quiet --force $@ $(location mutations/%s.patch)" % name,
        )
        causeway_cc_binary(
            name = "planted_" + name,
            testonly = True,
            srcs = ["planted/%s/%s" % (name, source)],
            # Bugs may leave things unused, and need not be fast.
            copts = ["-w", "-O1"],
            deps = [
                ":main",
                "//server:coordinator",
            ],
        )
