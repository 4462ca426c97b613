"""update-initramfs and dracut of a lab node: writes the list of module files that a real image would hold."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import labnode
else:
    import labnode


def main() -> int:
    labnode.refuse_outside_lab()
    called, arguments = sys.argv[1], sys.argv[2:]
    kernel = labnode.kernel()
    for flag, value in itertools.pairwise(arguments):
        if flag in {"-k", "--kver"} and value != "all":
            kernel = value
    modules = Path("/lib/modules") / kernel
    image = f"/boot/initrd.img-{kernel}" if called == "update-initramfs" else f"/boot/initramfs-{kernel}.img"
    names = sorted(str(p) for p in modules.rglob("*.ko*") if "build" not in p.parts) if modules.is_dir() else []
    Path(image).write_text("\n".join(names) + "\n")
    if called == "update-initramfs":
        print(f"update-initramfs: Generating {image}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
