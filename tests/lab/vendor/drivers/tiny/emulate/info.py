"""Says what the card of this test vendor says: driver and firmware."""

import sys

sys.path.insert(0, "/opt/fleet-lab")
import labnode

labnode.refuse_outside_lab()
version = labnode.loaded("tiny")
if version is None:
    print("no driver")
    sys.exit(9)
print(f"driver {version} cards {len(labnode.state()['cards'])}")
