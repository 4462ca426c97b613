"""Builds the emulated Biren packages on the host: `package.py OUTDIR VERSIONS.json`, with FLEET_LAB_BUILD=1.

Real naming scheme, our content: self-extracting run files with the stand-in module. Same input, same bytes.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import sys
import tarfile
from pathlib import Path

HERE = "/opt/fleet-lab/biren"
EPOCH = 1735689600
RUN = """#!/bin/sh
# Stand-in of the fleet lab for the vendor's installer.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
sed '1,/^__PAYLOAD__$/d' "$0" | base64 -d | tar -xz -C "$folder" || { echo "[ERROR] broken package"; exit 1; }
python3 @HERE@/install.py @WHAT@ "$@"
exit $?
__PAYLOAD__
"""


def payload(members):
    """A packed tar of (name, text) that is the same every time, in base64."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in members:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(text.encode()), 0o644, EPOCH
            tar.addfile(entry, io.BytesIO(text.encode()))
    return base64.encodebytes(gzip.compress(raw.getvalue(), mtime=0))


def write(target, what, members):
    part = target.with_name(f".{target.name}.part")
    part.write_bytes(RUN.replace("@HERE@", HERE).replace("@WHAT@", what).encode() + payload(members))
    part.chmod(0o755)
    part.replace(target)


def names(stack):
    """component -> file name, in the order of installation."""
    arch, system = stack.get("arch", "x86_64"), f"{stack['os']['id'].lower()}-{stack['os']['version']}"
    out = {}
    if stack["components"].get("driver"):
        out["driver"] = f"biren-driver_{stack['components']['driver']}_linux-{arch}.run"
    if stack["components"].get("toolkit"):
        out["toolkit"] = f"birensupa-sdk_{stack['components']['toolkit']}_{system}_linux-{arch}.run"
    return out


def main():
    if os.environ.get("FLEET_LAB_BUILD") != "1":
        sys.stderr.write("this program builds packages for a fleet lab: set FLEET_LAB_BUILD=1\n")
        return 97
    out, order = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    sys.path.insert(0, order["labnode"])
    import labnode

    answer = {}
    for stack in order["stacks"]:
        files = names(stack)
        for component, name in files.items():
            version = stack["components"][component]
            if (out / name).is_file():
                continue
            members = [("package.json", json.dumps({"component": component, "version": version}, sort_keys=True))]
            if component == "driver":
                source = labnode.module_source("biren", version, ("biren",), templates=Path(order["module_source"]))
                members += [(f"source/{name}", text) for name, text in sorted(source.items())]
                write(out / name, 'driver "$folder"', members)
            else:
                write(out / name, f"toolkit {version}", members)
        answer[stack["name"]] = list(files.values())
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
