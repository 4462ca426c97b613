"""The texts of npu-smi, upgrade-tool and the version files, from plain values. check.py holds them against samples.

Widths are those of the real tools, so are the oddities: the health word is followed by a fixed run of blanks, `-l` and
`-m` begin each line with a tab.
"""

CLASSIC = {
    "border": (27, 15, 52),
    "name": (5, 19),
    "health": 12,
    "bus": 13,
    "first": (12, 18, 5, 14),
    "second": (12, 5, 11),
}
WIDE = {
    "border": (31, 17, 54),
    "name": (7, 21),
    "health": 14,
    "bus": 15,
    "first": (13, 18, 6, 14),
    "second": (13, 5, 42),
}


def _border(layout, sign):
    return "+" + "+".join(sign * width for width in layout["border"]) + "+"


def info(smi, driver, chips, layout="classic", processes=(), warning=False):
    """`npu-smi info`. `chips`: dicts npu, chip, phy (A3) or device (310P), name, health, power, temp, huge, bus,
    aicore, memory, hbm; pairs are (used, total) texts. `processes`: None = no such block, else the idle NPUs."""
    shape = WIDE if layout == "wide" else CLASSIC
    whole = sum(shape["border"]) + 2
    plain, double = "+" + "-" * whole + "+", _border(shape, "=")
    lead = f"| npu-smi {smi:<{25 if layout != 'wide' else 41}}Version: {driver}"
    out = [plain, f"{lead:<{whole + 1}}|", _border(shape, "-")]
    a, b = shape["name"]
    if layout == "wide":
        out.append(
            "| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |"
        )
        out.append(
            "| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |"
        )
    else:
        second = "Phy-ID" if layout == "a3" else ""
        out.append("| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|")
        out.append(f"| Chip  {second:<19} | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |")
    out.append(double)
    p, t, h, last = shape["first"]
    c, m, rest = shape["second"]
    for number, chip in enumerate(chips):
        used, total = chip["huge"]
        out.append(
            f"| {chip['npu']:<{a}} {chip['name']:<{b}} | {chip['health']}{' ' * shape['health']}|"
            f" {chip['power']:<{p}}{chip['temp']:<{t}}{used:<{h}}/ {total:<{last}}|"
        )
        which = chip.get("phy", "") if layout == "a3" else chip.get("device", "") if layout == "wide" else ""
        used, total = chip["memory"]
        line = f"| {chip['chip']:<{a}} {which:<{b}} | {chip['bus']:<{shape['bus']}} | {chip['aicore']:<{c}}"
        if layout == "wide":
            line += f"{f'{used:<{m}}/ {total}':<39} |"
        else:
            line += f"{used:<{m}}/ {total:<{rest}}{chip['hbm'][0]:<5}/ {chip['hbm'][1]:<14}|"
        out.append(line)
        same = number + 1 < len(chips) and chips[number + 1]["npu"] == chip["npu"]
        out.append(plain if same else double)
    if processes is not None:
        out += _processes(shape, layout, processes, whole)
    if warning:
        out.append(
            "[WARNING]The driver package may not be completely installed, which may cause function abnormal."
            " Please reinstall it."
        )
    return "\n".join(out) + "\n"


def _processes(shape, layout, npus, whole):
    head = "| NPU     Chip                  | Process id      | Process name             | Process memory(MB)        |"
    if layout != "wide":
        head = "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |"
    out = [_border(shape, "-"), head, _border(shape, "=")]
    for npu in npus:
        text = f"| No running processes found in NPU {npu}"
        out += [f"{text:<{whole + 1}}|", _border(shape, "=")]
    return out


def line(key, value, width=30):
    """One `key : value` line."""
    return f"\t{key:<{width}} : {value}\n"


def lines(pairs, width=30):
    """Several of them; None instead of a pair is an empty line."""
    return "".join("\n" if pair is None else line(pair[0], pair[1], width) for pair in pairs)


def card_list(npus, chips=1):
    """`npu-smi info -l`."""
    out = line("Total Count", len(npus)) + "\n"
    for npu in npus:
        out += line("NPU ID", npu) + line("Chip Count", chips) + "\n"
    return out


def chip_map(rows):
    """`npu-smi info -m`. `rows`: (npu, chip, logic, name); the name Mcu and the header are padded, others are not."""
    out = "\t" + " ".join(f"{word:<30}" for word in ("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name")) + "\n"
    for npu, chip, logic, name in rows:
        shown = f"{name:<30}" if name == "Mcu" else name
        out += f"\t{npu:<30} {chip:<30} {logic:<30} {shown}\n"
    return out


def board(pairs):
    """`-t board -i N`: the pairs as they come."""
    return lines(pairs)


def health(word, codes, information):
    """`-t health -i N -c C`."""
    out = line("Health Status", word) + line("Error Code", " ".join(codes) if codes else "NA")
    out += line("Error Information", information[0] if information else "NA")
    for text in information[1:]:
        out += "\n" + line("", text)
    return out


def hccs(state, lanes, speeds, retries, errors, first="NA"):
    """`-t hccs -i N -c C`."""
    rows = [("hccs health status", state)]
    for name, values in (
        ("hccs lane mode", lanes),
        ("hccs link speed", speeds),
        ("hccs retry count", retries),
        ("hccs error count", errors),
    ):
        rows.append((name, "[" + "".join(f"{value:<21}" for value in values) + "]"))
    rows.append(("hccs first error lane", first))
    return lines(rows)


def topo(names, kind, affinity):
    """`-t topo`: a full mesh of `kind`."""
    out = "\t   " + "".join(f"{name:<11}" for name in [*names, "CPU Affinity"]).rstrip() + "\n"
    for name in names:
        cells = [f"{'X' if other == name else kind:<11}" for other in names]
        out += f"{name:<11}" + "".join(cells) + affinity[name] + "\n"
    out += (
        "\nLegend:\n\n"
        "  X    = Self\n"
        "  SYS  = Path traversing PCIe and NUMA nodes. Nodes are connected through SMP, such as QPI, UPI.\n"
        "  PHB  = Path traversing PCIe and the PCIe host bridge of a CPU.\n"
        "  PIX  = Path traversing a single PCIe switch\n"
        "  PXB  = Path traversing multiple PCIe switches\n"
        "  HCCS = Connection traversing HCCS.\n"
        "  NA   = Unknown relationship.\n"
    )
    return out


KINDS = {"nve": 0, "uefi": 3, "imu": 8, "imp": 9}


def components(versions):
    """`upgrade-tool --component -1 --version`. `versions`: device -> component -> version, or None when it failed."""
    out = "{\n"
    for device, parts in versions.items():
        for name, version in parts.items():
            out += f"Get component version({version}) succeed for deviceId({device}), componentType({KINDS[name]}).\n"
            out += f'{{"device_id":{device}, "component":{name}, "version":{version}}}\n'
    return out + "}\n"


def boot_status(values):
    """`upgrade-tool --boot_status`, one value for each chip."""
    return "".join(f"boot status:{value}\n" for value in values)


def base_version(values):
    """`upgrade-tool --hw_base_version`: device -> floor."""
    return "".join(f'{{"device_id":{device}, "hw_base_version":{value}}}\n' for device, value in values.items())


def driver_version_info(version, innerversion, accepts_inner, accepts_firmware, hal="7.35.23"):
    """driver/version.info. The `accepts` are lists of "a" or "a,b" texts."""
    return (
        f"Version={version}\nascendhal_version={hal}\naicpu_version=1.0\ntdt_version=1.0\nlog_version=1.0\n"
        "prof_version=2.0\ndvppkernels_version=1.1\ntsfw_version=1.0\n"
        f"Innerversion={innerversion}\ncompatible_version={brackets(accepts_inner)}\n"
        f"compatible_version_fw={brackets(accepts_firmware)}\npackage_version={version}\n"
    )


def firmware_version_info(version, package, accepts_driver):
    """firmware/version.info."""
    return (
        f"Version={version}\nfirmware_version=1.0\npackage_version={package}\n"
        f"compatible_version_drv={brackets(accepts_driver)}\n"
    )


def brackets(values):
    """["a,b", "c"] -> [a,b],[c]."""
    return ",".join(f"[{value}]" for value in values)
