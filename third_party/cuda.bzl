"""The CUDA toolkit as a repository."""

def _cuda_toolkit_impl(ctx):
    for folder in ["include", "lib64"]:
        source = ctx.path(ctx.attr.path + "/" + folder)
        if source.exists:
            ctx.symlink(source, folder)
    more = ctx.os.environ.get("CAUSEWAY_CUDA_HEADERS", "")
    if more:
        ctx.symlink(more, "more_include")
    ctx.symlink(ctx.attr.build_file, "BUILD")

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    attrs = {
        "path": attr.string(mandatory = True),
        "build_file": attr.label(mandatory = True),
    },
    # A folder of headers that the toolkit lacks (deploy/cuda_headers.sh).
    environ = ["CAUSEWAY_CUDA_HEADERS"],
    local = True,
    doc = "The toolkit under `path`, which need not exist.",
)
