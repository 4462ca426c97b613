"""A small systemctl of a lab node: units are real unit files, starting one really runs its ExecStart.

`oneshot` and `forking` units are active when the program exits 0; other kinds while their process lives. What was
started stands in state["units"]; enabled units are started again at boot by the node's init.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import labnode
else:
    import labnode

FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
ALWAYS = {"ssh.service", "sshd.service", "systemd-journald.service", "dbus.service"}
START_LIMIT_S = 90


def full(name: str) -> str:
    return name if "." in name else f"{name}.service"


def unit_file(name: str) -> Path | None:
    for folder in FOLDERS:
        path = Path(folder) / name
        if path.is_file():
            return path
    return None


def keys(path: Path) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        name, mark, value = line.partition("=")
        if mark and not line.startswith(("#", ";")):
            out.setdefault(name.strip(), []).append(value.strip())
    return out


def row(name: str) -> dict[str, Any]:
    found: dict[str, Any] = labnode.state().get("units", {}).get(name, {})
    return found


def put(name: str, **values: Any) -> None:
    labnode.update(lambda s: s.setdefault("units", {}).setdefault(name, {}).update(values))


def active(name: str) -> str:
    """active, inactive or failed: a unit whose process has died is failed."""
    if name in ALWAYS:
        return "active"
    now = row(name)
    if now.get("active") == "active" and now.get("pid") and not Path(f"/proc/{now['pid']}").exists():
        return "failed"
    return str(now.get("active", "inactive"))


def _execute(command: str) -> list[str]:
    return shlex.split(command.lstrip("-@:+!"))


def start(name: str) -> int:
    path = unit_file(name)
    if name in ALWAYS:
        return 0
    if path is None:
        sys.stderr.write(f"Failed to start {name}: Unit {name} not found.\n")
        return 5
    if active(name) == "active":
        return 0
    unit = keys(path)
    kind = unit.get("Type", ["simple"])[-1]
    for command in [
        *unit.get("ExecStartPre", []),
        *(unit.get("ExecStart", []) if kind in {"oneshot", "forking"} else []),
    ]:
        try:
            code = subprocess.run(
                _execute(command), stdin=subprocess.DEVNULL, stdout=_log(name), stderr=subprocess.STDOUT,
                timeout=START_LIMIT_S, check=False,
            ).returncode  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            code = 203
        if code and not command.startswith("-"):
            return _failed(name)
    pid = 0
    if kind not in {"oneshot", "forking"}:
        try:
            child = subprocess.Popen(
                _execute(unit.get("ExecStart", ["true"])[-1]), stdin=subprocess.DEVNULL, stdout=_log(name),
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError:
            return _failed(name)
        with contextlib.suppress(subprocess.TimeoutExpired):
            if child.wait(0.3) or kind == "notify":
                return _failed(name)
        pid = child.pid if child.poll() is None else 0
        if not pid:
            put(name, active="inactive", pid=0)
            return 0
    stays = kind != "oneshot" or unit.get("RemainAfterExit", ["no"])[-1].lower() in {"yes", "true", "1"}
    put(name, active="active" if stays else "inactive", pid=pid, since=time.time())
    labnode.effect("unit-start", unit=name)
    return 0


def _log(name: str) -> int:
    folder = Path("/var/log/fleet-lab/units")
    folder.mkdir(parents=True, exist_ok=True)
    return os.open(folder / f"{name}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)


def _failed(name: str) -> int:
    put(name, active="failed", pid=0)
    sys.stderr.write(
        f"Job for {name} failed because the control process exited with error code.\n"
        f'See "systemctl status {name}" and "journalctl -xeu {name}" for details.\n'
    )
    return 1


def stop(name: str) -> int:
    path = unit_file(name)
    if path is None and not row(name):
        if name in ALWAYS:
            return 0
        sys.stderr.write(f"Failed to stop {name}: Unit {name} not loaded.\n")
        return 5
    pid = int(row(name).get("pid") or 0)
    for command in keys(path).get("ExecStop", []) if path else []:
        subprocess.run(_execute(command), stdin=subprocess.DEVNULL, stdout=_log(name), check=False)
    if pid:
        for number, tries in ((signal.SIGTERM, 40), (signal.SIGKILL, 20)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
            for _ in range(tries):
                if not Path(f"/proc/{pid}").exists():
                    break
                time.sleep(0.05)
    put(name, active="inactive", pid=0)
    labnode.effect("unit-stop", unit=name)
    return 0


def enable(name: str, on: bool) -> int:
    path = unit_file(name)
    if path is None:
        verb = "enable" if on else "disable"
        sys.stderr.write(f"Failed to {verb} unit: Unit file {name} does not exist.\n")
        return 1
    link = Path("/etc/systemd/system/multi-user.target.wants") / name
    if on and not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
        sys.stderr.write(f"Created symlink {link} → {path}.\n")
    elif not on and link.is_symlink():
        link.unlink()
        sys.stderr.write(f"Removed {link}.\n")
    put(name, enabled=on)
    return 0


def enabled(name: str) -> bool:
    return (Path("/etc/systemd/system/multi-user.target.wants") / name).is_symlink()


def status(name: str) -> int:
    path = unit_file(name)
    if path is None and name not in ALWAYS:
        sys.stderr.write(f"Unit {name} could not be found.\n")
        return 4
    now = active(name)
    text = keys(path).get("Description", [name])[-1] if path else name
    detail = {"active": "active (running)", "inactive": "inactive (dead)", "failed": "failed (Result: exit-code)"}[now]
    print(f"● {name} - {text}")
    print(f"     Loaded: loaded ({path}; {'enabled' if enabled(name) else 'disabled'}; preset: enabled)")
    print(f"     Active: {detail}")
    if row(name).get("pid"):
        print(f"   Main PID: {row(name)['pid']}")
    return 0 if now == "active" else 3


def show(name: str, arguments: list[str]) -> int:
    wanted: list[str] = []
    for flag, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if flag in {"-p", "--property"}:
            wanted += value.split(",")
        elif flag.startswith("--property="):
            wanted += flag.partition("=")[2].split(",")
    now = active(name)
    values = {
        "Id": name,
        "LoadState": "loaded" if unit_file(name) or name in ALWAYS else "not-found",
        "ActiveState": now,
        "SubState": {"active": "running", "inactive": "dead", "failed": "failed"}[now],
        "UnitFileState": "enabled" if enabled(name) else "disabled",
        "MainPID": str(row(name).get("pid") or 0),
    }
    for key in wanted or list(values):
        if key in values:
            print(values[key] if "--value" in arguments else f"{key}={values[key]}")
    return 0


def listing() -> int:
    names = sorted({*labnode.state().get("units", {}), "ssh.service"})
    for name in names:
        if active(name) != "inactive":
            print(f"{name:<40} loaded {active(name):<8} {'running' if active(name) == 'active' else 'failed'}")
    return 0


def one(verb: str, name: str, arguments: list[str]) -> int:
    now = "--now" in arguments
    if verb == "start":
        return start(name)
    if verb == "stop":
        return stop(name)
    if verb in {"restart", "reload-or-restart", "try-restart", "reload"}:
        if verb == "try-restart" and active(name) != "active":
            return 0
        if name in ALWAYS:
            os.kill(1, signal.SIGUSR2)
            return 0
        if active(name) == "active":
            stop(name)
        return start(name)
    if verb == "enable":
        return enable(name, True) or (start(name) if now else 0)
    if verb == "disable":
        return enable(name, False) or (stop(name) if now else 0)
    if verb in {"mask", "unmask"}:
        return 0
    if verb == "is-active":
        if "-q" not in arguments and "--quiet" not in arguments:
            print(active(name))
        return 0 if active(name) == "active" else 3
    if verb == "is-failed":
        print(active(name))
        return 0 if active(name) == "failed" else 1
    if verb == "is-enabled":
        if unit_file(name) is None and name not in ALWAYS:
            sys.stderr.write(f"Failed to get unit file state for {name}: No such file or directory\n")
            return 1
        on = enabled(name) or name in ALWAYS
        print("enabled" if on else "disabled")
        return 0 if on else 1
    if verb == "status":
        return status(name)
    if verb == "show":
        return show(name, arguments)
    if verb == "cat":
        path = unit_file(name)
        if path is None:
            sys.stderr.write(f"No files found for {name}.\n")
            return 1
        print(f"# {path}\n{path.read_text()}", end="")
        return 0
    sys.stderr.write(f"Unknown command verb {verb}.\n")
    return 1


def main() -> int:
    labnode.refuse_outside_lab()
    arguments = sys.argv[1:]
    valued = {"-p", "--property", "-t", "--type", "-n", "--lines"}
    words = [a for i, a in enumerate(arguments) if not a.startswith("-") and not (i and arguments[i - 1] in valued)]
    verb, names = (words[0], [full(n) for n in words[1:]]) if words else ("list-units", [])
    if verb in {"daemon-reload", "reset-failed", "daemon-reexec", "preset", "set-default"}:
        return 0
    if verb in {"reboot", "poweroff", "halt"}:
        os.execv(f"/sbin/{verb}", [f"/sbin/{verb}"])
    if verb == "is-system-running":
        bad = [name for name in labnode.state().get("units", {}) if active(name) == "failed"]
        print("degraded" if bad else "running")
        return 1 if bad else 0
    if verb in {"list-units", "list-unit-files"}:
        return listing()
    code = 0
    for name in names:
        code = one(verb, name, arguments) or code
    return code


if __name__ == "__main__":
    sys.exit(main())
