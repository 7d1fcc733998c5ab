"""Simulators that have bugs planted."""

load("//:causeway.bzl", "causeway_cc_binary")

def planted_bugs(sources, deps):
    """planted: the simulation with the bugs of mutations.txt, of which --bug chooses one.

    The changed sources are linked before the libraries that have the real ones,
    which then contribute nothing. A bug that does not fit its source breaks the
    build.

    Args:
      sources: the paths of the sources that are changed.
      deps: what these need.
    """
    for path in sources:
        package, _, source = path.rpartition("/")
        label = "//%s:%s" % (package, source)
        native.genrule(
            name = source[:-len(".cc")] + "_source",
            srcs = [
                "mutations.txt",
                label,
            ],
            outs = ["planted_sources/" + source],
            cmd = "perl $(location //tests/simulation:plant.pl) " +
                  "$(location mutations.txt) %s $(location %s) >$@" % (path, label),
            tools = ["//tests/simulation:plant.pl"],
        )
    causeway_cc_binary(
        name = "planted",
        srcs = ["planted_sources/" + path.rpartition("/")[2] for path in sources],
        # Bugs may leave things unused.
        copts = ["-w"],
        optimized = True,
        deps = [
            ":main",
            "//tests/simulation:planted_bug",
        ] + deps,
    )
