"""Names of the vendor's files: computed for a wanted version, and read back.

The driver package has a version of its own (its train): `metax-driver-3.9.0.14-deb-x86_64.run` holds KMD 3.10.14. Only
two pairs are public (trains.csv). A package whose train is not in that table is kept in the artifact store under
`metax-driver-kmd-<KMD>-<kind>-<arch>.run`, and a VBIOS whose build number is not known under
`mxvbios-<version>-<chip>.bin`: the person who adds the file has looked into it. fleet never guesses a train or a build.
"""

from __future__ import annotations

import re
from typing import Literal

from drivers.metax.tables import BUILD_OF, KMD_OF, TRAIN_OF
from fleet.core.vendor import ArtifactName

_DRIVER = re.compile(r"metax-driver-(kmd-)?(\d+(?:\.\d+)+)-(?:deb|rpm)-(x86_64|aarch64)\.run", re.A)
_VBIOS = re.compile(r"mxvbios-(\d+(?:\.\d+)+)(?:-(\d+))?-([A-Z]\d{3}[A-Z]?(?:-[A-Z]{1,2})?)\.bin", re.A)
_SDK = re.compile(r"(?:maca|hpcc)-sdk-(\d+(?:\.\d+)+)-(?:deb|rpm)-(x86_64|aarch64)\.tar\.xz", re.A)


def driver(kmd: str, kind: Literal["deb", "rpm"], arch: str) -> str:
    """The file that brings this KMD."""
    label = TRAIN_OF.get(kmd) or f"kmd-{kmd}"
    return f"metax-driver-{label}-{kind}-{arch}.run"


def chip(model: str) -> str:
    """`C500`, `MetaX C550`, `MXN260` -> the chip as VBIOS file names carry it: `C500`, `C550`, `N260`."""
    match = re.search(r"([CNX]\d{3}[A-Z]?(?:-[A-Z]{1,2})?)\s*$", model.strip().removesuffix(" VF"))
    return match[1] if match else model.strip()


def vbios(version: str, model: str) -> str:
    """The file that brings this VBIOS to this model."""
    name = chip(model)
    build = BUILD_OF.get((version, name))
    return f"mxvbios-{version}-{build}-{name}.bin" if build else f"mxvbios-{version}-{name}.bin"


def toolkit(version: str, kind: Literal["deb", "rpm"], arch: str) -> str:
    """The archive that brings this MXMACA SDK."""
    return f"maca-sdk-{version}-{kind}-{arch}.tar.xz"


def artifact(name: str) -> ArtifactName | None:
    """What a file name tells; None when it is none of this vendor, or a driver package of a train that is not known."""
    if match := _DRIVER.fullmatch(name):
        kmd = match[2] if match[1] else KMD_OF.get(match[2])
        return ArtifactName("metax", "driver", kmd, "run", match[3]) if kmd else None
    if match := _VBIOS.fullmatch(name):
        return ArtifactName("metax", "firmware", match[1], "bin", "", match[3])
    if match := _SDK.fullmatch(name):
        return ArtifactName("metax", "toolkit", match[1], "tar", match[2])
    return None
