"""The emulated Ascend cards of a lab node, read from its state: what npu-smi and its friends would find.

Of our own in the state: `ascend` = {baseline: driver when the fault `validation-fail` was switched on}. A card's
`flash` = {firmware: {installed, running}, floor, mcu: {installed, running}, accepts: [driver ranges]}.
"""

import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
import labnode  # laid down by the lab

MODULE = "drv_pcie_host"
PACKAGE = "davinci_ascend"
MODULES = ("drv_pcie_host", "drv_seclib_host")
ROOT = "/usr/local/Ascend"
# Flash capability -> first driver that may run (the installer's upgrade check).
FLOORS = {
    234: "23.0.0",
    235: "24.1.rc2",
    236: "24.1.rc3",
    237: "24.1.rc4",
    238: "25.2.0",
    239: "25.2.2",
    240: "25.3.rc1",
}
ALARM = ("80E18402", "HBM, sensor type=Memory Sensor, event state=the rows for isolation are used up")


def key(version):
    """Order of HDK versions: rc below its release, numbers as numbers."""
    out = []
    for part in version.lower().replace("rc", ".rc.").split("."):
        if part == "rc":
            out.append((0, 0))
        elif part.isdigit():
            out.append((2, int(part)))
    return [*out, (1, 0)]


def within(ranges, version):
    """Whether one of the "low,high" ranges holds the version; a high end `24.1.` takes all below it."""
    own = key(version)[:-1]
    for text in ranges:
        low, _, high = text.partition(",")
        top = key((high or low).rstrip("."))[:-1]
        if key(low.rstrip("."))[:-1] <= own and (own <= top or own[: len(top)] == top):
            return True
    return False


def file_value(path, name):
    """`name=value` in a file; "" when there is none."""
    try:
        with Path(path).open() as handle:
            for row in handle:
                left, _, right = row.strip().partition("=")
                if left == name:
                    return right
    except OSError:
        pass
    return ""


def installed(part):
    """The version on the disk of driver or firmware, "" = none."""
    return file_value(f"{ROOT}/{part}/version.info", "Version")


def live_driver():
    """The version of the loaded module, None when no driver runs."""
    return labnode.loaded(MODULE)


def lost():
    """The index of the card that is gone, None when all are there. `lost-card=3`; plain = the last one."""
    value = labnode.fault_value("lost-card")
    cards = labnode.state().get("cards", [])
    if value is None or not cards:
        return None
    return int(value) if value.isdigit() else cards[-1]["index"]


def cards():
    """The cards that answer."""
    gone = lost()
    return [card for card in labnode.state().get("cards", []) if card["index"] != gone]


def firmware(card, which="running"):
    """Version in the card's flash: `installed` or `running`."""
    return card.get("flash", {}).get("firmware", {}).get(which) or ""


def mcu(card, which="running"):
    """Version of the card's microcontroller."""
    value = card.get("flash", {}).get("mcu") or {}
    return (value if isinstance(value, dict) else {"running": value}).get(which) or ""


def floor():
    """The highest capability floor of the chips; 0 = none. The fault `floor=240` raises it."""
    raised = labnode.fault_value("floor")
    if raised is not None:
        return raised or "240"
    return str(max((int(card.get("flash", {}).get("floor") or 0) for card in cards()), default=0))


def alarmed():
    """The index of the chip that is in alarm, else None: one goes bad once a driver other than the baseline runs."""
    value = labnode.fault_value("validation-fail")
    baseline = labnode.state().get("ascend", {}).get("baseline")
    if value is None or not live_driver() or live_driver() == baseline:
        return None
    return int(value) if value.isdigit() else 0


def compatibility(card):
    """OK, NOK or UNKNOWN, as the driver judges: either list may accept."""
    if labnode.fault("compat-nok"):
        return "NOK"
    running, driver = firmware(card), live_driver()
    if not running or not driver:
        return "UNKNOWN"
    accepts = file_value(f"{ROOT}/driver/version.info", "compatible_version_fw")
    ours = [text.strip("[") for text in accepts.split("]") if text.strip("[,")]
    ours = [text.lstrip(",[") for text in ours]
    return "OK" if within(ours, running) or within(card["flash"].get("accepts", []), driver) else "NOK"


def model():
    """The model word as the tools print it, e.g. 910B3."""
    return str(labnode.state().get("model", "910B3")).removeprefix("Ascend").strip()


def hbm_mib():
    """HBM of one chip."""
    first = next(iter(labnode.state().get("cards", [])), {})
    return int(first.get("memory_mib") or 65536)
