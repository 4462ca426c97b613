"""Holds render.py against captured outputs: `check.py SAMPLES_DIR`. A sample's values are taken out and rendered again.

The last line is `N of N`; exit status 1 when any differs.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import render

CARD = re.compile(
    r"\|\s+(?P<index>\d+)\s+(?P<name>\S+) \|\s+(?P<bus_id>\S+) \|\s+(?P<ecc>\S+) \|\n"
    r"\|\s+(?P<temperature>\d+)\s+(?P<perf>\S+)\s+(?P<power>\d+)W / (?P<limit>\d+)W \|"
    r"\s+(?P<used>\d+)MiB / (?P<total>\d+)MiB \|\s+(?P<utilization>\S+)\s+(?P<compute>\S+) \|\n"
    r"\|\s+(?P<persistence>\S+) \|\s+\|\s+(?P<svi>\S+) \|"
)
BANNER = re.compile(r"\| BR-SMI (\S+)\s+Driver Version: (\S+)\s+SUPA Version: (\S+)")


def table(text):
    cards = [match.groupdict() for match in CARD.finditer(text)]
    return render.table(text.split("\n", 1)[0], *BANNER.search(text).groups(), cards)


CHECKS = {"biren_brsmi_1.11.0_106b.txt": table, "biren_brsmi_4card_ecc_rekeyed.txt": table}


def main():
    folder = Path(sys.argv[1])
    good = 0
    for name, again in CHECKS.items():
        text = (folder / name).read_text()
        made = again(text)
        if made == text:
            good += 1
            continue
        pairs = zip([*made.splitlines(), "<end>"], [*text.splitlines(), "<end>"], strict=False)
        ours, theirs = next((pair for pair in pairs if pair[0] != pair[1]), ("same lines", "other end"))
        print(f"{name}:\n  rendered {ours!r}\n  captured {theirs!r}")
    print(f"{good} of {len(CHECKS)}")
    return 0 if good == len(CHECKS) else 1


if __name__ == "__main__":
    sys.exit(main())
