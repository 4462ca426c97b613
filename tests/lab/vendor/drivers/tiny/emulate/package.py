"""Packs the test vendor's run file: a script that carries the module's source and builds it by dkms."""

import json
import os
import sys
from pathlib import Path

if os.environ.get("FLEET_LAB_BUILD") != "1":
    sys.exit("set FLEET_LAB_BUILD=1")
out, order = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
sys.path.insert(0, order["labnode"])
import labnode  # noqa: E402

SCRIPT = """#!/bin/sh
exec python3 - "$@" <<'END'
import json, sys, pathlib, tempfile
sys.path.insert(0, "/opt/fleet-lab")
import labnode
labnode.refuse_outside_lab()
version, source = %r, json.loads(%r)
folder = pathlib.Path(tempfile.mkdtemp())
for name, text in source.items():
    (folder / name).write_text(text)
rc, log = labnode.dkms("tiny", version, folder)
print(log)
if rc:
    sys.exit(1)
labnode.update(lambda s: s["packages"].update(driver=version))
labnode.effect("install", component="driver", version=version)
END
"""
answer = {}
for stack in order["stacks"]:
    version = stack["components"]["driver"]
    source = json.dumps(labnode.module_source("tiny", version, ("tiny", "tiny_extra")), sort_keys=True)
    name = f"tiny-driver-{version}.run"
    (out / name).write_text(SCRIPT % (version, source))
    answer[stack["name"]] = [name]
print(json.dumps(answer))
