"""Names of packages and files, computed from component, version, flavour, package kind and architecture.

The scheme changed at branch 580: below it names carry the branch (`nvidia-fabricmanager-570`), from it on they do not;
the fabric manager's rpm is `nvidia-fabric-manager` below and `nvidia-fabricmanager` above.
"""

from __future__ import annotations

import re

from fleet.core.errors import Refused
from fleet.core.model import OsFacts
from fleet.core.vendor import ArtifactName

UNSUFFIXED = 580  # first branch whose package names carry no branch
OPEN_DEFAULT = 560  # first branch whose installer and packages choose the open module
# What must have exactly the driver's version, and moves in the same transaction.
COMPANIONS = ("fabricmanager", "nscq", "nvsdm", "imex")
_STEMS = {"fabricmanager": "nvidia-fabricmanager", "nscq": "libnvidia-nscq", "nvsdm": "libnvsdm", "imex": "nvidia-imex"}
_CLOSED_ONLY = re.compile(r"\b(?:V100S?|P100|P40|P4|M60|M40)\b", re.IGNORECASE)
_DEB = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9+.-]*)_(?:\d+%3a)?(?P<version>\d[0-9.]*\d)-[^_]+_(?P<arch>amd64|arm64|all)\.deb$"
)
_RPM = re.compile(
    r"(?P<name>[a-z0-9][A-Za-z0-9+.-]*?)-(?P<version>\d[0-9.]*\d)-[^-]+\.(?P<arch>x86_64|aarch64|noarch)\.rpm$"
)
_RUN = re.compile(r"NVIDIA-Linux-(?P<arch>x86_64|aarch64)-(?P<version>\d{3}\.\d+(?:\.\d+)?)\.run$")
_ARCHES = {"amd64": "x86_64", "arm64": "aarch64", "all": "", "noarch": ""}
_PACKAGES = (
    (re.compile(r"nvidia-driver-\d{3}(?:-server)?(?:-open)?$"), "driver"),
    (re.compile(r"nvidia-open(?:-\d{3})?$"), "driver"),
    (re.compile(r"cuda-drivers(?:-\d{3})?$"), "driver"),
    (re.compile(r"nvidia-fabric-?manager(?:-\d{3})?$"), "fabricmanager"),
    (re.compile(r"libnvidia-nscq(?:-\d{3})?$"), "nscq"),
    (re.compile(r"libnvsdm(?:-\d{3})?$"), "nvsdm"),
    (re.compile(r"nvidia-imex(?:-\d{3})?$"), "imex"),
    (re.compile(r"nvlsm$"), "nvlsm"),
    (re.compile(r"datacenter-gpu-manager(?:-4-core)?$"), "dcgm"),
    (re.compile(r"nvidia-container-toolkit$"), "container_toolkit"),
    (re.compile(r"cuda-toolkit-\d+-\d+$"), "toolkit"),
    (re.compile(r"gdrdrv-dkms$|gdrcopy$"), "gdrcopy"),
)
# Further names under which a component may be installed; they are read but never computed.
_ALSO = (
    (re.compile(r"nvidia-dkms-\d{3}(?:-server)?(?:-open)?$|kmod-nvidia-(?:open|latest)-dkms$"), "driver"),
    (re.compile(r"nvidia-driver$|nvidia-driver-cuda$|nvidia-driver-latest-dkms$|nvidia-headless-\d{3}\S*$"), "driver"),
    (re.compile(r"nvidia-kernel-(?:open-)?dkms$|nvidia-open-kernel-dkms$"), "driver"),
    (re.compile(r"datacenter-gpu-manager-4-cuda\d+$"), "dcgm"),
    (re.compile(r"nvidia-container-toolkit-base$"), "container_toolkit"),
    (re.compile(r"libgdrapi$|gdrcopy-kmod$"), "gdrcopy"),
)


def branch(version: str) -> int:
    """`580.95.05` -> 580."""
    head = version.split(".", 1)[0]
    if not head.isdigit():
        raise Refused(f"{version!r} is not an NVIDIA driver version", slug="bad-version")
    return int(head)


def flavour(version: str, wanted: str | None, model: str) -> str:
    """The module flavour: what is asked for; else what the model and branch allow."""
    if wanted in ("open", "proprietary"):
        return wanted
    if _CLOSED_ONLY.search(model):
        return "proprietary"
    return "open" if branch(version) >= OPEN_DEFAULT else "proprietary"


def package(component: str, version: str, kind: str, flavour_word: str = "open") -> str:
    """The package's name; Refused when there is none for that component."""
    if component == "driver":
        old = branch(version) < UNSUFFIXED
        if kind == "deb" and old:
            return f"nvidia-driver-{branch(version)}" + ("-open" if flavour_word == "open" else "")
        return "nvidia-open" if flavour_word == "open" else "cuda-drivers"
    if component in _STEMS:
        if branch(version) >= UNSUFFIXED:
            return _STEMS[component]
        if kind == "rpm" and component == "fabricmanager":
            return "nvidia-fabric-manager"
        return _STEMS[component] if kind == "rpm" else f"{_STEMS[component]}-{branch(version)}"
    if component == "nvlsm":
        return "nvlsm"
    if component == "dcgm":
        return (
            "datacenter-gpu-manager-4-core"
            if version.split(".")[0].isdigit() and int(version.split(".")[0]) >= 4
            else "datacenter-gpu-manager"
        )
    if component == "container_toolkit":
        return "nvidia-container-toolkit"
    if component == "toolkit":
        return "cuda-toolkit-" + "-".join(version.split(".")[:2])
    if component == "gdrcopy":
        return "gdrdrv-dkms" if kind == "deb" else "gdrcopy"
    raise Refused(f"no NVIDIA package is known for component {component!r}", slug="no-steps")


def file_name(component: str, version: str, kind: str, os: OsFacts, flavour_word: str = "open") -> str:
    """The file's name in the artifact store."""
    arm = os.arch in ("aarch64", "arm64")
    name = package(component, version, kind, flavour_word)
    if kind == "deb":
        return f"{name}_{version}-1_{'arm64' if arm else 'amd64'}.deb"
    return f"{name}-{version}-1.{'aarch64' if arm else 'x86_64'}.rpm"


def run_file(version: str, os: OsFacts) -> str:
    """The name of the .run installer."""
    return f"NVIDIA-Linux-{'aarch64' if os.arch in ('aarch64', 'arm64') else 'x86_64'}-{version}.run"


def component_of(package_name: str) -> str | None:
    """The component of an installed package, also under names that we would not choose."""
    for pattern, component in (*_PACKAGES, *_ALSO):
        if pattern.match(package_name):
            return component
    return None


def artifact_component(package_name: str) -> str | None:
    """The component of a package whose name we would choose ourselves; None for the others."""
    return next((component for pattern, component in _PACKAGES if pattern.match(package_name)), None)


def plain_version(text: str) -> str:
    """`1:4.4.1-1` or `570.133.20-0ubuntu0.22.04.1` -> the vendor's version."""
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", text)
    return match.group(1) if match else text


def artifact(name: str) -> ArtifactName | None:
    """What a file of the artifact store is, by its name; None when it is none of ours."""
    base = name.rsplit("/", 1)[-1]
    run = _RUN.match(base)
    if run:
        return ArtifactName("nvidia", "driver", run.group("version"), "run", arch=run.group("arch"))
    for pattern, kind in ((_DEB, "deb"), (_RPM, "rpm")):
        match = pattern.match(base) if len(base) < 200 else None
        if not match:
            continue
        for names, component in _PACKAGES:
            if names.match(match.group("name")):
                arch = _ARCHES.get(match.group("arch"), match.group("arch"))
                version = match.group("version")
                if kind == "deb":
                    return ArtifactName("nvidia", component, version, "deb", arch=arch)
                return ArtifactName("nvidia", component, version, "rpm", arch=arch)
    return None
