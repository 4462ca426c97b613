"""Words that all Ascend tools share: error codes, refusals, numbers, labels and `key : value` lines.

npu-smi writes its errors to stdout and exits with `code & 0xff`, so the text is asked first and the status second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fleet.core.vendor import Status

VENDOR_NAME = "ascend"

# DCMI return codes and what they mean for the operator; any other negative code is a plain failure.
DCMI: dict[int, Status] = {
    -8001: "driver-mismatch",
    -8002: "permission-denied",
    -8005: "not-ready",
    -8006: "not-ready",
    -8008: "no-devices",
    -8012: "not-ready",
    -8017: "not-ready",
    -8020: "occupied",
    -8255: "unsupported",
    # npu-smi's own codes: no right, already upgrading, not on this product
    -9002: "permission-denied",
    -9021: "not-ready",
    -9255: "unsupported",
}
_CODE = re.compile(r"\bret(?:urn)?(?: code| value)? ?(?:is|=|:) ?(-[89]\d{3})\b")
_REFUSALS: tuple[tuple[re.Pattern[str], Status], ...] = (
    (re.compile(r"invalid (?:card|npu|chip) id", re.I), "device-lost"),
    (re.compile(r"there is no npu card|no npu (?:card|device)s? (?:on|in|found)", re.I), "no-devices"),
    (re.compile(r"(?:does|do|is|are) ?n[o']t support|not supported", re.I), "unsupported"),
    (
        re.compile(r"permission denied|not permitted|password is required|must be root|root (?:user|privilege)", re.I),
        "permission-denied",
    ),
    (re.compile(r"mcu_get_lock|(?:device|npu) is (?:used|busy)|resource busy|is busy", re.I), "occupied"),
)  # fmt: skip
_MISSING_TOOL = re.compile(r"(?i:command not found|: is a directory|no such file or directory)|: not found\b")
_MISSING_FILE = re.compile(r"^[\w./-]+: .*(?:no such file or directory|is a directory|cannot open)", re.I | re.M)
# Ascend tools never speak of GPUs, and of no other vendor.
_FOREIGN = re.compile(
    r"\bGPU(?![\w.-]*-?burn)|nvidia|\bnvml|nvlink|nvswitch|\bdcgm|\bmx-?smi|metax|biren|\bbr-?smi|\bhy-?smi|hygon"
    r"|\brocm|cnmon|cambricon|\bMLU|\bix-?smi|iluvatar|mthreads|\bef-?smi|enflame|xpu-?smi|kunlun|ppu-?smi",
    re.I,
)
_LABEL = re.compile(r"[^a-z0-9]+")
_QUANTITY = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?:\s*([A-Za-z%/]+))?")
VERSION = re.compile(r"\d+(?:\.[0-9A-Za-z]+)+")


def trouble(text: str) -> Status | None:
    """The status that an error message stands for; None when the text holds none that is known.

    Only short texts are error messages: a log that happens to mention a code is not one.
    """
    if len(text) > 4000:
        return None
    code = _CODE.search(text)
    if code and "mcu_get_lock" not in text:
        return DCMI.get(int(code[1]), "failed")
    return next((status for pattern, status in _REFUSALS if pattern.search(text)), None)


def foreign(text: str) -> bool:
    """Whether the text speaks of GPUs or of another vendor: then it is no answer of an Ascend tool."""
    return _FOREIGN.search(text[: 1 << 16]) is not None


def shell_trouble(text: str, rc: int | None, tool: bool) -> Status | None:
    """What the shell said in place of the tool, by its message and its statuses 126 and 127.

    `tool` is False for `cat FILE`, where a missing file is a failed command and not a missing tool.
    """
    short = text if len(text) <= 2000 else ""
    if rc == 127:
        return "tool-missing"
    if tool and "s a directory" in short:
        return "tool-missing"
    if rc == 126:
        return "permission-denied"
    if tool and len(short.strip().splitlines()) <= 2 and _MISSING_TOOL.search(short):
        return "tool-missing"
    if tool and len(short.strip().splitlines()) == 1 and re.search(r"\S: permission denied$", short.strip(), re.I):
        return "permission-denied"
    if re.search(r"^sudo: .*(?:password is required|not allowed|read the password)|not in the sudoers", short, re.M):
        return "permission-denied"
    if not tool and _MISSING_FILE.search(short):
        return "failed"
    if not tool and re.search(r"^[\w./-]+: .*permission denied", short, re.I | re.M):
        return "permission-denied"
    return None


def number(raw: str) -> int | float | None:
    """The number in `raw`; None for NA, N/A, - and everything that is not a number alone."""
    text = raw.strip()
    if not text or len(text) > 40:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    if not re.fullmatch(r"-?\d+\.\d*", text):
        return None
    return float(text)


def quantity(raw: str) -> tuple[int | float, str] | None:
    """`47 C` -> (47, "c"); a bare number has the unit ""; None when it is no number with at most one unit."""
    match = _QUANTITY.fullmatch(raw.strip()[:60])
    if not match:
        return None
    value = number(match[1])
    if value is None:
        value = float(match[1])
    return value, (match[2] or "").lower().replace("/", "").replace("%", "")


def label(raw: str, unit: str = "") -> str:
    """`NPU Real-time Power(W)` -> `npu_real_time_power_w`; `unit` is added when the value brought one."""
    key = _LABEL.sub("_", raw.strip().lower()).strip("_")
    return f"{key}_{unit}" if unit and not key.endswith("_" + unit) else key


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """(key, value) of each `key : value` line, stripped; the key is empty for a continued value."""
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def body(text: str) -> str:
    """The tool's own lines: the indented ones where there are any, so that a banner of ssh or a warning drops out."""
    lines = text.split("\n")
    own = [line for line in lines if line[:1] in {"\t", " "} or not line]
    return "\n".join(own) if any(":" in line for line in own) else text


def version(raw: str) -> str | None:
    """A version as printed; None for NA, - and empty."""
    text = raw.strip()
    return text if text and VERSION.fullmatch(text) else None


def cut_short(text: str) -> bool:
    """Whether the last line of a `key : value` answer broke off before its colon."""
    last = text.rstrip().rpartition("\n")[2]
    return last[:1] in {"\t", " "} and ":" not in last and len(last.strip().split()) <= 6
