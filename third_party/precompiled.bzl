"""Headers that the compiler parses once, and not again with each source."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.symlink(output = header, target_file = ctx.file.header)

    # GCC reads this in place of the header, whose name the sources give. It
    # finds out if macros or the processor are others than theirs, and then
    # reads the header; but it takes flags such as -O3 from here.
    parsed = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = parsed.path,
        user_compile_flags = flags + ["-x", "c++-header"],
        use_pic = True,
    )
    action = {"feature_configuration": features, "action_name": CPP_COMPILE_ACTION_NAME}
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(**action),
        arguments = cc_common.get_memory_inefficient_command_line(variables = variables, **action),
        env = cc_common.get_environment_variables(variables = variables, **action),
        inputs = depset([header], transitive = [toolchain.all_files]),
        outputs = [parsed],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % header.short_path,
    )
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, parsed]),
    ))]

# What depends on NAME passes -include $(BINDIR)/PACKAGE/NAME.h to the compiler.
precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        # Those that the sources have beside the ones of the configuration.
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
