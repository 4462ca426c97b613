"""Settings: flags > FLEET_* variables > files > defaults, as one frozen dataclass.

Files are `/etc/fleet/fleet.toml`, then `$XDG_CONFIG_HOME/fleet/fleet.toml` (default `~/.config`), then `FLEET_CONFIG`;
a later one wins. A variable is `FLEET_` + the setting's name in capitals. Secrets are never settings: a setting may
name a file that holds one.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from fleet.core.errors import BadInput, UsageError
from fleet.core.model import LEVELS, Channel


@dataclass(frozen=True)
class Settings:
    """What an operator may set. Durations are seconds."""

    state_dir: str = ""  # inventory, evidence, artifacts live here; default ~/.local/share/fleet (root: /var/lib/fleet)
    db: str = ""  # SQLAlchemy URL; default sqlite in state_dir
    vendor_path: tuple[str, ...] = ()
    matrix_path: tuple[str, ...] = ("/etc/fleet/matrix.d",)
    ssh_user: str = "root"
    ssh_key: str = ""  # private key file
    ssh_certificate: str = ""  # user certificate file, default <ssh_key>-cert.pub when it is there
    ssh_bastion: str = ""  # user@host:port
    ssh_bastion_key: str = ""  # its host key, `ssh-ed25519 AAAA…`, where it is no node of the inventory
    host_keys: str = "pinned"  # pinned or tofu
    sudo: bool = True  # use `sudo -n` where the user is not root
    fanout: int = 64
    probe_timeout: int = 60
    channel: str = "stable"
    min_level: str = "observed"
    max_unavailable: str = "25%"
    soak: int = 0  # seconds for which a wave is watched before it is judged and the next may begin
    window: str = ""  # maintenance windows, `;` between several: Mon-Fri 22:00-06:00 Asia/Shanghai; default always
    approve: str = ""  # what somebody else must say yes to: start, canary or start,canary
    drain: str = ""  # none, command, slurm, kubernetes; default: command where one is set, else none
    drain_deadline: int = 3600  # how long running jobs are waited for
    drain_command: str = ""  # run on the controller with NODE, ACTION in its environment
    undrain_command: str = ""
    census_command: str = ""  # prints `NODE REASON` for each node that serves nothing
    scontrol_path: str = "scontrol"  # sinfo and squeue lie beside it
    slurm_conf: str = ""  # where it is not Slurm's default
    kubeconfig: str = ""  # a file; default as for kubectl, or the service account of the pod that fleet runs in
    kube_context: str = ""
    drain_unmanaged_pods: bool = False  # evict pods that no controller would make again
    drain_emptydir: bool = False  # evict pods whose emptyDir volumes would be lost
    drain_wait_selector: str = ""  # labels of pods that are let run to their end before any is evicted
    power_command: str = ""  # run with NODE, ACTION=on|off|cycle|status in its environment
    notify_url: str = ""  # where events are posted; file:///path names a file that holds the address
    notify_events: tuple[str, ...] = ()  # kinds, such as node.failed, or node for all of them; default all
    notify_secret_file: str = ""  # holds the key that events are signed with
    metrics_file: str = ""  # kept up to date for the node exporter's textfile collector
    own_approval: bool = False  # who began a rollout may approve its plan too
    operator: str = ""  # who is recorded in the audit log; default the login name

    @property
    def database(self) -> str:
        """The SQLAlchemy URL of the inventory."""
        return self.db or f"sqlite:///{Path(self.state_dir) / 'inventory.db'}"

    @property
    def drainer(self) -> str:
        """What stands in front of the nodes: `none`, `command` or the name of a scheduler."""
        return self.drain or ("command" if self.drain_command or self.undrain_command else "none")

    @property
    def artifact_dir(self) -> Path:
        """Where vendor packages lie."""
        return Path(self.state_dir) / "artifacts"

    @property
    def evidence_dir(self) -> Path:
        """Where evidence lies."""
        return Path(self.state_dir) / "evidence"


_BOUNDS = {
    "fanout": (1, 4096),
    "probe_timeout": (1, 3600),
    "drain_deadline": (1, 30 * 86400),
    "soak": (0, 30 * 86400),
}  # least and most
_CHOICES = {
    "host_keys": ("pinned", "tofu"),
    "channel": get_args(Channel),
    "min_level": LEVELS,
    "drain": ("", "none", "command", "slurm", "kubernetes"),
}


def _default_state_dir(env: Mapping[str, str]) -> str:
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return "/var/lib/fleet"
    return (env.get("XDG_DATA_HOME") or str(_home(env) / ".local/share")) + "/fleet"


def _home(env: Mapping[str, str]) -> Path:
    """The home folder; `/` for a user that has none, such as a container's."""
    try:
        return Path(env["HOME"]) if env.get("HOME") else Path.home()
    except (RuntimeError, KeyError):
        return Path("/")


def _cast(name: str, value: object, where: str) -> object:
    kind = {f.name: f.type for f in dataclasses.fields(Settings)}.get(name)
    if kind is None:
        raise BadInput(f"unknown setting {name!r}", where=where, hint="fleet config show", slug="unknown-setting")
    if isinstance(value, dict) or (isinstance(value, list) and not kind.startswith("tuple")):
        raise BadInput(
            f"setting {name!r} cannot be a {'table' if isinstance(value, dict) else 'list'}", where=where,
            hint="fleet config show", slug="bad-setting",
        )  # fmt: skip
    try:
        if kind == "bool":
            if isinstance(value, bool):
                return value
            if str(value).lower() in {"1", "true", "yes", "on"}:
                return True
            if str(value).lower() in {"0", "false", "no", "off", ""}:
                return False
            raise ValueError(value)
        if kind == "int":
            least, most = _BOUNDS.get(name, (0, 10**9))
            if isinstance(value, bool) or not least <= (number := int(str(value)[:20])) <= most:
                raise ValueError(value)
            return number
        if kind.startswith("tuple"):
            return (
                tuple(str(v) for v in value) if isinstance(value, list) else tuple(filter(None, str(value).split(":")))
            )
    except ValueError:
        kinds = {"bool": "yes or no", "int": "a whole number from {} to {}".format(*_BOUNDS.get(name, (0, 10**9)))}
        said = kinds.get(str(kind), "a list")
        raise BadInput(
            f"setting {name!r} cannot be {str(value)[:80]!r}", where=where,
            hint=f"it is {said}; fleet config show tells the others", slug="bad-setting",
        ) from None  # fmt: skip
    text = str(value)
    allowed = _CHOICES.get(name)
    if allowed is not None and text not in allowed:
        raise BadInput(
            f"setting {name!r} cannot be {text[:80]!r}", where=where, hint=f"it is {' or '.join(allowed)}",
            slug="bad-setting",
        )  # fmt: skip
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise BadInput(f"setting {name!r} holds a control character", where=where, slug="bad-setting")
    return text


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder on the way may not be entered, or the name is too long
        return False


def load(flags: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """The settings in force. `flags` that are None are not set. Raises BadInput naming the file or variable."""
    return load_with_origins(flags, env)[0]


def load_with_origins(
    flags: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None
) -> tuple[Settings, dict[str, str]]:
    """The settings in force, and for each where it comes from: a file, a variable, a flag, or `default`."""
    env = os.environ if env is None else env
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    home = env.get("XDG_CONFIG_HOME") or str(_home(env) / ".config")
    files = [Path("/etc/fleet/fleet.toml"), Path(home) / "fleet/fleet.toml"]
    if env.get("FLEET_CONFIG"):
        files.append(Path(env["FLEET_CONFIG"]))
        if not _is_file(files[-1]):
            raise UsageError(
                f"FLEET_CONFIG names {str(files[-1])!r}, which is no file", hint="unset FLEET_CONFIG, or mend it",
                slug="bad-setting",
            )  # fmt: skip
    for file in files:
        if not _is_file(file):
            continue
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise BadInput(f"not a readable settings file: {error}", where=str(file), slug="bad-setting") from error
        for name, value in content.items():
            values[name] = _cast(name, value, str(file))
            origins[name] = str(file)
    for field in dataclasses.fields(Settings):
        variable = f"FLEET_{field.name.upper()}"
        if variable in env:
            values[field.name] = _cast(field.name, env[variable], variable)
            origins[field.name] = variable
    for name, value in (flags or {}).items():
        if value is not None:
            origins[name] = f"--{name.replace('_', '-')}"
            values[name] = _cast(name, value, origins[name])
    if not values.get("state_dir"):
        values["state_dir"] = _default_state_dir(env)
    found = Settings(**values)  # type: ignore[arg-type]  # every value went through _cast
    return found, {field.name: origins.get(field.name, "default") for field in dataclasses.fields(Settings)}
