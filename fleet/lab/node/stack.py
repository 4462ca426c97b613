"""Installs a starting stack in a root over the operating system's layer, as a site would have: `stack.py STACK.json`.

The vendor folder's start.py does it where there is one; else the packages go through dpkg, rpm or their own run file.
Afterwards the node is booted once in place, so that nothing is left pending.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import init, labnode, layer
else:
    import init
    import labnode
    import layer


def command(kind: str, files: list[Path]) -> list[list[str]]:
    """The generic commands for package files: one transaction for each kind of package."""
    out = []
    debs = [str(f) for f in files if f.suffix == ".deb"]
    rpms = [str(f) for f in files if f.suffix == ".rpm"]
    if debs:
        out.append(["dpkg", "-i", *debs])
    if rpms:
        out.append(["rpm", "-U", *rpms])
    arguments = labnode.install_facts().get("run_arguments", [])
    out += [["sh", str(f), *arguments] for f in files if f.suffix == ".run"]
    if not out and files:
        raise SystemExit(f"no way to install {files[0].name} on a system of kind {kind}: the vendor needs a start.py")
    return out


def main() -> int:
    labnode.refuse_outside_lab()
    order = Path(sys.argv[1])
    stack: dict[str, Any] = json.loads(order.read_text())
    for path, name in labnode.install_facts().get("tools", {}).items():
        layer.program(path, [f"/opt/fleet-lab/{stack['vendor']}/{name}"])
    init.publish_devices(labnode.state())
    labnode.publish_modules()
    program = labnode.HERE / stack["vendor"] / "start.py"
    files = [Path(stack["packages"]) / name for name in stack["files"]]
    commands = [["python3", str(program), str(order)]] if program.is_file() else command(stack["kind"], files)
    for argv in commands:
        print("+", *argv, flush=True)
        code = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode
        # 2 is how several vendors say "installed, reboot needed".
        if code not in {0, 2}:
            print(f"{argv[0]} ended with {code}")
            return code or 1
    labnode.update(lambda s: s.update(modules={}, holders=[]))
    labnode.publish_modules()
    init.boot("power_cycle")
    return 0


if __name__ == "__main__":
    sys.exit(main())
