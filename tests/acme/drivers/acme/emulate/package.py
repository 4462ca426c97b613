"""Builds ACME's packages on the host: `package.py OUTDIR VERSIONS.json`, with FLEET_LAB_BUILD=1."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import sys
import tarfile
from pathlib import Path

EPOCH = 1735689600
INSTALL = "python3 /opt/fleet-lab/acme/install.py"


def driver(version, order, labnode):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        source = labnode.module_source("acme", version, ("acme",), templates=Path(order["module_source"]))
        for name, text in sorted(source.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(text.encode()), 0o644, EPOCH
            tar.addfile(entry, io.BytesIO(text.encode()))
    head = (
        "#!/bin/sh\nfolder=$(mktemp -d) || exit 1\ntrap 'rm -rf \"$folder\"' EXIT\n"
        'sed \'1,/^__PAYLOAD__$/d\' "$0" | base64 -d | tar -xz -C "$folder" || exit 1\n'
        f'{INSTALL} driver {version} "$folder"\nexit $?\n__PAYLOAD__\n'
    )
    return head.encode() + base64.encodebytes(gzip.compress(raw.getvalue(), mtime=0))


def main():
    if os.environ.get("FLEET_LAB_BUILD") != "1":
        sys.stderr.write("this program builds packages for a fleet lab: set FLEET_LAB_BUILD=1\n")
        return 97
    out, order = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    sys.path.insert(0, order["labnode"])
    import labnode

    answer = {}
    for stack in order["stacks"]:
        names = []
        for component in ("driver", "firmware", "toolkit"):
            version = stack["components"].get(component)
            if not version:
                continue
            ending = "bin" if component == "firmware" else "run"
            name = f"acme-{component}_{version}_{stack.get('arch', 'x86_64')}.{ending}"
            content = {
                "driver": lambda version=version: driver(version, order, labnode),
                "firmware": lambda version=version: f"ACMEFW {version}\n".encode(),
                "toolkit": lambda version=version: f"#!/bin/sh\nexec {INSTALL} toolkit {version}\n".encode(),
            }[component]()
            (out / name).write_bytes(content)
            (out / name).chmod(0o755)
            names.append(name)
        answer[stack["name"]] = names
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
