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

from fleet.core.errors import BadInput, UsageError


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
    drain_command: str = ""  # run on the controller with NODE, ACTION in its environment
    undrain_command: str = ""
    power_command: str = ""  # run with NODE, ACTION=on|off|cycle|status in its environment
    operator: str = ""  # who is recorded in the audit log; default the login name

    @property
    def database(self) -> str:
        return self.db or f"sqlite:///{Path(self.state_dir) / 'inventory.db'}"

    @property
    def artifact_dir(self) -> Path:
        return Path(self.state_dir) / "artifacts"

    @property
    def evidence_dir(self) -> Path:
        return Path(self.state_dir) / "evidence"


def _default_state_dir(env: Mapping[str, str]) -> str:
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return "/var/lib/fleet"
    return env.get("XDG_DATA_HOME", str(Path.home() / ".local/share")) + "/fleet"


def _cast(name: str, value: object, where: str) -> object:
    kind = {f.name: f.type for f in dataclasses.fields(Settings)}.get(name)
    if kind is None:
        raise BadInput(f"unknown setting {name!r}", where=where, hint="fleet config show", slug="unknown-setting")
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
            return int(str(value))
        if kind.startswith("tuple"):
            return (
                tuple(str(v) for v in value) if isinstance(value, list) else tuple(filter(None, str(value).split(":")))
            )
    except ValueError:
        raise BadInput(f"setting {name!r} cannot be {value!r}", where=where, slug="bad-setting") from None
    return str(value)


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
    home = env.get("XDG_CONFIG_HOME", str(Path.home() / ".config"))
    files = [Path("/etc/fleet/fleet.toml"), Path(home) / "fleet/fleet.toml"]
    if env.get("FLEET_CONFIG"):
        files.append(Path(env["FLEET_CONFIG"]))
        if not files[-1].is_file():
            raise UsageError(f"FLEET_CONFIG names {str(files[-1])!r}, which is no file", slug="bad-setting")
    for file in files:
        if not file.is_file():
            continue
        try:
            content = tomllib.loads(file.read_text())
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
