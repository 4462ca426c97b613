"""`npu-smi upgrade -b|-t|-a|-q mcu`: the microcontroller of a card, upgraded one card after the other."""

from __future__ import annotations

import re

from drivers.ascend.words import VENDOR_NAME, number, pairs, trouble, version
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed


def read_mcu(command: str, text: str) -> Reading:
    """Version (`-b`), transfer (`-t`), activation (`-a`) or progress (`-q`); a held lock is `occupied`."""
    if "mcu_get_lock" in text[:4000]:
        return Reading(VENDOR_NAME, command, "occupied")
    lines = list(pairs(text[-20_000:]))
    own = {key: value for key, value in lines if key}
    messages = " ".join(value for key, value in lines if key == "Message")
    if "Version" in own and "Status" not in own:
        versions = {version(value) for key, value in lines if key == "Version"}
        if None in versions:
            return unparsed(VENDOR_NAME, command, "no version")
        found = versions.pop()
        if versions or found is None:  # several cards in a row, not all alike
            check: dict[str, Json] = {"name": "mcu-uniform", "result": "fail"}
            return Reading(VENDOR_NAME, command, "driver-mismatch", checks=(check,))
        return Reading(VENDOR_NAME, command, "ok", components={"mcu": found})
    if "Conclusion" in own or "Schedule" in own:
        word = own.get("Conclusion", "").upper()
        running = word in {"RUNNING", ""}
        check = {"name": "mcu-upgrade", "result": "pass" if word == "PASS" else "fail"}
        schedule = number(re.sub(r"[\[\]%. ]", "", own.get("Schedule", "")))
        return Reading(
            VENDOR_NAME,
            command,
            "not-ready" if running else "ok" if word == "PASS" else "failed",
            checks=() if running else (check,),
            measure={} if schedule is None else {"schedule": schedule},
        )
    state = own.get("Status", "").lower()
    install: dict[str, Json]
    if (
        state.startswith("fail")
        or re.search(r"\bfail|time ?out", messages, re.I)
        or own.get("Validity", "success") != "success"
        or own.get("transfile", "").lower().startswith("fail")
    ):
        install = {"result": "failed"}
        return Reading(VENDOR_NAME, command, "failed", more={"install": install})
    if "need active mcu" in messages:
        install = {"result": "reboot-required", "reason": "mcu-activate"}
        return Reading(VENDOR_NAME, command, "ok", more={"install": install})
    if state == "ok" and "taken effect" in messages:
        install = {"result": "live"}
        return Reading(VENDOR_NAME, command, "ok", more={"install": install})
    status = trouble(text)
    if status:
        return Reading(VENDOR_NAME, command, status)
    return unparsed(VENDOR_NAME, command, "the answer has no end")
