"""Names of Ascend packages, both ways: what a file name tells, and the name of the file that is wanted.

Chips in names: 310b, 310p, 910 (A), 910b (A2), 910c (A3); A5 has names of its own. HDK files write `x86-64`, CANN
files `x86_64`; both are accepted. Firmware and MCU have no architecture.
"""

from __future__ import annotations

import re
from typing import Literal

from fleet.core.errors import Refused
from fleet.core.vendor import ArtifactName

_ARCHS = {"x86-64": "x86_64", "x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64",
          "noarch": "", "all": ""}  # fmt: skip
_ARCH = "x86-64|x86_64|amd64|aarch64|arm64"
_HDK = r"Ascend-hdk-(?P<chip>\w+)-"
_LINUX = rf"_linux-(?P<arch>{_ARCH})"
_FORMS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), component)
    for pattern, component in (
        (rf"{_HDK}npu-driver_(?P<version>[\w.]+?){_LINUX}\.(?P<kind>run|deb|rpm)", "driver"),
        (rf"{_HDK}npu-firmware_(?P<version>[\d.]+)\.(?P<kind>run|deb|rpm)", "firmware"),
        (rf"{_HDK}npu-driver-(?P<version>[\w.]+)-\d+\.(?P<arch>{_ARCH})\.(?P<kind>rpm|deb)", "driver"),
        (rf"{_HDK}npu-firmware-(?P<version>[\d.]+)-\d+\.(?P<arch>noarch|all)\.(?P<kind>rpm|deb)", "firmware"),
        (rf"{_HDK}npu_(?P<version>[\w.]+?){_LINUX}\.(?P<kind>zip)", "bundle"),
        (rf"(?P<chip>(?:A\d+t?|Atlas)-\w+(?:-pro)?)-npu_(?P<version>[\w.]+?){_LINUX}\.(?P<kind>zip)", "bundle"),
        (rf"{_HDK}mcu_(?P<version>[\d.]+)\.(?P<kind>zip)", "mcu"),
        (rf"Atlas-(?P<chip>A5)-hdk-npu-driver_(?P<version>[\w.]+?){_LINUX}\.(?P<kind>run)", "driver"),
        (r"Atlas-(?P<chip>A5)-hdk-npu-firmware_(?P<version>[\d.]+)\.(?P<kind>run)", "firmware"),
        (rf"Ascend-cann-toolkit_(?P<version>[\w.]+?){_LINUX}\.(?P<kind>run)", "toolkit"),
    )
)
_KINDS: dict[str, Literal["deb", "rpm", "run", "zip"]] = {"deb": "deb", "rpm": "rpm", "run": "run", "zip": "zip"}
CHIPS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.I), token)
    for pattern, token in (
        (r"310B", "310b"),
        (r"310P|d500|300[IV]\b|300I[ -]?(?:Pro|Duo)|300V", "310p"),
        (r"910C|910_93|d803|\bA3\b", "910c"),
        (r"910B\d?|d802|\bA2\b", "910b"),
        (r"910", "910"),
        (r"d801", "910"),
        (r"950|d806|\bA5\b|Atlas 350", "A5"),
    )
)


def artifact(name: str) -> ArtifactName | None:
    """What a package file holds, by its name; None when it is no Ascend package."""
    for pattern, component in _FORMS:
        match = pattern.fullmatch(name)
        if match:
            found = match.groupdict()
            arch = _ARCHS.get(found.get("arch") or "", "")
            chip = found.get("chip") or ""
            return ArtifactName("ascend", component, found["version"], _KINDS[found["kind"]], arch, chip)
    return None


def chip_token(model: str) -> str:
    """The chip word of package names for a model as fleet or a tool names it; Refused when there is none."""
    for pattern, token in CHIPS:
        if pattern.search(model):
            return token
    raise Refused(f"no Ascend package is known for model {model!r}", slug="unknown-model")


def _arch(arch: str, hdk: bool) -> str:
    if arch in ("aarch64", "arm64"):
        return "aarch64"
    return "x86-64" if hdk else "x86_64"


def file_name(component: str, version: str, model: str, arch: str, kind: str = "run") -> str:
    """The name of the package file; `kind` is run, rpm or deb and matters for driver and firmware only."""
    if component == "toolkit":
        return f"Ascend-cann-toolkit_{version}_linux-{_arch(arch, hdk=False)}.run"
    chip = chip_token(model)
    if component == "mcu":
        return f"Ascend-hdk-{chip}-mcu_{version}.zip"
    stem = f"Atlas-A5-hdk-npu-{component}" if chip == "A5" else f"Ascend-hdk-{chip}-npu-{component}"
    version = version.lower()
    if kind == "rpm":
        return f"{stem}-{version}-1.{_arch(arch, hdk=False) if component == 'driver' else 'noarch'}.rpm"
    tail = f"_linux-{_arch(arch, hdk=True)}" if component == "driver" else ""
    return f"{stem}_{version}{tail}.{kind}"
