"""The house rules for C++ targets: one place for warnings and test set-up."""

_WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wno-sign-conversion",
    # We write options as designated initializers that rely on defaults.
    "-Wno-missing-field-initializers",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Werror",
]

# Most targets use these: the macros below add them to deps that lack them.
_EVERYWHERE = ["//common:status_macros", "//third_party:absl", "//third_party:glog"]
_IN_TESTS = _EVERYWHERE + ["//common/testing:status_matchers", "//third_party:gtest_main"]

def _plain(deps):
    """Returns the deps, or none if they are a select, which cannot be searched."""
    return deps if type(deps) == "list" else []

def _with(implicit, deps):
    return [dep for dep in implicit if dep not in _plain(deps)] + deps

# googletest's and benchmark's macros convert freely.
_TEST_WARNINGS = ["-Wall", "-Wextra", "-Wno-sign-compare", "-Wno-missing-field-initializers", "-Werror"]

# Headers that most sources include would take half of a build's time, so they
# are parsed once. GCC, which the sanitizers of .bazelrc use, cannot read what
# clang has parsed.
def _unless_gcc(values):
    return select({"//third_party:gcc": [], "//conditions:default": values})

def _precompiled(name):
    """Returns the copts and deps of sources that begin with //third_party:NAME."""
    copts = ["-include", "$(BINDIR)/third_party/%s.h" % name]
    return _unless_gcc(copts), _unless_gcc(["//third_party:" + name])

def _sources(name, extension, given):
    """Returns the sources of a target, by default NAME.extension."""
    return native.glob([name + extension]) if given == None else given

def _options(optimized, precompiled = True):
    """Returns copts and deps for sources; `optimized` is for those that compute much."""
    name, copts = ("precompiled_for_libraries", []) if optimized else ("precompiled_for_tests", ["-O0"])
    more_copts, deps = _precompiled(name) if precompiled else ([], [])
    return copts + more_copts, deps

def _is_for_tests():
    """Returns whether only tests use the package, below tests/ or in a folder testing."""
    folders = native.package_name().split("/")
    return folders[0] == "tests" or "testing" in folders

def _causeway_cc(rule, name, copts = [], deps = [], precompiled = True, testonly = None, optimized = None, **kwargs):
    if testonly == None:
        testonly = _is_for_tests()
    if optimized == None:
        optimized = not testonly
    more_copts, more_deps = _options(optimized, precompiled)
    rule(
        name = name,
        testonly = testonly,
        copts = _WARNINGS + more_copts + copts,
        deps = _with(_EVERYWHERE, deps) + more_deps,
        **kwargs
    )

def causeway_cc_library(name, srcs = None, hdrs = None, **kwargs):
    """A library, and its test if there is NAME_test.cc.

    Args:
      name: the cc_library.
      srcs: by default NAME.cc, if it exists.
      hdrs: by default NAME.h, if it exists.
      **kwargs: passed to cc_library. precompiled = False is for sources that do
        not compile with the headers of third_party/BUILD, and optimized = True
        for sources of tests that compute much. testonly is _is_for_tests() by
        default. test_deps and the like are those of the causeway_cc_test
        NAME_test, which also has the library's deps.
    """
    _causeway_cc(
        native.cc_library,
        name,
        srcs = _sources(name, ".cc", srcs),
        hdrs = _sources(name, ".h", hdrs),
        linkstatic = True,
        **{key: value for key, value in kwargs.items() if not key.startswith("test_")}
    )
    if native.glob([name + "_test.cc"]):
        test = {key[len("test_"):]: value for key, value in kwargs.items() if key.startswith("test_")}
        deps = test.pop("deps", [])
        causeway_cc_test(
            name = name + "_test",
            deps = deps + [dep for dep in _plain(kwargs.get("deps", [])) if dep not in deps],
            **test
        )

def causeway_cc_binary(name, srcs = None, **kwargs):
    """A program; the arguments are as for causeway_cc_library."""
    _causeway_cc(native.cc_binary, name, srcs = _sources(name, ".cc", srcs), **kwargs)

def _with_tested(name, deps):
    """Adds the library NAME that the package has declared to the deps of NAME_test."""
    tested = name[:-len("_test")]
    if not name.endswith("_test") or not native.existing_rule(tested) or ":" + tested in deps:
        return deps
    own = [dep for dep in deps if dep.startswith(":")]
    return sorted([":" + tested] + own) + [dep for dep in deps if dep not in own]

# A limit finds tests that hang; a machine may be several times slower than ours.
_TIMEOUTS = {"small": "moderate", "medium": "long", "large": "long"}

def causeway_cc_test(name, srcs = None, copts = [], deps = [], size = "small", optimized = False, **kwargs):
    # Half of a build compiles tests, and most tests compute little.
    more_copts, more_deps = _options(False)
    if optimized:
        # Headers parsed at -O0 differ only in the macro __OPTIMIZE__.
        more_copts = more_copts + ["-O1"] + _unless_gcc(["-Xclang", "-fno-validate-pch"])
    deps = _with_tested(name, deps)
    native.cc_test(
        name = name,
        size = size,
        timeout = _TIMEOUTS[size],
        srcs = _sources(name, ".cc", srcs),
        copts = _TEST_WARNINGS + more_copts + copts,
        deps = _with(_IN_TESTS, deps) + more_deps,
        **kwargs
    )

def causeway_process_test(name, data = [], deps = [], short_leases = False, **kwargs):
    """A test that runs Causeway's programs as processes.

    Args:
      name: the causeway_cc_test.
      data: what else the test runs or reads.
      deps: what it includes beside the fixture.
      short_leases: True if an island that stops for seconds loses its lease, so
        that fewer tests may run beside this one.
      **kwargs: passed to causeway_cc_test.
    """
    causeway_cc_test(
        name = name,
        size = "medium",
        data = data + ["//cli:causeway", "//server:causeway-coordinator", "//worker:causeway-worker"],
        tags = ["local"] + (["cpu:2"] if short_leases else []),
        deps = deps + ["//tests/end_to_end:process", "//tests/end_to_end:process_test_fixture"],
        **kwargs
    )

def causeway_cc_benchmark(name, srcs = None, copts = [], deps = [], **kwargs):
    more_copts, more_deps = _options(True)
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = _sources(name, ".cc", srcs),
        copts = _TEST_WARNINGS + more_copts + copts,
        deps = _with(_EVERYWHERE, deps) + ["//third_party:benchmark"] + more_deps,
        **kwargs
    )

def causeway_cc_fuzz_test(name, deps = [], **kwargs):
    """A libFuzzer target: runs on its committed corpus in every build, and fuzzes under --config=fuzz.

    Args:
      name: the test that runs the corpus, a file of testdata/NAME for each input;
        NAME_fuzzer is the fuzzer. NAME.cc defines LLVMFuzzerTestOneInput.
      deps: what it includes.
      **kwargs: passed to both.
    """
    corpus = native.glob(["testdata/%s/*" % name])
    srcs = [name + ".cc"]
    more_copts, more_deps = _options(True)
    native.cc_test(
        name = name,
        size = "small",
        srcs = srcs,
        args = ["$(locations %s)" % file for file in corpus],
        copts = _WARNINGS + more_copts,
        data = corpus,
        deps = _with(_EVERYWHERE, deps) + ["//tests/fuzz:replay"] + more_deps,
        **kwargs
    )
    native.cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        srcs = srcs,
        copts = _WARNINGS + more_copts,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["fuzz"],
        deps = _with(_EVERYWHERE, deps) + more_deps,
        **kwargs
    )

def causeway_python_test(name, main, deps = [], data = [], size = "small", pytorch = [1], **kwargs):
    """A Python test that PyTorch may take part in.

    Args:
      name: the sh_test.
      main: the test's file, which runs its tests as a program.
      deps: filegroups of the sources that main imports.
      data: other files that it reads or runs.
      size: passed to sh_test.
      pytorch: 1 for Debian's PyTorch, 2 for that of
        tests/pytorch/environment.sh, where NAME_pytorch2 is the test.
      **kwargs: passed to sh_test.
    """
    for version in pytorch:
        native.sh_test(
            name = name + ("_pytorch2" if version == 2 else ""),
            size = size,
            timeout = _TIMEOUTS[size],
            srcs = ["//python:run_test.sh"],
            args = (["--pytorch2"] if version == 2 else []) + ["$(rootpath %s)" % main],
            data = [main, "//tests:testing.sh"] + deps + data,
            **kwargs
        )

def causeway_proto_library(name, srcs, proto_deps = [], services = [], deps = [], **kwargs):
    """C++ messages (and, of services, gRPC stubs) of .proto files by the system's protoc.

    Args:
      name: the cc_library.
      srcs: .proto files of this package.
      proto_deps: labels of .proto files that srcs import.
      services: those of srcs that define gRPC services.
      deps: what their messages and stubs use.
      **kwargs: passed to cc_library.
    """
    outs = []
    for source in srcs:
        base = source[:-len(".proto")]
        outs += [base + ".pb.h", base + ".pb.cc"]
        if source in services:
            outs += [base + ".grpc.pb.h", base + ".grpc.pb.cc"]
    locations = ["$(location %s)" % s for s in srcs]
    commands = ["protoc -I. --cpp_out=$(GENDIR) " + " ".join(locations)]
    for source in services:
        commands.append("protoc -I. --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin " +
                        "$(location %s)" % source)
    more_copts, more_deps = _options(True)
    native.genrule(
        name = name + "_gen",
        srcs = srcs + proto_deps,
        outs = outs,
        cmd = " && ".join(commands),
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        # Control messages need no speed, and generated code is a tenth of a build.
        copts = more_copts + ["-w", "-O1"],
        linkstatic = True,
        deps = deps + more_deps,
        **kwargs
    )
