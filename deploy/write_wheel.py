# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a folder as a wheel, with nothing but Python's own library.

The format is that of packaging.python.org, "Binary distribution format". The
same files give the same bytes.
"""

import argparse
import base64
import hashlib
import os
import zipfile

_METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Trains one model on several clusters that slow links join
License: Apache-2.0
License-File: LICENSE
Keywords: pytorch,diloco,distributed training,parameter server
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Requires-Python: >=3.9
Provides-Extra: torch
Requires-Dist: torch>=1.13; extra == "torch"
Provides-Extra: lightning
Requires-Dist: lightning>=2; extra == "lightning"
Provides-Extra: peft
Requires-Dist: peft>=0.18; extra == "peft"
Provides-Extra: transformers
Requires-Dist: transformers[torch]>=5.3; extra == "transformers"
Description-Content-Type: text/plain

{description}"""

_WHEEL = """Wheel-Version: 1.0
Generator: causeway
Root-Is-Purelib: false
Tag: {tag}
"""


def files_of(tree):
    """Returns the files below a folder, as name and content."""
    found = {}
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, tree)] = file.read()
    return found


def record_of(files, name):
    """Returns the list of all files with their digests."""
    lines = []
    for path, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
        lines.append(f"{path},sha256={digest.rstrip(b'=').decode()},"
                     f"{len(content)}")
    return "\n".join(lines + [f"{name},,", ""]).encode()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("name", "version", "tag", "license", "tree", "out",
                   "description"):
        parser.add_argument("--" + option, required=True)
    args = parser.parse_args()
    about = f"{args.name}-{args.version}.dist-info"
    files = files_of(args.tree)
    with open(args.license, "rb") as file:
        files[f"{about}/LICENSE"] = file.read()
    files[f"{about}/METADATA"] = _METADATA.format(**vars(args)).encode()
    files[f"{about}/WHEEL"] = _WHEEL.format(**vars(args)).encode()
    record = f"{about}/RECORD"
    files[record] = record_of(files, record)
    path = os.path.join(args.out,
                        f"{args.name}-{args.version}-{args.tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    print(f"wheel: {path}, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
