"""Builds the emulated MetaX packages on the host: `package.py OUTDIR VERSIONS.json`, with FLEET_LAB_BUILD=1.

Real naming scheme, our content: a run file that holds a deb or rpm with the stand-in module, a VBIOS image, an SDK
archive. Same input, same bytes. Needs dpkg-deb for deb and rpmbuild for rpm.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = "/opt/fleet-lab/metax"
EPOCH = 1735689600
TABLES = Path(__file__).parent.parent
RUN_HEAD = """#!/bin/sh
# Stand-in of the fleet lab for the vendor's installer. Arguments after -- go to the inner installer.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
sed '1,/^__PAYLOAD__$/d' "$0" | base64 -d | tar -xz -C "$folder" || { echo "Error in checksum"; exit 1; }
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
[ $# -gt 0 ] && shift
python3 @HERE@/install.py driver "$folder" "$@"
exit $?
__PAYLOAD__
"""


def table(name, key, value):
    with (TABLES / name).open() as handle:
        return {tuple(row[k] for k in key): row[value] for row in csv.DictReader(handle)}


def wrapper(program):
    return f'#!/bin/sh\nexec python3 {HERE}/{program} "$@"\n'


def lay(root, files):
    for path, (text, mode) in sorted(files.items()):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (EPOCH, EPOCH))


def run(argv):
    done = subprocess.run(
        argv, env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(f"{argv[0]}: {done.stderr or done.stdout}")
        raise SystemExit(1)


def build_deb(work, target, name, version, arch, files):
    root = work / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: {'arm64' if arch == 'aarch64' else 'amd64'}\n"
        "Maintainer: fleet lab <lab@example.invalid>\nSection: misc\nPriority: optional\n"
        f"Description: stand-in for {name} in the fleet lab\n"
    )
    lay(root, files)
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(target)])


def build_rpm(work, target, name, version, arch, files):
    root = work / "root"
    root.mkdir()
    lay(root, files)
    listed = "\n".join(f"%attr({mode:o},root,root) {path}" for path, (_, mode) in sorted(files.items()))
    (work / "package.spec").write_text(
        f"Name: {name}\nVersion: {version}\nRelease: 1\nSummary: stand-in for {name} in the fleet lab\n"
        f"License: Apache-2.0\nAutoReqProv: no\n%description\nStand-in.\n%install\ncp -a {root}/. %{{buildroot}}/\n"
        f"%files\n{listed}\n"
    )
    defines = {
        "_topdir": str(work / "rpm"), "_rpmdir": str(work / "out"), "_build_id_links": "none", "_buildhost": "lab",
        "use_source_date_epoch_as_buildtime": "1", "clamp_mtime_to_source_date_epoch": "1",
        "source_date_epoch_from_changelog": "0", "debug_package": "%{nil}", "__os_install_post": "%{nil}",
        "_binary_payload": "w6.gzdio", "_dbpath": str(work / "db"),
    }  # fmt: skip
    argv = ["rpmbuild", "-bb", "--target", f"{arch}-linux", "--buildroot", str(work / "buildroot")]
    for key, value in defines.items():
        argv += ["--define", f"{key} {value}"]
    run([*argv, str(work / "package.spec")])
    shutil.copyfile(next((work / "out").rglob("*.rpm")), target)


def archive(members, compress):
    """A tar of (name, bytes, mode) that is the same every time."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data, mode in members:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode, EPOCH
            tar.addfile(entry, io.BytesIO(data))
    return compress(raw.getvalue())


def build_driver(work, target, kmd, kind, arch, order, labnode):
    train = table("trains.csv", ("kmd",), "package").get((kmd,), f"0~kmd{kmd}")
    source = labnode.module_source("metax", kmd, ("metax",), templates=Path(order["module_source"]))
    files = {f"/usr/src/metax-{kmd}/{name}": (text, 0o644) for name, text in source.items()}
    files["/opt/mxdriver/bin/mx-smi"] = (wrapper("smi.py"), 0o755)
    files["/usr/bin/mx-smi"] = (wrapper("smi.py"), 0o755)
    files["/opt/mxdriver/bin/mxdriver-uninstall.sh"] = (
        f"#!/bin/sh\nexec python3 {HERE}/install.py remove-driver\n",
        0o755,
    )
    machine = {"deb": {"x86_64": "amd64", "aarch64": "arm64"}, "rpm": {}}[kind].get(arch, arch)
    inner = f"metax-linux_{train}_{machine}.deb" if kind == "deb" else f"metax-linux-{train}-1.{machine}.rpm"
    (build_deb if kind == "deb" else build_rpm)(work, work / inner, "metax-linux", train, arch, files)
    facts = json.dumps({"kmd": kmd, "train": train, "packages": [inner]}, sort_keys=True)
    members = [("package.json", facts.encode(), 0o644), (inner, (work / inner).read_bytes(), 0o644)]
    payload = archive(members, lambda data: gzip.compress(data, mtime=0))
    target.write_bytes(RUN_HEAD.replace("@HERE@", HERE).encode() + base64.encodebytes(payload))
    target.chmod(0o755)


def build_toolkit(target, version, kind, arch):
    folder = f"maca-sdk-{version}-{kind}-{arch}"
    script = f'#!/bin/sh\nexec python3 {HERE}/install.py toolkit {version} "$@"\n'
    members = [(f"{folder}/mxmaca-sdk-install.sh", script.encode(), 0o755)]
    target.write_bytes(archive(members, lambda data: lzma.compress(data, preset=6)))


def names(stack):
    """component -> file name, in the order of installation."""
    kind, arch = stack["kind"], stack.get("arch", "x86_64")
    chip = str(stack["model"]).split()[-1].removeprefix("MX")
    trains, builds = table("trains.csv", ("kmd",), "package"), table("builds.csv", ("vbios", "model"), "build")
    out = {}
    for component in ("driver", "firmware", "toolkit"):
        version = stack["components"].get(component)
        if not version:
            continue
        if component == "driver":
            label = trains.get((version,)) or f"kmd-{version}"
            out[component] = f"metax-driver-{label}-{kind}-{arch}.run"
        elif component == "firmware":
            build = builds.get((version, chip))
            out[component] = f"mxvbios-{version}-{build + '-' if build else ''}{chip}.bin"
        else:
            out[component] = f"maca-sdk-{version}-{kind}-{arch}.tar.xz"
    return out, chip


def main():
    if os.environ.get("FLEET_LAB_BUILD") != "1":
        sys.stderr.write("this program builds packages for a fleet lab: set FLEET_LAB_BUILD=1\n")
        return 97
    out, order = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    sys.path.insert(0, order["labnode"])
    import labnode

    answer = {}
    for stack in order["stacks"]:
        files, chip = names(stack)
        kind, arch = stack["kind"], stack.get("arch", "x86_64")
        for component, name in files.items():
            version = stack["components"][component]
            if (out / name).is_file():
                continue
            with tempfile.TemporaryDirectory(dir=out) as folder:
                part = Path(folder) / name
                if component == "driver":
                    build_driver(Path(folder), part, version, kind, arch, order, labnode)
                elif component == "firmware":
                    part.write_bytes(f"MXVBIOS\nversion={version}\nchip={chip}\n".encode() + bytes(4096))
                else:
                    build_toolkit(part, version, kind, arch)
                part.replace(out / name)
        answer[stack["name"]] = list(files.values())
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
