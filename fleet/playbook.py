"""Playbooks: one phase on a chunk of nodes, through ansible-runner, with one outcome for each node.

The only module that knows Ansible. Nothing of a run is kept on disk: the private data folder is removed, events are
turned into outcomes as they come. Host keys are checked against those of the inventory. The process named
`ansible-playbook` that runner starts is a wrapper of ours that asks the kernel to end it with this process, so that no
playbook goes on without its controller; what it began on a node goes on under fleet-run and is found again there.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import playbooks
from fleet.config import Settings
from fleet.core.errors import FleetError
from fleet.core.model import Json, Node, VersionChange
from fleet.process import start_of
from fleet.remote import Jump

_FAILURE = re.compile(r"FLEET: ([a-z0-9-]+): (.*)")
_OPTIONAL = ("preflight", "stop", "activate", "verify")  # a role may leave these out
_LINES = 400  # of one node's transcript
_WIDTH = 2000  # characters of one line of it
# The default kex of OpenSSH 9 costs ten times the CPU of this one: see docs/operations.
_SSH_ARGS = "-o ControlMaster=auto -o ControlPersist=30s -o KexAlgorithms=^curve25519-sha256"
_WRAPPER = """\
#!{python}
import ctypes, os, signal, sys
try:
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
except (OSError, AttributeError):
    pass  # no Linux: the playbook may outlive its controller
if os.getppid() != {controller}:
    sys.exit(143)  # the controller ended before the kernel was asked
os.execv({real!r}, [{real!r}] + sys.argv[1:])
"""


@dataclass(frozen=True)
class Staged:
    """A file of the artifact store, for the node. `size` in bytes."""

    name: str
    path: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Play:
    """One phase. `step` is the id under which nodes remember what they ran; `now` is node -> component -> version."""

    vendor: str
    phase: str
    rollout: str
    step: str
    fence: int
    effect: str = "idempotent"
    changes: tuple[VersionChange, ...] = ()
    artifacts: tuple[Staged, ...] = ()
    arguments: Mapping[str, Json] = field(default_factory=dict)
    now: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limit_s: int = 900
    cut: Callable[[], bool] = lambda: False  # asked every few seconds: whether to leave it where it stands


@dataclass(frozen=True)
class Played:
    """What came of a phase on one node. `lost` = the connection broke: how far it came is not known."""

    ok: bool
    message: str = ""
    slug: str = ""
    lost: bool = False
    transcript: str = ""


class Playbook(Protocol):
    """What can run a phase."""

    def has(self, vendor: str, phase: str) -> bool:
        """Whether the vendor's role has anything to do in that phase."""
        ...

    def run(self, play: Play, nodes: Sequence[Node]) -> dict[str, Played]:
        """Run it on those nodes: an outcome for each of them, whatever happens."""
        ...


class _Listener:
    """Turns ansible-runner's events into outcomes. Its `event` returns False: nothing is written to disk."""

    def __init__(self, names: Sequence[str]) -> None:
        self.lines: dict[str, list[str]] = {name: [] for name in names}
        self.failed: dict[str, Played] = {}
        self.seen: set[str] = set()
        self.other: list[str] = []
        self.stats: Mapping[str, Any] | None = None

    def event(self, event: Mapping[str, Any]) -> bool:
        kind = str(event.get("event", ""))
        data = event.get("event_data") or {}
        host = str(data.get("host", ""))
        if kind == "playbook_on_stats":
            self.stats = data
        if host not in self.lines:
            if kind in ("error", "warning", "verbose") and event.get("stdout"):
                self.other.append(str(event["stdout"]))
            return False
        res = data.get("res") or {}
        if kind in ("runner_on_ok", "runner_on_failed", "runner_on_unreachable", "runner_item_on_failed"):
            self._note(host, kind, str(data.get("task", "")), res)
        if kind == "runner_on_ok":
            self.seen.add(host)
        elif kind == "runner_on_unreachable":
            said = str(res.get("msg", "unreachable"))
            slug = "unknown-key" if "Host key verification failed" in said else "unreachable"
            self.failed.setdefault(host, Played(False, _short(said), slug, lost=True))
        elif kind == "runner_on_failed" and not data.get("ignore_errors"):
            self.failed.setdefault(host, _failure(res))
        return False

    def _note(self, host: str, kind: str, task: str, res: Mapping[str, Any]) -> None:
        lines = self.lines[host]
        lines.append(f"{kind.removeprefix('runner_')} {task}" + (" (changed)" if res.get("changed") else ""))
        for key in ("cmd", "rc", "msg", "stdout", "stderr"):
            value = res.get(key)
            if value not in (None, "", []):
                lines += [f"  {key}: {line[:_WIDTH]}" for line in str(value).splitlines()]
        del lines[:-_LINES]


def _file_word(file: str | Path) -> str:
    """A file name as the value of an ssh option: blanks end it unless quoted, and % begins a token."""
    return '"' + str(file).replace("%", "%%") + '"'


def _short(text: str) -> str:
    return " ".join(text.split())[:400]


def _failure(res: Mapping[str, Any]) -> Played:
    texts = [str(res.get(key) or "") for key in ("msg", "stderr", "stdout")]
    texts += [str(item.get("msg", "")) for item in res.get("results") or () if isinstance(item, Mapping)]
    for text in texts:
        found = _FAILURE.search(text)
        if found:
            slug = found[1]
            return Played(False, _short(found[2]), slug, lost=slug in ("ambiguous", "fenced"))
    said = next((text for text in texts if text.strip()), "no message")
    return Played(False, _short(said), "task-failed")


class AnsiblePlaybook:
    """Runs `playbooks/phase.yml` with the roles of this distribution and of `vendor_path`."""

    def __init__(
        self, settings: Settings, host_keys: Callable[[], Mapping[str, str]], cpus: int = os.cpu_count() or 1
    ) -> None:
        self.settings = settings
        self.host_keys = host_keys
        self.cpus = cpus
        self.home = Path(playbooks.__file__).resolve().parent
        own = [str(Path(root).resolve() / "playbooks/roles") for root in settings.vendor_path]
        self.roles = [str(self.home / "roles"), *own]

    def has(self, vendor: str, phase: str) -> bool:
        """True too for a phase that no role may leave out: running it then fails, which is right."""
        if phase in ("stage", "reboot") or phase not in _OPTIONAL:
            return True
        return any((Path(root) / vendor / "tasks" / f"{phase}.yml").is_file() for root in self.roles)

    def run(self, play: Play, nodes: Sequence[Node]) -> dict[str, Played]:
        """One run of the phase. A node without a recorded host key is not contacted."""
        keys = self.host_keys()
        out: dict[str, Played] = {}
        for node in nodes:
            if not keys.get(node.name):
                out[node.name] = Played(False, f"no host key is recorded: fleet node trust {node.name}", "unknown-key")
        known = [node for node in nodes if node.name not in out]
        if not known:
            return out
        base = Path(self.settings.state_dir) / "playbook"
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        sweep_leftovers(base, Path(tempfile.gettempdir()))
        folder = Path(tempfile.mkdtemp(prefix=f"run-{_mark()}-", dir=base))
        control = Path(tempfile.mkdtemp(prefix=f"fleet-cp-{_mark()}-"))  # a socket's path may have 100 characters
        try:
            listener = _Listener([node.name for node in known])
            status = self._execute(play, known, keys, folder, control, listener)
            for node in known:
                out[node.name] = _verdict(node.name, listener, status)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(control, ignore_errors=True)
        return out

    def trusted(self, nodes: Sequence[Node], keys: Mapping[str, str]) -> dict[str, str]:
        """The host keys for ssh, by the name it checks them under: the nodes' own, and the bastion's."""
        found = {node.name: keys[node.name] for node in nodes}
        if self.settings.ssh_bastion:
            jump = Jump.parse(self.settings.ssh_bastion, self.settings.ssh_bastion_key)
            if key := keys.get(jump.host, "") or jump.key:
                found[jump.host] = key
        return found

    def _execute(
        self, play: Play, nodes: Sequence[Node], keys: Mapping[str, str], folder: Path, control: Path,
        listener: _Listener,
    ) -> str:  # fmt: skip
        import ansible_runner

        known_hosts = folder / "known_hosts"
        trusted = self.trusted(nodes, keys)
        known_hosts.write_text("".join(f"{name} {key}\n" for name, key in trusted.items()))
        (folder / "ansible.cfg").touch()  # nobody's own settings
        self._wrapper(folder / "bin")
        extra: dict[str, Any] = {
            "fleet_vendor": play.vendor,
            "fleet_phase": play.phase,
            "fleet_rollout": play.rollout,
            "fleet_step": play.step,
            "fleet_fence": play.fence,
            "fleet_effect": play.effect,
            "fleet_limit": play.limit_s,
            "fleet_changes": [{"component": c.component, "old": c.old, "new": c.new} for c in play.changes],
            "fleet_artifacts": [vars(item).copy() for item in play.artifacts],
            "fleet_arguments": dict(play.arguments),
        }
        result = ansible_runner.run(
            private_data_dir=str(folder),
            playbook=str(self.home / "phase.yml"),
            inventory={"all": {"hosts": {node.name: self._host(node, play, known_hosts) for node in nodes}}},
            extravars=extra,
            envvars=self._env(folder, control),
            forks=max(1, min(len(nodes), 8 * self.cpus)),
            event_handler=listener.event,
            quiet=True,
            timeout=play.limit_s + 120,
            cancel_callback=play.cut,
            rotate_artifacts=1,
        )
        return str(result.status)

    def _host(self, node: Node, play: Play, known_hosts: Path) -> dict[str, Any]:
        s = self.settings
        user = node.user or s.ssh_user
        options = [
            f"UserKnownHostsFile={_file_word(known_hosts)}", "GlobalKnownHostsFile=/dev/null",
            f"HostKeyAlias={node.name}", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "CheckHostIP=no",
            "BatchMode=yes", "ConnectTimeout=15",
        ]  # fmt: skip
        if s.ssh_key:
            options.append("IdentitiesOnly=yes")
        if s.ssh_certificate:
            options.append(f"CertificateFile={_file_word(s.ssh_certificate)}")
        if s.ssh_bastion:
            options.append(f"ProxyCommand={self._jump(known_hosts)}")
        out: dict[str, Any] = {
            "ansible_host": node.address,
            "ansible_port": node.port,
            "ansible_user": user,
            "ansible_ssh_use_tty": False,  # raw tasks: their errors stay apart from their output
            "ansible_ssh_common_args": shlex.join(["-F", "/dev/null", *(w for o in options for w in ("-o", o))]),
            "ansible_python_interpreter": node.labels.get("python", "auto_silent"),
            "fleet_now": dict(play.now.get(node.name, {})),
        }
        if s.ssh_key:
            out["ansible_ssh_private_key_file"] = s.ssh_key
        if user != "root" and s.sudo:
            out.update(ansible_become=True, ansible_become_method="sudo", ansible_become_flags="-H -n")
        return out

    def _jump(self, known_hosts: Path) -> str:
        """The ssh to the bastion; its host key is checked under its host name, like a node's under its name."""
        jump, key = Jump.parse(self.settings.ssh_bastion), self.settings.ssh_key
        argv = ["ssh", "-F", "/dev/null", "-o", f"UserKnownHostsFile={_file_word(known_hosts)}", "-o", "BatchMode=yes"]
        argv += ["-o", "StrictHostKeyChecking=yes", "-o", f"HostKeyAlias={jump.host}", "-p", str(jump.port)]
        argv += [*(("-i", key) if key else ()), "-l", jump.user or self.settings.ssh_user, "-W"]
        # The outer ssh puts host and port in place of %h and %p; any other % is one of the inner ssh's.
        return f"{shlex.join(argv).replace('%', '%%')} '[%h]:%p' {shlex.quote(jump.host)}"

    def _env(self, folder: Path, control: Path) -> dict[str, str]:
        return {
            "PATH": f"{folder / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_ROLES_PATH": ":".join(self.roles),
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_PIPELINING": "True",
            "ANSIBLE_SSH_ARGS": _SSH_ARGS,
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(control),
            "ANSIBLE_SSH_RETRIES": "2",
            "ANSIBLE_TIMEOUT": "20",
            "ANSIBLE_GATHERING": "explicit",
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "ANSIBLE_NOCOLOR": "True",
            "ANSIBLE_DEPRECATION_WARNINGS": "False",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LC_ALL": "C.UTF-8",  # Ansible refuses to run in any other encoding
        }

    def _wrapper(self, folder: Path) -> None:
        """The program named ansible-playbook that runner finds first in PATH."""
        beside = Path(sys.executable).parent / "ansible-playbook"
        real = str(beside) if beside.is_file() else shutil.which("ansible-playbook")
        if real is None:
            raise FleetError("ansible-playbook is not installed", hint="pip install ansible-core", slug="no-ansible")
        folder.mkdir(mode=0o700)
        file = folder / "ansible-playbook"
        text = _WRAPPER.format(python=sys.executable, real=real, controller=os.getpid())
        file.write_text(text, encoding="utf-8")
        file.chmod(stat.S_IRWXU)


def _verdict(name: str, listener: _Listener, status: str) -> Played:
    transcript = "\n".join(listener.lines[name])
    stats = listener.stats
    rescued = stats is not None and not (name in stats.get("failures", {}) or name in stats.get("dark", {}))
    if name in listener.failed and not rescued:
        failed = listener.failed[name]
        return Played(False, failed.message, failed.slug, failed.lost, transcript)
    if status == "timeout":
        return Played(False, "the phase ran past its limit", "timeout", True, transcript)
    if name in listener.seen and status in ("successful", "failed"):  # `failed` = another node of the chunk failed
        return Played(True, transcript=transcript)
    cause = _short(" ".join(listener.other)) or f"ansible ended as {status!r} without a word on this node"
    return Played(False, cause, "playbook-broken", name in listener.seen, transcript)


def _mark() -> str:
    """`<pid>-<start>`: whose folder it is."""
    return f"{os.getpid()}-{start_of(os.getpid())}"


def sweep_leftovers(base: Path, sockets: Path) -> None:
    """Remove the folders of runs whose controller died: `base` holds them, `sockets` the folders of ssh's sockets."""
    for folder in [*base.glob("run-*"), *sockets.glob("fleet-cp-*")]:
        match = re.fullmatch(r"(?:run|fleet-cp)-(\d+)-(\d*)-\w+", folder.name)
        if match and start_of(int(match[1])) != match[2] and folder.is_dir() and folder.owner() == _me():
            shutil.rmtree(folder, ignore_errors=True)


def _me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
