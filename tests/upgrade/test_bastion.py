"""Playbooks through a bastion: whose host key is believed, and how ssh is told."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import pytest

from fleet.config import Settings
from fleet.core.errors import BadInput
from fleet.core.model import Node
from fleet.playbook import AnsiblePlaybook

NODE = Node("gpu1", "10.0.0.1")


def key(fill: int) -> str:
    kind = b"ssh-ed25519"
    blob = struct.pack(">I", len(kind)) + kind + struct.pack(">I", 32) + bytes([fill]) * 32
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def playbook(**settings: str) -> AnsiblePlaybook:
    return AnsiblePlaybook(Settings(state_dir="state", **settings), dict)  # type: ignore[arg-type]  # texts only


def test_the_bastions_key_comes_from_the_inventory_else_from_the_setting() -> None:
    keys = {"gpu1": key(1), "jump": key(2)}
    both = playbook(ssh_bastion="ops@jump:2222", ssh_bastion_key=key(3), ssh_key="/keys/fleet")
    assert both.trusted([NODE], keys) == keys
    assert both.trusted([NODE], {"gpu1": key(1)}) == {"gpu1": key(1), "jump": key(3)}
    assert playbook().trusted([NODE], keys) == {"gpu1": key(1)}
    with pytest.raises(BadInput):
        playbook(ssh_bastion="jump", ssh_bastion_key="/keys/fleet").trusted([NODE], keys)


def test_ssh_is_told_the_key_file_and_the_user_of_the_bastion(tmp_path: Path) -> None:
    words = playbook(ssh_bastion="ops@jump:2222", ssh_key="/keys/fleet")._jump(tmp_path / "known_hosts")
    assert " -i /keys/fleet -l ops " in words and " -p 2222 " in words and words.endswith(" '[%h]:%p' jump")
    assert " -l root " in playbook(ssh_bastion="jump")._jump(Path("known_hosts"))
