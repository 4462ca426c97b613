"""What an emulated vendor program may do to the node it runs in: state, effects, faults, modules, holders.

Runs under the node's own python3 (3.11, standard library); emulators `sys.path.insert(0, "/opt/fleet-lab")` first.
The state is one JSON document under a lock, the modules are really built by dkms, the log of effects proves that
nothing was done twice. The host imports the same file to read and change a node's state (`Files(state, log)`).

Times are seconds since 1970 as floats, versions are text, module names use underscores. Functions that act on modules
answer `(rc, text)`: exit status and the sentence the real tool would print on stderr ("" when rc is 0).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path("/opt/fleet-lab")
MARKER = Path("/etc/fleet-lab")
REFUSED = 97  # exit status of an emulator outside a lab node


class Files:
    """Where a node keeps its state and log: fixed places inside the node, folders of the lab outside."""

    def __init__(self, state: Path = Path("/var/lib/fleet-lab"), log: Path = Path("/var/log/fleet-lab")) -> None:
        self.state = state / "state.json"
        self.lock = state / "lock"
        self.effects = log / "effects.jsonl"
        self.kernel_log = log / "dmesg"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        with self.lock.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def read(self) -> dict[str, Any]:
        """The state; {} when there is none yet."""
        with contextlib.suppress(FileNotFoundError):
            loaded: dict[str, Any] = json.loads(self.state.read_text())
            return loaded
        return {}

    def write(self, document: Mapping[str, Any]) -> None:
        self.state.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.state.with_suffix(".new")
        fresh.write_text(json.dumps(document, indent=1, sort_keys=True))
        fresh.replace(self.state)

    def update(self, change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Change the state under the lock. `change` alters the dict it gets; returns the new state."""
        with self.locked():
            document = self.read()
            change(document)
            self.write(document)
            return document

    def effect(self, kind: str, **detail: Any) -> None:
        """Append one line: something was really done.

        Beside the time of day it has `ns`, of the clock since the machine's boot, which all nodes of a host share and
        nobody sets; and, of the run of fleet-run that did it, `run`, `fence` and `begun` (see `fenced`).
        """
        self.effects.parent.mkdir(parents=True, exist_ok=True)
        moment = {"at": round(time.time(), 3), "ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME)}
        line = json.dumps({**moment, "kind": kind, **fenced(os.getpid()), **detail}, sort_keys=True)
        with self.effects.open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            handle.write(line + "\n")


def fenced(pid: int, proc: Path = Path("/proc")) -> dict[str, Any]:
    """The run of fleet-run that a process works for, by the argv of its ancestors: `run` is its name, `fence` the
    number it was begun under, `begun` when, in nanoseconds since the machine's boot (rounded down to a clock tick).

    {} when there is none: a later controller's number never gets here, only what the run itself was given.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            words = (proc / str(pid) / "cmdline").read_text().split("\0")
            fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
            if "--child" in words and words[words.index("--child") - 1].endswith("fleet-run"):
                name, number = words[words.index("--child") + 1 :][:2]
                begun = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
                return {"run": name, "fence": int(number), "begun": begun}
            pid = int(fields[1])
    return {}


NODE = Files()


def refuse_outside_lab() -> None:
    """Exit 97 unless this is a lab node. Every emulator calls it first."""
    if not MARKER.is_file():
        sys.stderr.write("this program emulates vendor software and runs in a fleet lab node only\n")
        sys.exit(REFUSED)


def state() -> dict[str, Any]:
    """The node's state (keys: fleet/lab/README.md). A copy: changes go through `update`."""
    return NODE.read()


def update(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """Change the state atomically under a lock; `change` alters the dict in place. Returns the new state."""
    return NODE.update(change)


def effect(kind: str, **detail: Any) -> None:
    """Record that something was really done, e.g. `effect("install", component="driver", version="580.95.05")`."""
    NODE.effect(kind, **detail)


def fault(name: str) -> bool:
    """Is this fault switched on (as `name` or `name=value`)?"""
    return fault_value(name) is not None


def fault_value(name: str) -> str | None:
    """What stands after `=` in `fleet lab fault NODE name=value`; "" for a plain fault; None when it is off."""
    for entry in state().get("faults", []):
        left, _, right = str(entry).partition("=")
        if left == name:
            return right
    return None


def kernel() -> str:
    """The running kernel's name, as `uname -r` says in this node."""
    return str(state().get("kernel", ""))


def kernel_log(text: str) -> None:
    """One line into the kernel's log: `dmesg`, and the log file of this kind of system."""
    since = time.time() - float(state().get("booted_at", time.time()))
    NODE.kernel_log.parent.mkdir(parents=True, exist_ok=True)
    with NODE.kernel_log.open("a") as handle:
        handle.write(f"[{since:12.6f}] {text}\n")
    file = Path("/var/log/messages" if state().get("package_kind") == "rpm" else "/var/log/kern.log")
    with file.open("a") as handle:
        handle.write(f"{time.strftime('%b %e %H:%M:%S')} {os.uname().nodename} kernel: [{since:12.6f}] {text}\n")


def install_facts(vendor: str = "") -> dict[str, Any]:
    """The vendor folder's install.json; of this node's vendor when none is named."""
    file = HERE / (vendor or str(state().get("vendor", ""))) / "install.json"
    if file.is_file():
        document: dict[str, Any] = json.loads(file.read_text())
        return document
    return {}


# --- the tiny module --------------------------------------------------------------------------------------------------


def module_source(
    package: str,
    version: str,
    modules: Sequence[str] = (),
    licence: str = "Dual MIT/GPL",
    templates: Path | None = None,
) -> dict[str, str]:
    """File name -> text of a dkms source tree that builds `modules` (default: `package`) with that MODULE_VERSION.

    Pure but for reading the templates (beside this file in `module/`); package builders on the host use it too.
    """
    folder = templates or Path(__file__).parent / "module"
    names = [name.replace("-", "_") for name in (modules or (package,))]
    out = {f"{name}_lab.c": (folder / "module.c").read_text() for name in names}
    rows = []
    for number, name in enumerate(names):
        rows += [
            f'BUILT_MODULE_NAME[{number}]="{name}"',
            f'DEST_MODULE_LOCATION[{number}]="/updates/dkms"',
        ]
    values = {
        "@PACKAGE@": package,
        "@VERSION@": version,
        "@MODULES@": " ".join(names),
        "@LICENCE@": licence,
        "@BUILT@": "\n".join(rows),
    }
    for template, name in (("Makefile.in", "Makefile"), ("dkms.conf.in", "dkms.conf")):
        text = (folder / template).read_text()
        for mark, value in values.items():
            text = text.replace(mark, value)
        out[name] = text
    return out


def write_module_source(directory: str | Path, package: str, version: str, modules: Sequence[str] = ()) -> Path:
    """Lay the source tree of `module_source` down in `directory`; returns it."""
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    for name, text in module_source(package, version, modules).items():
        (target / name).write_text(text)
    return target


def _run(argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


def dkms(name: str, version: str, source_dir: str | Path, for_kernel: str = "") -> tuple[int, str]:
    """Really add, build and install the source tree by dkms for the running kernel; (exit status, dkms's own log).

    Safe to repeat: an already installed version is left alone (rc 0). Without headers dkms's own error comes back.
    """
    target_kernel = for_kernel or kernel()
    tree = Path("/usr/src") / f"{name}-{version}"
    if Path(source_dir).resolve() != tree:
        shutil.copytree(source_dir, tree, dirs_exist_ok=True)
        tree.chmod(0o755)  # a temporary folder's 0700 would hide it from dkms status of plain users
    log = ""
    for verb in ("add", "build", "install"):
        if verb == "add" and (Path("/var/lib/dkms") / name / version / "source").exists():
            continue
        argv = ["dkms", verb, "-m", name, "-v", version]
        rc, text = _run(argv if verb == "add" else [*argv, "-k", target_kernel])
        log += text
        if rc == 3 and "already" in text:
            continue
        if rc:
            return rc, log
    effect("dkms", module=name, version=version, kernel=target_kernel)
    return 0, log


def dkms_remove(name: str, version: str) -> tuple[int, str]:
    """Remove that version from dkms, for all kernels, and its source tree. rc 0 when it was not there."""
    rc, log = 0, ""
    if (Path("/var/lib/dkms") / name / version).exists():
        rc, log = _run(["dkms", "remove", "-m", name, "-v", version, "--all"])
    shutil.rmtree(Path("/usr/src") / f"{name}-{version}", ignore_errors=True)
    return rc, log


def _field(file: Path, name: str) -> str:
    return _run(["/sbin/modinfo", "-F", name, str(file)])[1].strip()


def module_files(name: str, for_kernel: str = "") -> list[Path]:
    """The .ko files of that module for the kernel, the one that modprobe takes first (updates before the rest)."""
    base = Path("/lib/modules") / (for_kernel or kernel())
    wanted = name.replace("-", "_")
    found = [
        path
        for path in (base.rglob("*.ko*") if base.is_dir() else ())
        if path.name.split(".ko")[0].replace("-", "_") == wanted and "build" not in path.parts
    ]
    return sorted(found, key=lambda path: (path.relative_to(base).parts[0] != "updates", str(path)))


def module_built(name: str, version: str, kernel: str) -> bool:
    """Is there a .ko of that module and version for that kernel, with that kernel's vermagic?"""
    return any(
        _field(file, "version") == version and _field(file, "vermagic").split(" ")[0] == kernel
        for file in module_files(name, kernel)
    )


def loaded(name: str) -> str | None:
    """The version of the module now in the kernel ("" = it has none); None when it is not loaded."""
    version = state().get("modules", {}).get(name.replace("-", "_"))
    return None if version is None else str(version)


def _row(name: str) -> dict[str, Any]:
    row: dict[str, Any] = install_facts().get("modules", {}).get(name, {})
    return row


def load_module(name: str) -> tuple[int, str]:
    """`modprobe name`: (rc, its stderr). Loads what was built; refuses a foreign vermagic as the kernel does."""
    name = name.replace("-", "_")
    if loaded(name) is not None:
        return 0, ""
    files = module_files(name)
    if not files:
        return 1, f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{kernel()}"
    for needed in [n for n in _field(files[0], "depends").split(",") if n] + list(_row(name).get("depends", [])):
        rc, text = load_module(needed)
        if rc:
            return rc, text
    why = insert(name, files[0])
    return (1, f"modprobe: ERROR: could not insert '{name}': {why}") if why else (0, "")


def insert(name: str, file: Path) -> str:
    """Put one .ko into the emulated kernel; "" or the kernel's errno text (the kernel's log says more)."""
    if loaded(name) is not None:
        return "File exists"
    magic = _field(file, "vermagic")
    if magic.split(" ")[0] != kernel():
        should = " ".join([kernel(), *magic.split(" ")[1:]])
        kernel_log(f"{name}: version magic '{magic} ' should be '{should} '")
        return "Exec format error"
    if fault("secure-boot"):
        kernel_log(f"Loading of module with unavailable key is rejected: {name}")
        return "Key was rejected by service"
    version = _field(file, "version")
    if not str(state().get("secure_boot", "")):
        kernel_log(f"{name}: loading out-of-tree module taints kernel.")
    update(lambda s: s.setdefault("modules", {}).update({name: version}))
    effect("load", module=name, version=version)
    publish_modules()
    _hook("load", name, version)
    return ""


def unload_module(name: str) -> tuple[int, str]:
    """`rmmod name`: (rc, its stderr). Refused while another module or a process uses it."""
    name = name.replace("-", "_")
    version = loaded(name)
    if version is None:
        return 1, f"rmmod: ERROR: Module {name} is not currently loaded"
    above = users(name)
    if above:
        return 1, f"rmmod: ERROR: Module {name} is in use by: {' '.join(above)}"
    if holders(name):
        return 1, f"rmmod: ERROR: Module {name} is in use"
    update(lambda s: s.get("modules", {}).pop(name, None))
    effect("unload", module=name, version=version)
    publish_modules()
    _hook("unload", name, version)
    return 0, ""


def users(name: str) -> list[str]:
    """Loaded modules that sit on top of this one (install.json: `modules.<name>.depends`)."""
    rows: dict[str, Any] = install_facts().get("modules", {})
    now = state().get("modules", {})
    return sorted(other for other, row in rows.items() if other in now and name in row.get("depends", []))


def holders(module: str) -> list[dict[str, Any]]:
    """The living processes that hold device nodes of this module: {pid, command, user, module, device}.

    They are real processes of the node with the device file really open, so that `fuser` and /proc/*/fd agree.
    """
    return [
        dict(entry)
        for entry in state().get("holders", [])
        if entry.get("module") == module and Path(f"/proc/{entry.get('pid')}").exists()
    ]


def hold(module: str, device: str, command: str = "python3", user: str = "root") -> int:
    """Start a process called `command` that keeps `device` open until it is killed; returns its pid."""
    rename = "ctypes.CDLL(None).prctl(15, sys.argv[2].encode(), 0, 0, 0)"  # PR_SET_NAME
    program = f"import ctypes, sys, signal; f = open(sys.argv[1]); {rename}; signal.pause()"
    child = subprocess.Popen(
        [command, "-c", program, device, command],
        executable="/usr/bin/python3",
        user=user,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    entry = {"pid": child.pid, "command": command, "user": user, "module": module, "device": device}
    update(lambda s: s.setdefault("holders", []).append(entry))
    return child.pid


def _hook(verb: str, name: str, version: str) -> None:
    """Tell the vendor folder's module.py, where there is one: it writes /proc/driver and the like."""
    program = HERE / str(state().get("vendor", "")) / "module.py"
    if program.is_file():
        subprocess.run([sys.executable, str(program), verb, name, version], check=False, stdin=subprocess.DEVNULL)


def publish_modules(sys_root: Path = Path("/sys")) -> None:
    """Make /sys/module, the PCI driver links and the device nodes say what the state says."""
    now: dict[str, str] = state().get("modules", {})
    rows: dict[str, Any] = install_facts().get("modules", {})
    base = sys_root / "module"
    base.mkdir(parents=True, exist_ok=True)
    for folder in base.iterdir():
        if folder.name not in now:
            shutil.rmtree(folder)
    for name, version in now.items():
        folder = base / name
        (folder / "holders").mkdir(parents=True, exist_ok=True)
        if version:
            (folder / "version").write_text(version + "\n")
        (folder / "initstate").write_text("live\n")
        (folder / "taint").write_text("OE\n")
        above = users(name)
        (folder / "refcnt").write_text(f"{len(above) + len(holders(name))}\n")
        for link in (folder / "holders").iterdir():
            if link.name not in above:
                link.unlink()
        for other in above:
            with contextlib.suppress(FileExistsError):
                (folder / "holders" / other).symlink_to(f"../../{other}")
    _publish_pci(sys_root, now, rows)
    for name, row in rows.items():
        for device in _devices(row):
            if name in now and not device.exists():
                device.parent.mkdir(parents=True, exist_ok=True)
                device.touch(mode=0o666)
                device.chmod(0o666)
            elif name not in now:
                device.unlink(missing_ok=True)


def _devices(row: Mapping[str, Any]) -> list[Path]:
    out = []
    for pattern in row.get("devices", []):
        if "{index}" in pattern:
            out += [Path(pattern.replace("{index}", str(card["index"]))) for card in state().get("cards", [])]
        else:
            out.append(Path(pattern))
    return out


def _publish_pci(sys_root: Path, now: Mapping[str, str], rows: Mapping[str, Any]) -> None:
    binding = next((name for name in rows if rows[name].get("binds")), next(iter(rows), ""))
    if not binding:
        return
    driver = sys_root / "bus/pci/drivers" / str(rows[binding].get("pci_driver", binding))
    if binding in now:
        driver.mkdir(parents=True, exist_ok=True)
    for card in state().get("cards", []):
        link = sys_root / "bus/pci/devices" / card["bus_id"] / "driver"
        if binding in now and link.parent.is_dir() and not link.is_symlink():
            link.symlink_to(f"../../drivers/{driver.name}")
        elif binding not in now:
            link.unlink(missing_ok=True)
    if binding not in now and driver.is_dir():
        shutil.rmtree(driver)
