"""What nvidia-smi prints, from plain values: text in the real program's layout. Pure; no state, no clock.

Layouts are those of R535 and newer (91 columns). R610 names the driver `KMD Version`. A card is a dict: index, name,
bus_id (8-digit domain, upper case), uuid, serial, vbios, fan, temperature, pstate, power, limit, used, total (MiB),
utilisation, compute, persistence, display, ecc (text of the column), mig (text of the row), and for queries `fields`.
"""

from __future__ import annotations

RULE3 = "+-----------------------------------------+------------------------+----------------------+"
RULE1 = "+-----------------------------------------------------------------------------------------+"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
NO_LIBRARY = (
    "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver "
    "is properly installed and present in your system.\n"
    "Please also try adding directory that contains libnvidia-ml.so to your system PATH.\n"
)
NO_DEVICES = "No devices were found\n"
UNITS = {
    "memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "memory.reserved": "MiB", "power.draw": "W",
    "power.draw.average": "W", "power.draw.instant": "W", "power.limit": "W", "enforced.power.limit": "W",
    "power.default_limit": "W", "power.min_limit": "W", "power.max_limit": "W", "utilization.gpu": "%",
    "utilization.memory": "%", "fan.speed": "%", "clocks.current.graphics": "MHz", "clocks.current.sm": "MHz",
    "clocks.current.memory": "MHz",
}  # fmt: skip


def major(version):
    return int(version.split(".", 1)[0])


def mismatch(library):
    """The library shows two parts of its version only; tools older than 535 show none."""
    text = "Failed to initialize NVML: Driver/library version mismatch\n"
    if major(library) >= 535:
        text += "NVML library version: " + ".".join(library.split(".")[:2]) + "\n"
    return text


def lost(bus_id):
    return (
        f"Unable to determine the device handle for GPU {bus_id}: GPU is lost.  Reboot the system to recover this GPU\n"
    )


def title(smi, driver, cuda):
    if major(smi) >= 610:
        return f"| NVIDIA-SMI {smi:<23}KMD Version: {driver:<14}CUDA UMD Version: {cuda:<9}|"
    return f"| NVIDIA-SMI {smi:<23}Driver Version: {driver:<15}CUDA Version: {cuda:<9}|"


def table(when, smi, driver, cuda, cards, processes=()):
    """The plain table. `when` is the date line without its padding."""
    lines = [
        f"{when}       ",
        RULE1,
        title(smi, driver, cuda),
        RULE3,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    ]
    for card in cards:
        name = card["name"] if len(card["name"]) <= 27 else card["name"][:24] + "..."
        lines += [
            f"| {card['index']:>3}  {name:<31}{card['persistence']:<3} |   {card['bus_id']} {card['display']:<3} "
            f"| {card['ecc']:>20} |",
            f"| {card['fan']:>3}  {card['temperature']:>3}C    {card['pstate']:<3}"
            f"{card['power']:>14}W / {card['limit']:>4}W "
            f"| {card['used']:>7}MiB / {card['total']:>6}MiB | {card['utilisation']:>7} {card['compute']:>12} |",
            f"| {'':<39} | {'':<22} | {card['mig']:>20} |",
            RULE3,
        ]
    lines += [
        "",
        RULE1,
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|=========================================================================================|",
    ]
    for process in processes:
        lines.append(
            f"|  {process['index']:>3}   N/A  N/A {process['pid']:>15} {process['type']:>6}   {process['name']:<38}"
            f"{process['used']:>5}MiB |"
        )
    if not processes:
        lines.append("|  No running processes found                                                             |")
    return "\n".join([*lines, RULE1]) + "\n"


def listing(cards):
    """`-L`; a card's `parts` are its MIG devices: index, profile, uuid."""
    lines = []
    for card in cards:
        lines.append(f"GPU {card['index']}: {card['name']} (UUID: {card['uuid']})")
        for part in card.get("parts", ()):
            lines.append(f"  MIG {part['profile']:<11} Device {part['index']:>2}: (UUID: {part['uuid']})")
    return "\n".join(lines) + "\n"


def versions(smi, driver, cuda):
    """`--version`."""
    nvml = ".".join(smi.split(".")[:2])
    if major(smi) >= 610:
        rows = [
            ("NVIDIA-SMI version", smi),
            ("NVML version", nvml),
            ("DRIVER version", 'Deprecated, see "KMD version" instead'),
            ("CUDA version", 'Deprecated, see "CUDA UMD version" instead'),
            ("KMD version", driver),
            ("CUDA UMD version", cuda),
        ]
    else:
        rows = [("NVIDIA-SMI version", smi), ("NVML version", nvml), ("DRIVER version", driver), ("CUDA Version", cuda)]
    return "".join(f"{name:<20}: {value}\n" for name, value in rows)


def csv(fields, rows, header=True, units=True):
    """`--query-gpu=... --format=csv[,noheader][,nounits]`; `rows` are lists of bare values."""

    def dressed(field, value):
        unit = UNITS.get(field)
        bare = not unit or not units or value.startswith("[") or value == "N/A"
        return value if bare else f"{value} {unit}"

    lines = []
    if header:
        lines.append(", ".join(f"{field} [{UNITS[field]}]" if units and field in UNITS else field for field in fields))
    lines += [", ".join(dressed(field, value) for field, value in zip(fields, row, strict=True)) for row in rows]
    return "\n".join(lines) + "\n"


def links(cards):
    """`nvlink -s`; `speeds` of a card = text for each link (`25 GB/s`), or a sentence."""
    lines = []
    for card in cards:
        lines.append(f"GPU {card['index']}: {card['name']} (UUID: {card['uuid']})")
        if isinstance(card["speeds"], str):
            lines.append(card["speeds"])
        else:
            lines += [f"\t Link {number}: {speed}" for number, speed in enumerate(card["speeds"])]
    return "\n".join(lines) + "\n"


def topology(count, kind, affinity="0-63"):
    """`topo -m` of equal pairs, underlined head and legend as on a terminal."""
    names = [f"GPU{i}" for i in range(count)]
    lines = ["\t\x1b[4m" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"]
    for name in names:
        cells = [" X " if other == name else kind for other in names]
        lines.append("\t".join([name, *cells, affinity, "0", "", "N/A"]))
    legend = (
        ("X   ", "Self"),
        ("SYS ", "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)"),
        ("NODE", "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node"),
        ("PHB ", "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)"),
        ("PXB ", "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)"),
        ("PIX ", "Connection traversing at most a single PCIe bridge"),
        ("NV# ", "Connection traversing a bonded set of # NVLinks"),
    )
    return "\n".join([*lines, "", "Legend:", "", *(f"  {key} = {text}" for key, text in legend)]) + "\n"


def details(when, driver, cuda, attached, cards):
    """`-q`, the sections that fleet and its users look at. Keys are padded to column 55 of the text."""
    head = [("Timestamp", when), ("Driver Version", driver), ("CUDA Version", cuda)]
    if major(driver) >= 610:
        note = " [Deprecated; will be removed in CUDA 14.0. Use {} instead]"
        head = [
            ("Timestamp", when),
            ("Driver Version", driver + note.format("KMD Version")),
            ("CUDA Version", cuda + note.format("CUDA UMD Version")),
            ("KMD Version", driver),
            ("CUDA UMD Version", cuda),
        ]
    lines = ["", "==============NVSMI LOG==============", ""]
    lines += [f"{key:<55}: {value}" for key, value in head]
    lines += ["", f"{'Attached GPUs':<55}: {attached}"]
    for card in cards:
        lines.append(f"GPU {card['bus_id']}")
        for depth, key, value in card["sections"]:
            padded = "    " * depth + key
            lines.append(padded if value is None else f"{padded:<55}: {value}")
        lines.append("")
    return "\n".join(lines) + "\n"


def xml(when, driver, cuda, attached, cards):
    """`-q -x`: the elements that fleet and its users read."""
    dtd = 13 if major(driver) >= 595 else 12
    lines = [
        '<?xml version="1.0" ?>',
        f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{dtd}.dtd">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{when}</timestamp>",
        f"\t<driver_version>{driver}</driver_version>",
        f"\t<cuda_version>{cuda}</cuda_version>",
        f"\t<attached_gpus>{attached}</attached_gpus>",
    ]
    for card in cards:
        lines.append(f'\t<gpu id="{card["bus_id"]}">')
        lines += _elements(card["elements"], 2)
        lines.append("\t</gpu>")
    return "\n".join([*lines, "", "</nvidia_smi_log>"]) + "\n"


def _elements(tree, depth):
    pad = "\t" * depth
    lines = []
    for tag, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{pad}<{tag}>", *_elements(value, depth + 1), f"{pad}</{tag}>"]
        else:
            lines.append(f"{pad}<{tag}>{value}</{tag}>")
    return lines


def proc_version(driver, flavour, built, compiler):
    """/proc/driver/nvidia/version; `built` = what stands after the version."""
    kind = "Open Kernel Module for x86_64" if flavour == "open" else "x86_64 Kernel Module"
    return f"NVRM version: NVIDIA UNIX {kind}  {driver}  {built}\nGCC version:  {compiler}\n"
