"""Builds the emulated NVIDIA packages on the host: `package.py OUTDIR VERSIONS.json`, with FLEET_LAB_BUILD=1.

Real names, our content: wrappers of the programs beside this file, the stand-in modules as a dkms tree, and scripts
that call install.py in the node. Same input, same bytes. Needs dpkg-deb for deb and rpmbuild for rpm.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = "/opt/fleet-lab/nvidia"
EPOCH = "1735689600"  # every file carries this time, so that a build can be repeated byte for byte
MODULES = ("nvidia", "nvidia_modeset", "nvidia_uvm")
ORDER = (
    "driver", "fabricmanager", "nscq", "nvsdm", "imex", "nvlsm", "dcgm", "container_toolkit", "toolkit", "gdrcopy",
)  # fmt: skip
STEMS = {"fabricmanager": "nvidia-fabricmanager", "nscq": "libnvidia-nscq", "nvsdm": "libnvsdm", "imex": "nvidia-imex"}
CLOSED_ONLY = ("V100", "P100", "P40", "P4")
UNIT = """[Unit]
Description=NVIDIA fabric manager service
After=network-online.target

[Service]
Type=forking
ExecStart=/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg

[Install]
WantedBy=multi-user.target
"""


def flavour(stack):
    wanted = stack["components"].get("driver_flavour")
    if wanted:
        return wanted
    if str(stack.get("model", "")).startswith(CLOSED_ONLY):
        return "proprietary"
    return "open" if int(stack["components"].get("driver", "580").split(".")[0]) >= 560 else "proprietary"


def package_name(component, version, kind, word):
    """The name by NVIDIA's schemes: with the branch below 580, without it from there on."""
    head = int(version.split(".")[0])
    if component == "driver":
        if kind == "deb" and head < 580:
            return f"nvidia-driver-{head}" + ("-open" if word == "open" else "")
        return "nvidia-open" if word == "open" else "cuda-drivers"
    if component in STEMS:
        if head >= 580:
            return STEMS[component]
        if kind == "rpm":
            return "nvidia-fabric-manager" if component == "fabricmanager" else STEMS[component]
        return f"{STEMS[component]}-{head}"
    if component == "dcgm":
        return "datacenter-gpu-manager-4-core" if head >= 4 else "datacenter-gpu-manager"
    if component == "toolkit":
        return "cuda-toolkit-" + "-".join(version.split(".")[:2])
    if component == "gdrcopy":
        return "gdrdrv-dkms" if kind == "deb" else "gdrcopy"
    return {"nvlsm": "nvlsm", "container_toolkit": "nvidia-container-toolkit"}[component]


def file_name(name, version, kind, arch):
    arm = arch in ("aarch64", "arm64")
    if kind == "deb":
        return f"{name}_{version}-1_{'arm64' if arm else 'amd64'}.deb"
    return f"{name}-{version}-1.{'aarch64' if arm else 'x86_64'}.rpm"


def wrapper(program):
    return f'#!/bin/sh\nexec python3 {HERE}/{program} "$@"\n'


def content(component, version, kind, arch, word, labnode, templates):
    """Path -> (text, mode) of the package's files."""
    lib = (
        "/usr/lib64"
        if kind == "rpm"
        else f"/usr/lib/{'aarch64' if arch in ('aarch64', 'arm64') else 'x86_64'}-linux-gnu"
    )
    mark = f"stand-in of the fleet lab, {component} {version}\n"
    if component == "driver":
        licence = "Dual MIT/GPL" if word == "open" else "NVIDIA"
        source = labnode.module_source("nvidia", version, MODULES, licence, Path(templates))
        out = {f"/usr/src/nvidia-{version}/{name}": (text, 0o644) for name, text in source.items()}
        out["/usr/bin/nvidia-smi"] = (wrapper("smi.py"), 0o755)
        out[f"{lib}/libnvidia-ml.so.{version}"] = (mark, 0o644)
        out[f"{lib}/libcuda.so.{version}"] = (mark, 0o644)
        return out
    if component == "fabricmanager":
        return {
            "/usr/bin/nv-fabricmanager": (wrapper("fabricmanager.py"), 0o755),
            "/usr/lib/systemd/system/nvidia-fabricmanager.service": (UNIT, 0o644),
            "/usr/share/nvidia/nvswitch/fabricmanager.cfg": ("LOG_LEVEL=4\n", 0o644),
        }
    if component == "dcgm":
        return {"/usr/bin/dcgmi": (wrapper("dcgmi.py"), 0o755)}
    if component == "container_toolkit":
        said = f"#!/bin/sh\necho 'NVIDIA Container Toolkit CLI version {version}'\n"
        return {"/usr/bin/nvidia-ctk": (said, 0o755)}
    if component == "toolkit":
        document = json.dumps({"cuda": {"name": "CUDA SDK", "version": version}}, indent=3) + "\n"
        return {"/usr/local/cuda/version.json": (document, 0o644)}
    if component in ("nscq", "nvsdm"):
        return {f"{lib}/{STEMS[component]}.so.{version}": (mark, 0o644)}
    return {f"/usr/share/nvidia/{component}/version": (mark, 0o644)}


def scripts(kind, component, version, word):
    """Name -> shell script of the package manager's own hooks."""
    call = f"python3 {HERE}/install.py"
    post = f"{call} post {component} {version} {word}"
    if kind == "deb":
        # prerm upgrade NEW / prerm remove
        pre = (
            'case "$1" in\n'
            f'  upgrade) next="${{2%-*}}"; {call} pre {component} {version} {word} "$next" ;;\n'
            f"  remove|deconfigure) {call} pre {component} {version} {word} ;;\n"
            "esac\n"
        )
        return {
            "postinst": f'#!/bin/sh\nset -e\n[ "$1" = configure ] || exit 0\n{post}\n',
            "prerm": f"#!/bin/sh\n{pre}exit 0\n",
        }
    # $1 = how many of this package remain: 0 = removal. On an upgrade the new one has run its own script already.
    pre = f"{call} pre {component} {version} {word}"
    return {
        "post": f"{post} || exit $?\n",
        "preun": f'if [ "$1" -gt 0 ]; then {pre} newer; else {pre}; fi\nexit 0\n',
    }


def lay(root, files):
    for path, (text, mode) in sorted(files.items()):
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (int(EPOCH), int(EPOCH)))


def run(argv):
    done = subprocess.run(
        argv, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(f"{argv[0]}: {done.stderr or done.stdout}")
        raise SystemExit(1)


def build_deb(work, target, name, version, arch, files, hooks):
    root = work / "root"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}-1\nArchitecture: {'arm64' if arch in ('aarch64', 'arm64') else 'amd64'}\n"
        "Maintainer: fleet lab <lab@example.invalid>\nSection: misc\nPriority: optional\n"
        f"Description: stand-in for {name} in the fleet lab\n"
    )
    for hook, text in hooks.items():
        (root / "DEBIAN" / hook).write_text(text)
        (root / "DEBIAN" / hook).chmod(0o755)
    lay(root, files)
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(target)])


def build_rpm(work, target, name, version, arch, files, hooks):
    root = work / "root"
    root.mkdir()
    lay(root, files)
    machine = "aarch64" if arch in ("aarch64", "arm64") else "x86_64"
    listed = "\n".join(f"%attr({mode:o},root,root) {path}" for path, (_, mode) in sorted(files.items()))
    hooks = {hook: text.replace("%", "%%") for hook, text in hooks.items()}
    (work / "package.spec").write_text(
        f"Name: {name}\nVersion: {version}\nRelease: 1\nSummary: stand-in for {name} in the fleet lab\n"
        f"License: Apache-2.0\nAutoReqProv: no\n%description\nStand-in.\n%install\ncp -a {root}/. %{{buildroot}}/\n"
        f"%post\n{hooks['post']}%preun\n{hooks['preun']}%files\n{listed}\n"
    )
    defines = {
        "_topdir": str(work / "rpm"), "_rpmdir": str(work / "out"), "_build_id_links": "none", "_buildhost": "lab",
        "use_source_date_epoch_as_buildtime": "1", "clamp_mtime_to_source_date_epoch": "1",
        "source_date_epoch_from_changelog": "0", "debug_package": "%{nil}", "__os_install_post": "%{nil}",
        "_binary_payload": "w6.gzdio", "_unitdir": "/usr/lib/systemd/system", "_dbpath": str(work / "db"),
    }  # fmt: skip
    argv = ["rpmbuild", "-bb", "--target", f"{machine}-linux", "--buildroot", str(work / "buildroot")]
    for key, value in defines.items():
        argv += ["--define", f"{key} {value}"]
    run([*argv, str(work / "package.spec")])
    made = next((work / "out").rglob("*.rpm"))
    shutil.copyfile(made, target)


def main():
    if os.environ.get("FLEET_LAB_BUILD") != "1":
        sys.stderr.write("this program builds packages for a fleet lab: set FLEET_LAB_BUILD=1\n")
        return 97
    out, order = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())
    sys.path.insert(0, order["labnode"])
    import labnode

    answer = {}
    for stack in order["stacks"]:
        kind, arch, word = stack["kind"], stack.get("arch", "x86_64"), flavour(stack)
        names = []
        for component in ORDER:
            version = stack["components"].get(component)
            if not version:
                continue
            name = package_name(component, version, kind, word)
            file = file_name(name, version, kind, arch)
            names.append(file)
            if (out / file).is_file():
                continue
            with tempfile.TemporaryDirectory(dir=out) as folder:
                work, part = Path(folder), Path(folder) / file
                files = content(component, version, kind, arch, word, labnode, order["module_source"])
                hooks = scripts(kind, component, version, word)
                (build_deb if kind == "deb" else build_rpm)(work, part, name, version, arch, files, hooks)
                part.replace(out / file)
        answer[stack["name"]] = names
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
