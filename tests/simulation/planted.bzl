"""Simulators that have a bug planted."""

load("//:causeway.bzl", "causeway_cc_binary")

def planted_bugs(bugs, deps):
    """For each bug, planted_NAME: the simulation with a bug of mutations.txt.

    The changed source is linked before the library that has the real one, which
    then contributes nothing. A bug that does not fit its source breaks the build.

    Args:
      bugs: from the bug's name to the path of the source that is changed.
      deps: what the changed sources need.
    """
    for name, path in bugs.items():
        package, _, source = path.rpartition("/")
        label = "//%s:%s" % (package, source)
        native.genrule(
            name = name + "_source",
            srcs = [
                "mutations.txt",
                label,
            ],
            outs = ["planted/%s/%s" % (name, source)],
            cmd = "perl $(location //tests/simulation:plant.pl) " +
                  "%s $(location mutations.txt) $(location %s) >$@" % (name, label),
            tools = ["//tests/simulation:plant.pl"],
        )
        causeway_cc_binary(
            name = "planted_" + name,
            srcs = ["planted/%s/%s" % (name, source)],
            # Bugs may leave things unused.
            copts = ["-w"],
            deps = [":main"] + deps,
        )
