"""Headers that the compiler parses once, and not again with each source."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_FLAGS = [
    "-xc++-header",
    # Sources need not instantiate again what the headers instantiate.
    "-fpch-instantiate-templates",
    # A file from Bazel's cache is valid even if a header is newer.
    "-Xclang",
    "-fno-pch-timestamp",
]

def _precompiled_headers_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    parsed = ctx.actions.declare_file(ctx.label.name + ".h.pch")
    flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts
    for header in ctx.attr.headers:
        flags += ["-include", header]
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        # The result names its source by its absolute path, so a file in a
        # sandbox would not do. This header of glibc is almost empty.
        source_file = "/usr/include/stdc-predef.h",
        output_file = parsed.path,
        user_compile_flags = flags + _FLAGS,
        use_pic = True,
    )
    action = {"feature_configuration": features, "action_name": CPP_COMPILE_ACTION_NAME}
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(**action),
        arguments = cc_common.get_memory_inefficient_command_line(variables = variables, **action),
        env = cc_common.get_environment_variables(variables = variables, **action),
        inputs = toolchain.all_files,
        outputs = [parsed],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.label.name,
    )
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([parsed]),
    ))]

# Dependents of NAME pass -include $(BINDIR)/PACKAGE/NAME.h to clang, which then
# reads the parts of NAME.h.pch that a source needs.
precompiled_headers = rule(
    implementation = _precompiled_headers_impl,
    attrs = {
        # Headers of the system, as in an #include.
        "headers": attr.string_list(mandatory = True),
        # The options of the sources beside those of the configuration.
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
