"""Names of the vendor's files: computed for a wanted version, and read back."""

from __future__ import annotations

import re

from fleet.core.model import OsFacts
from fleet.core.vendor import ArtifactName

_DRIVER = re.compile(r"biren-driver_(\d+(?:\.\w+)+)_linux-(x86_64|aarch64)\.run", re.A)
_SDK = re.compile(r"birensupa-sdk_(\d+(?:\.\w+)+)_([a-z]+-[\d.]+)_linux-(x86_64|aarch64)\.run", re.A)


def driver(version: str, arch: str) -> str:
    """The file that brings this driver."""
    return f"biren-driver_{version}_linux-{arch}.run"


def toolkit(version: str, system: OsFacts) -> str:
    """The file that brings this BIRENSUPA SDK to this operating system."""
    return f"birensupa-sdk_{version}_{system.id.lower()}-{system.version}_linux-{system.arch or 'x86_64'}.run"


def artifact(name: str) -> ArtifactName | None:
    """What a file name tells; None when it is none of this vendor."""
    if match := _DRIVER.fullmatch(name):
        return ArtifactName("biren", "driver", match[1], "run", match[2])
    if match := _SDK.fullmatch(name):
        return ArtifactName("biren", "toolkit", match[1], "run", match[3])
    return None
