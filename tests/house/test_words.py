"""Words that must not enter the tree: paths of a machine, secrets, registry hosts of vendors."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = [
    re.compile(r"/(?:work|home/\w+)/(?:main|shared)\b"),
    re.compile(r"BEGIN (?:RSA |OPENSSH |EC )?PRIVATE KEY"),
    re.compile(r"(?i)\b(?:repos\.metax-tech|ascend-repo\.obs|developer\.download\.nvidia)\."),
    re.compile(r"\.pyenv"),
]


def test_no_forbidden_word() -> None:
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    found = []
    for name in filter(None, files):
        path = ROOT / name
        if path == Path(__file__) or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        found += [f"{name}: {pattern.pattern}" for pattern in FORBIDDEN if pattern.search(text)]
    assert not found
