"""Builds the emulated Ascend packages on the host: package.py OUTDIR VERSIONS.json, with FLEET_LAB_BUILD=1.

A .run is a shell head, the line `#ARCHIVE` and a zip archive that python3 runs; an rpm carries that same file and calls
it from its scriptlets; an MCU zip holds one .hpm. Same input, same bytes. Prints {"<stack>": [files in order]}.
"""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import npu_text as text  # noqa: E402

CHIP_IDS = {
    "310b": ["19e5:d105", "19e5:d107"],
    "310p": ["19e5:d500"],
    "910": ["19e5:d801"],
    "910b": ["19e5:d802"],
    "910c": ["19e5:d803"],
}
# Firmware -> the HDK whose package holds it, and the drivers it accepts, as its version.info says.
FIRMWARE = {
    "7.1.0.11.220": ("23.0.7", ["23.0.rc3,23.0.rc3.", "23.0.0,23.0.0."]),
    "7.1.0.6.220": ("24.1.rc1", ["23.0.0,23.0.0.", "24.1,24.1."]),
    "7.3.0.1.231": ("24.1.rc2", ["23.0.0,23.0.0.", "24.0,24.0.", "24.1,24.1."]),
    "7.5.0.1.129": ("24.1.rc3", ["23.0.0,23.0.0.", "24.0,24.0.", "24.1,24.1."]),
    "7.5.0.3.220": ("24.1.0", ["23.0.0,23.0.0.", "24.0,24.0.", "24.1,24.1."]),
    "7.5.0.5.220": ("24.1.0.3", ["23.0.0,23.0.0.", "24.0,24.0.", "24.1,24.1."]),
    "7.7.0.1.231": ("25.0.rc1.1", ["24.1,24.1.", "25.0,25.0."]),
    "7.7.0.6.236": ("25.2.0", ["24.1,24.1.", "25.0,25.0.", "25.2,25.2."]),
    "7.7.0.10.220": ("25.2.3", ["24.1,24.1.", "25.0,25.0.", "25.2,25.2."]),
    "7.8.0.2.212": ("25.3.rc1", ["24.1,24.1.", "25.0,25.0.", "25.2,25.2.", "25.3,25.3."]),
    "7.8.0.5.216": ("25.5.0", ["25.0,25.0.", "25.2,25.2.", "25.3,25.3.", "25.5,25.5."]),
    "7.8.0.7.220": ("25.5.2", ["25.0,25.0.", "25.2,25.2.", "25.3,25.3.", "25.5,25.5."]),
}
# Driver -> firmware range and C code of its inner version; the next older row holds for versions between.
DRIVER = (
    ("23.0", "7.0.0,7.1.99", "15"),
    ("24.1.rc1", "7.0.0,7.2.99", "15"),
    ("24.1.rc2", "7.0.0,7.2.99", "18"),
    ("24.1.rc3", "7.0.0,7.5.99", "19"),
    ("25.0", "7.0.0,7.9.99", "21"),
    ("25.3.rc1", "7.0.0,8.9.9", "23"),
    ("25.5", "7.0.0,8.9.9", "25"),
)
CANN = (("8.0.RC3", "19"), ("8.0.0", "20"), ("8.1.RC1", "21"), ("8.2.RC1", "22"), ("8.3.RC1", "23"), ("8.5.0", "25"))
CODES = ["13", "15", "17", "18", "19", "20", "21", "22", "23", "25"]
HEAD = """#!/bin/sh
# {name}: an emulated vendor package for the fleet lab, {component} {version}
# sha256: {sha256}
[ -f /etc/fleet-lab ] || {{ echo "{name} runs in a fleet lab node only" >&2; exit 97; }}
exec python3 -B "$0" "$@"
exit 97
#ARCHIVE
"""


def key(version):
    out = []
    for part in version.lower().replace("rc", ".rc.").split("."):
        if part == "rc":
            out.append((0, 0))
        elif part.isdigit():
            out.append((2, int(part)))
    return [*out, (1, 0)]


def row_of(table, version):
    """The last row that does not lie above the version, else the first."""
    below = [row for row in table if key(row[0])[:-1] <= key(version)]
    return below[-1] if below else table[0]


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name, (2024, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return buffer.getvalue()


def run_file(name, facts, source):
    """The bytes of a .run."""
    files = {
        "__main__.py": (HERE / "installer.py").read_bytes(),
        "package.json": json.dumps(facts, sort_keys=True).encode(),
    }
    files.update({f"source/{path}": content.encode() for path, content in source.items()})
    archive = zipped(files)
    head = HEAD.format(
        name=name, component=facts["component"], version=facts["version"], sha256=hashlib.sha256(archive).hexdigest()
    )
    return head.encode() + archive


def driver_facts(version, chip):
    _, accepts, code = row_of(DRIVER, version)
    older = [c for c in CODES if int(c) <= int(code)][-5:]
    info = text.driver_version_info(
        version, f"V100R001C{code}SPC001B220", [f"V100R001C{c}" for c in older], [accepts], "7.35.23"
    )
    return {"accepts": [accepts], "version_info": info, "chip": chip}


def firmware_facts(version, chip, driver):
    hdk, accepts = FIRMWARE.get(version, (driver or version, []))
    if not accepts:
        family = ".".join((driver or "0.0").split(".")[:2])
        accepts = [f"{family},{family}."]
    return {"accepts": accepts, "version_info": text.firmware_version_info(version, hdk, accepts), "chip": chip}


def toolkit_facts(version, arch):
    code = row_of(CANN, version)[1]
    older = [c for c in CODES if int(c) <= int(code)][-6:]
    info = (
        f"package_name=Ascend-cann-toolkit\nversion={version}\ninnerversion=V100R001C{code}SPC001B238\n"
        f"compatible_version={text.brackets([f'V100R001C{c}' for c in older])}\narch={arch}\nos=linux\npath=@PATH@\n"
    )
    return {"version_info": info, "chip": ""}


def chip_of(stack):
    pci = str(stack.get("pci_id", "")).lower()
    for chip, ids in CHIP_IDS.items():
        if pci in ids:
            return chip
    raise SystemExit(f"no Ascend chip has the PCI id {pci!r}")


RPM_SPEC = """Name: {rpm_name}
Version: {version}
Release: 1
Summary: Emulated Ascend {component} for the fleet lab
License: Apache-2.0
AutoReqProv: no
%define __os_install_post %{{nil}}
%define debug_package %{{nil}}
%define _build_id_links none
%description
Emulated Ascend {component} for the fleet lab.
%install
mkdir -p %{{buildroot}}/usr/share/ascend-lab
cp {run} %{{buildroot}}/usr/share/ascend-lab/{component}.run
%pre
t=$(mktemp) || exit 1
base64 -d > "$t" <<'PACKAGE'
{encoded}
PACKAGE
python3 -B "$t" --rpm-check --full --quiet --install-for-all; rc=$?
rm -f "$t"
exit $rc
%post
mode=--full
[ "$1" -gt 1 ] && mode=--upgrade
python3 -B /usr/share/ascend-lab/{component}.run --rpm $mode --quiet --install-for-all; rc=$?
[ $rc -eq 2 ] && rc=0
exit $rc
%preun
[ "$1" -eq 0 ] || exit 0
python3 -B /usr/share/ascend-lab/{component}.run --uninstall --quiet; rc=$?
[ $rc -eq 2 ] && rc=0
exit $rc
%files
%attr(0755, root, root) /usr/share/ascend-lab/{component}.run
"""


def rpm_file(target, facts, content, arch):
    """Build the rpm around a .run and put it at `target`."""
    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        run = top / "package.run"
        run.write_bytes(content)
        spec = top / "package.spec"
        family = {"910b": "910B", "910c": "910C", "310p": "310P", "310b": "310B"}.get(facts["chip"], facts["chip"])
        spec.write_text(
            RPM_SPEC.format(
                rpm_name=f"Ascend{family}-{facts['component']}",
                version=facts["version"],
                component=facts["component"],
                run=run,
                encoded=base64.encodebytes(content).decode().strip(),
            )
        )
        defines = {
            "_topdir": str(top / "rpm"),
            "_binary_payload": "w6.gzdio",
            "_buildhost": "fleet-lab",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
            "_tmppath": str(top),
        }
        argv = ["rpmbuild", "-bb", "--quiet", "--target", arch]
        for name, value in defines.items():
            argv += ["--define", f"{name} {value}"]
        done = subprocess.run(
            [*argv, str(spec)],
            env={**os.environ, "SOURCE_DATE_EPOCH": "1704067200", "HOME": scratch},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        built = list((top / "rpm" / "RPMS").rglob("*.rpm"))
        if done.returncode or not built:
            raise SystemExit(f"rpmbuild of {target.name} failed:\n{done.stdout[-2000:]}")
        shutil.move(built[0], target)


def names(stack):
    """component -> file name, in the order of a first installation."""
    chip, arch, kind = chip_of(stack), stack["arch"], stack["kind"]
    dashed = {"x86_64": "x86-64"}.get(arch, arch)
    wanted = stack["components"]
    out = {}
    for part in ("driver", "firmware"):
        version = wanted.get(part)
        if not version:
            continue
        stem = f"Ascend-hdk-{chip}-npu-{part}"
        if kind == "rpm":
            out[part] = f"{stem}-{version}-1.{arch if part == 'driver' else 'noarch'}.rpm"
        else:
            out[part] = f"{stem}_{version}_linux-{dashed}.run" if part == "driver" else f"{stem}_{version}.run"
    if wanted.get("mcu"):
        out["mcu"] = f"Ascend-hdk-{chip}-mcu_{wanted['mcu']}.zip"
    if wanted.get("toolkit"):
        out["toolkit"] = f"Ascend-cann-toolkit_{wanted['toolkit']}_linux-{arch}.run"
    return out


def build_one(target, part, stack, labnode, templates):
    version = stack["components"][part]
    chip = chip_of(stack)
    if part == "mcu":
        body = json.dumps({"mcu": version}).encode() + b"\n" + b"\0" * 4096
        files = {f"Ascend-hdk-{chip}-mcu_{version}.hpm": body, "version.xml": f"<mcu>{version}</mcu>\n".encode()}
        target.write_bytes(zipped(files))
        return
    source = {}
    if part == "driver":
        facts = driver_facts(version, chip)
        source = labnode.module_source(
            "davinci_ascend", version, ("drv_seclib_host", "drv_pcie_host"), templates=templates
        )
    elif part == "firmware":
        facts = firmware_facts(version, chip, stack["components"].get("driver"))
    else:
        facts = toolkit_facts(version, stack["arch"])
    facts.update(component=part, version=version, arch=stack["arch"], pci_ids=CHIP_IDS.get(chip, []))
    content = run_file(target.name, facts, source)
    if target.suffix == ".rpm":
        rpm_file(target, facts, content, stack["arch"] if part == "driver" else "noarch")
    else:
        target.write_bytes(content)
        target.chmod(0o755)


def main(out, order):
    if os.environ.get("FLEET_LAB_BUILD") != "1":
        raise SystemExit("this builds emulated packages for a fleet lab: set FLEET_LAB_BUILD=1")
    document = json.loads(Path(order).read_text())
    sys.path.insert(0, document["labnode"])
    import labnode

    folder = Path(out)
    answer = {}
    for stack in document["stacks"]:
        if stack.get("vendor", "ascend") != "ascend":
            continue
        files = names(stack)
        for part, name in files.items():
            if not (folder / name).exists():
                building = folder / f".{name}"
                building = building.with_name(f"{building.stem}.part{building.suffix}")
                build_one(building, part, stack, labnode, Path(document["module_source"]))
                building.replace(folder / name)
        answer[stack["name"]] = list(files.values())
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
