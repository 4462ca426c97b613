"""The building of lab nodes: layers, packages and guests' images from the cache, and each node's own folder.

Nothing runs in a folder that is made here until the lab starts its supervisor; `node.json` in it is written last.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fleet.core.errors import BadInput
from fleet.core.model import digest
from fleet.lab import guest, guest_image, packages
from fleet.lab.base import NODE, Say, base, cache_lock, prune
from fleet.lab.layer import Layer, in_parallel, os_layer, stack_layer, tree_digest
from fleet.lab.node.labnode import Files
from fleet.lab.spec import LabNode, NodeClass, Spec


@dataclass(frozen=True)
class Build:
    """What makes the nodes of the lab in `folder`. `say` is told what happens, one line each."""

    folder: Path
    cache: Path
    say: Say
    vendor_path: Sequence[str]

    def nodes(self, spec: Spec, nodes: Sequence[LabNode]) -> None:
        """Build the layers and packages of the whole spec, as far as they are not there, and the folders of `nodes`."""
        self._client_key()
        with cache_lock(self.cache, self.say):
            root, key = base(self.cache, self.say)
            opt = self._opt(spec, root)
            systems: dict[str, Layer] = {}
            classes = {node.node_class.name: node for node in spec.nodes}

            def system(node_class: NodeClass) -> Layer:
                return os_layer(self.cache, root, key, node_class, opt, self.say)

            in_parallel([partial(system, node.node_class) for node in _first_of_each(classes.values())])
            for node in classes.values():
                systems[node.node_class.name] = system(node.node_class)
            files = self._packages(spec)

            def stack(node: LabNode) -> Layer:
                name = node.node_class.name
                modules = packages.boot_modules(node.node_class.vendor, self.vendor_path)
                wanted = files.get(f"{name}-start", [])
                return stack_layer(
                    self.cache, systems[name], node, opt, self.folder / "packages", wanted, modules, self.say
                )

            in_parallel([partial(stack, node) for node in classes.values()])
            for node in nodes:
                layer = stack(classes[node.node_class.name])
                self._make_node(node, layer, opt, self._image(node, root, key, layer, opt))
            prune(self.cache, self.say)

    def _packages(self, spec: Spec) -> dict[str, list[str]]:
        """Build the starting stacks' and targets' packages of every vendor; stack name -> files."""
        out: dict[str, list[str]] = {}
        by_vendor: dict[str, list[Mapping[str, Any]]] = {}
        for one in spec.classes:
            wanted = [("start", one.start), *((f"target-{i}", t) for i, t in enumerate(one.targets, start=1))]
            by_vendor.setdefault(one.vendor, []).extend(
                one.stack(f"{one.name}-{what}", versions, platform.machine()) for what, versions in wanted if versions
            )
        for vendor, stacks in sorted(by_vendor.items()):
            self.say(f"packing the emulated software of {vendor}")
            folder = packages.vendor_folder(vendor, self.vendor_path)
            out.update(packages.build(folder, self.folder / "packages", stacks))
        (self.folder / "packages.json").write_text(json.dumps(out, indent=1))
        return out

    def _opt(self, spec: Spec, root: Path) -> Path:
        """The folder that nodes see as /opt/fleet-lab: the lab's programs and the vendors'."""
        fresh = self.folder / "opt/new"
        shutil.rmtree(fresh, ignore_errors=True)
        leave = shutil.ignore_patterns("__pycache__", "check.py")
        shutil.copytree(NODE, fresh, ignore=leave)
        for vendor in sorted({one.vendor for one in spec.classes}):
            shutil.copytree(packages.vendor_folder(vendor, self.vendor_path), fresh / vendor, ignore=leave)
        # Named by content: a running node keeps the one it booted with.
        opt = self.folder / "opt" / tree_digest(fresh)[7:19]
        if opt.is_dir():
            shutil.rmtree(fresh)
            return opt
        # The node's own python compiles them once: they are read-only in the node.
        compiler = [str(root / "usr/bin/python3"), "-m", "compileall", "-q", str(fresh)]
        subprocess.run(compiler, stdout=subprocess.DEVNULL, check=False)
        fresh.rename(opt)
        return opt

    def _image(self, node: LabNode, root: Path, key: str, layer: Layer, opt: Path) -> dict[str, str] | None:
        """What a guest boots from; None for a node that is none."""
        if not node.guest:
            return None
        kernel = node.node_class.kernel
        return guest.describe(guest_image.image(self.cache, root, key, layer, kernel, opt, self.say))

    def _client_key(self) -> None:
        key = self.folder / "ssh/id_ed25519"
        key.parent.mkdir(parents=True, exist_ok=True)
        if not key.is_file():
            _keygen(key, "fleet lab")

    def _make_node(self, node: LabNode, layer: Layer, opt: Path, image: dict[str, str] | None) -> None:
        """The node's folder: an empty disk over the layers with its keys, and its state."""
        folder = self.folder / "nodes" / node.name
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("state", "log", "upper", "work", "root"):
            (folder / name).mkdir(parents=True)
        key = folder / "host_key"
        _keygen(key, node.name)
        upper = folder / "upper"
        pub = (self.folder / "ssh/id_ed25519.pub").read_text()
        for home, owner in (("root", 0), ("home/ops", 1000)):
            ssh = upper / home / ".ssh"
            ssh.mkdir(parents=True, mode=0o700)
            (ssh / "authorized_keys").write_text(pub)
            (ssh / "authorized_keys").chmod(0o600)
            (upper / home).chmod(0o700)
            for path in (upper / home, ssh, ssh / "authorized_keys"):
                os.chown(path, owner, owner)
        (upper / "etc/ssh").mkdir(parents=True)
        for suffix, mode in (("", 0o600), (".pub", 0o644)):
            target = upper / f"etc/ssh/ssh_host_ed25519_key{suffix}"
            shutil.copy(f"{key}{suffix}", target)
            target.chmod(mode)
        (upper / "etc/hostname").write_text(f"{node.name}\n")
        (upper / "etc/hosts").write_text(f"127.0.0.1 localhost\n{node.address} {node.name}\n")
        (upper / "etc/machine-id").write_text(digest(f"{node.seed}/{node.name}")[7:39] + "\n")
        state = {**layer.state, "boots": 0, "power_cycles": 0, "faults": list(node.faults)}
        for role, template in (("cards", node.node_class.cards), ("switches", node.node_class.switches)):
            fresh = node.functions(template, role)
            kept = layer.state.get(role, [])
            names = ("index", "bus_id", "uuid", "serial", *template.get("also", {}))
            state[role] = [
                {**(kept[i] if i < len(kept) else row), **{k: row[k] for k in names if k in row and k != "flash"}}
                for i, row in enumerate(fresh)
            ]
        dmi = {"product_serial": digest(f"{node.seed}/{node.name}/serial")[7:19].upper()}
        state["dmi"] = {**state.get("dmi", {}), **dmi}
        Files(folder / "state", folder / "log").write(state)
        (folder / "wish.json").write_text(json.dumps({"on": True, "cycles": 0, "off_seconds": 0}))
        one = node.node_class
        description = {
            "name": node.name, "address": node.address, "port": node.port, "user": one.user, "vendor": one.vendor,
            "model": one.model, "os": f"{one.os['id']} {one.os['version']}", "kernel": one.kernel, "opt": str(opt),
            "lowers": [str(path) for path in layer.lowers], "guest": image,
        }  # fmt: skip
        if image is not None:
            guest_image.own_disk(folder, upper)
        (folder / "node.new").write_text(json.dumps(description))
        (folder / "node.new").rename(folder / "node.json")


def _first_of_each(nodes: Any) -> list[LabNode]:
    """One node for each pair of system and kernel."""
    return list({(n.node_class.os["name"], n.node_class.kernel, n.node_class.headers): n for n in nodes}.values())


def _keygen(file: Path, comment: str) -> None:
    try:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(file)], check=True)
    except FileNotFoundError:
        raise BadInput("ssh-keygen is not installed", hint="apt-get install openssh-client") from None
