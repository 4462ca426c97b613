"""The scheduler of a lab: which rollout has which node out, kept as a log that only grows.

`python -m fleet.lab.scheduler FILE` is a drain and undrain command for `fleet` (NODE, ACTION and TOKEN in its
environment). The log is all the state there is: what a command does and what the log says of it are one write, so that
no kill comes between the two.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.drain import FOREIGN


@dataclass(frozen=True)
class Scheduler:
    """Its log is `file`: a JSON line for each time that a node went or came back, `ns` since the machine's boot."""

    file: Path

    def log(self) -> list[dict[str, Any]]:
        """Every line: ns, node, what (`cordon` or `uncordon`), token."""
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.is_file() else []

    def ask(self, action: str, node: str, token: str) -> tuple[int, str]:
        """(exit status, words) for one call of the command; a repeated one changes nothing."""
        with self.file.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            holder = ""
            for line in self.log():
                if line["node"] == node:
                    holder = line["token"] if line["what"] == "cordon" else ""
            if action == "cordon" and holder not in ("", token):
                return FOREIGN, f"{node} is out for {holder}"
            if (action, holder) in (("cordon", ""), ("uncordon", token)):
                ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                handle.write(json.dumps({"ns": ns, "node": node, "what": action, "token": token}) + "\n")
            return 0, ""


def main() -> int:
    """One call."""
    rc, said = Scheduler(Path(sys.argv[1])).ask(os.environ["ACTION"], os.environ["NODE"], os.environ["TOKEN"])
    print(said, end="")
    return rc


if __name__ == "__main__":
    sys.exit(main())
