"""The house rules for CUDA targets: nvcc's flags in one place.

Everything here is tagged "cuda": left out unless --config=cuda is given, so that
a machine without the CUDA toolkit builds and tests all the rest. What is
compiled by nvcc lies in .cu files and is known to others by plain headers; host
code that calls the CUDA runtime depends on @cuda//:cudart.
"""

load("//:causeway.bzl", "causeway_cc_binary", "causeway_cc_library", "causeway_cc_test")

# Machine code for Ampere and Hopper; newer devices translate Hopper's PTX when
# they load it.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
]

# Gives the same bits as the CPU: IEEE division, denormals kept, and no fused
# multiply-add that the source did not ask for.
_ARITHMETIC = [
    "--fmad=false",
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "-Xcompiler=-ffp-contract=off",
]

# -Wextra's -Wunused-parameter and -Wpedantic complain about code that nvcc
# generates.
_WARNINGS = [
    "--Werror=all-warnings",
    "-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter,-Werror",
]

def _architectures(ctx):
    """Those above, or the one of --define=cuda_architecture=NUMBER.

    That has PTX as well, as it is, for tests/cuda_emulator to read.
    """
    number = ctx.var.get("cuda_architecture")
    if number == None:
        return _ARCHITECTURES
    return [
        "-gencode=arch=compute_{0},code=[compute_{0},sm_{0}]".format(number),
        "--no-compress",
    ]

def _cuda_object_impl(ctx):
    compilation = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    arguments = ctx.actions.args()
    arguments.add_all(["-c", "-x", "cu", "-std=c++20", "-O3", "-lineinfo"])
    arguments.add_all(["-ccbin=g++", "-Xcompiler=-fPIC"])

    # Host functions that are constexpr may be called on the device. nvcc does
    # not check what they do, but nvcc.sh does.
    arguments.add("--expt-relaxed-constexpr")
    arguments.add_all(_architectures(ctx) + _ARITHMETIC + _WARNINGS)
    arguments.add_all(ctx.attr.copts)
    arguments.add_all(compilation.defines, before_each = "-D")
    arguments.add_all(compilation.quote_includes, before_each = "-I")
    arguments.add_all(compilation.includes, before_each = "-I")
    arguments.add_all(compilation.system_includes, before_each = "-isystem")
    arguments.add(ctx.file.src)
    arguments.add("-o", ctx.outputs.object)
    ctx.actions.run(
        executable = ctx.executable._nvcc,
        arguments = [arguments],
        inputs = depset(
            [ctx.file.src] + ctx.files.hdrs,
            transitive = [compilation.headers],
        ),
        outputs = [ctx.outputs.object],
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % ctx.file.src.short_path,
        use_default_shell_env = True,
    )

_cuda_object = rule(
    implementation = _cuda_object_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "object": attr.output(mandatory = True),
        "_nvcc": attr.label(
            default = "//third_party:nvcc.sh",
            allow_single_file = True,
            cfg = "host",
            executable = True,
        ),
    },
)

def causeway_cuda_library(name, src, hdrs = [], deps = [], copts = [], **kwargs):
    """A library of one .cu file.

    Args:
      name: the cc_library.
      src: the .cu file.
      hdrs: headers for its users.
      deps: C++ libraries that src or hdrs include.
      copts: further flags for nvcc.
      **kwargs: passed to cc_library.
    """
    deps = deps + ["@cuda//:cudart"]
    _cuda_object(
        name = name + "_object",
        src = src,
        hdrs = hdrs,
        deps = deps,
        copts = copts,
        object = name + ".pic.o",
        tags = ["cuda"],
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [name + ".pic.o"],
        hdrs = hdrs,
        deps = deps,
        linkstatic = True,
        tags = ["cuda"],
        **kwargs
    )

def causeway_cuda_cc_library(name, deps = [], test_deps = [], **kwargs):
    """A library of .cc files that call the CUDA runtime, and its test if there is
    NAME_test.cc."""
    causeway_cc_library(
        name = name,
        deps = deps + ["@cuda//:cudart"],
        tags = ["cuda"],
        test_deps = test_deps + ["@cuda//:cudart"],
        test_tags = ["cuda"],
        **kwargs
    )

def causeway_cuda_cc_binary(name, deps = [], **kwargs):
    """A binary of .cc files that call the CUDA runtime."""
    causeway_cc_binary(
        name = name,
        deps = deps + ["@cuda//:cudart"],
        tags = ["cuda"],
        **kwargs
    )

def causeway_cuda_cc_test(name, deps = [], **kwargs):
    """A test of .cc files that call the CUDA runtime. It skips its cases where
    there is no GPU."""
    causeway_cc_test(
        name = name,
        deps = deps + ["@cuda//:cudart"],
        tags = ["cuda"],
        **kwargs
    )
