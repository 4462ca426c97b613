"""Files and standard input as a person names them: read whole, never more than they may be."""

from __future__ import annotations

import sys
from pathlib import Path

from fleet.core.errors import BadInput


def given(file: str, limit: int) -> bytes:
    """The bytes of a file, of standard input for `-`. Raises BadInput when it cannot be read or has more than `limit`.

    At most `limit` + 1 bytes are read: a device or a pipe may have no end.
    """
    if not file:
        raise BadInput("no file is named", hint="name a file, or - for standard input", slug="no-file")
    try:
        if file == "-":
            data = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(file).open("rb") as handle:
                data = handle.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        cause = getattr(error, "strerror", None) or str(error)
        raise BadInput(
            f"the file {file[:200]!r} cannot be read", cause=cause, hint="name a file, or - for standard input",
            slug="no-file",
        ) from error  # fmt: skip
    if len(data) > limit:
        where = "stdin" if file == "-" else file
        raise BadInput(f"the file is larger than {limit >> 20} MiB", where=where, slug="too-large")
    return data
