"""Switches validation-fail on or off: card 0 is well only with the driver of now."""

from __future__ import annotations

import sys

sys.path.insert(0, "/opt/fleet-lab")
import labnode


def main():
    labnode.refuse_outside_lab()
    well = labnode.loaded("acme") if "on" in sys.argv else ""
    labnode.update(lambda s: s.setdefault("acme", {}).update(healthy_with=well))
    return 0


if __name__ == "__main__":
    sys.exit(main())
