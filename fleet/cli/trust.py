"""`fleet node trust`: the host keys that a person vouches for."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fleet.cli.output import say, table
from fleet.cli.selection import Pick, confirm, now, opened, operator, selecting, yes_option
from fleet.core import errors
from fleet.core.nodeset import fold

if TYPE_CHECKING:
    from fleet.config import Settings
    from fleet.core.model import Node


@click.command()
@selecting()
@click.option("--key", metavar="TEXT", help="The key of one node, 'ssh-ed25519 AAAA…', as read on its console.")
@click.option("--replace", is_flag=True, help="Accept a key that differs from the one trusted so far.")
@click.option("--forget", is_flag=True, help="Trust the key no longer.")
@yes_option
@click.pass_context
def trust(ctx: click.Context, pick: Pick, key: str | None, replace: bool, forget: bool, yes: bool) -> None:
    """Fetch the host keys of nodes, show their fingerprints, and trust them from now on."""
    with opened(ctx) as (in_force, inventory):
        nodes = pick.nodes(inventory, in_force)
        who, names = operator(in_force), [each.name for each in nodes]
        if not names:
            say("no node is meant by this: nothing to do")
            return
        if forget:
            confirm(names, len(inventory.nodes()), "forget the host keys", yes)
            for name in names:
                inventory.trust(name, "", who, now())
            inventory.audit(who, "node trust --forget", now(), {"nodes": fold(names)})
            return
        if key is not None and len(nodes) != 1:
            raise errors.UsageError("--key is for one node")
        known = inventory.host_keys()
        found, silent = ({names[0]: _checked_key(key)}, {}) if key is not None else _fetched(nodes, in_force, known)
        new = {name: text for name, text in found.items() if known.get(name) != text}
        changed = [name for name in new if name in known]
        if found:
            table(("NODE", "KEY", "STATE"), [
            (name, fingerprint(text), "changed" if name in changed else "new" if name in new else "trusted already")
            for name, text in found.items()
        ])  # fmt: skip
        if changed and not replace:
            raise errors.CheckFailed(
                f"the host key of {fold(changed)} is not the one trusted so far",
                cause="the node was reinstalled, or somebody is between you and it",
                hint="compare the fingerprint on its console, then add --replace", slug="host-key-changed",
            )  # fmt: skip
        if new:
            confirm(list(new), len(inventory.nodes()), "trust", yes)
            for name, text in new.items():
                inventory.trust(name, text, who, now())
            inventory.audit(who, "node trust", now(), {"keys": {n: fingerprint(text) for n, text in new.items()}})
        if silent:
            for name, why in silent.items():
                say(f"{name}: {why}")
            raise errors.NodesFailed(f"no host key came from {fold(silent)}", slug="nodes-silent")


def _fetched(
    nodes: Sequence[Node], in_force: Settings, known: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """(node -> its key, node -> why there is none), some at a time."""
    from concurrent.futures import ThreadPoolExecutor

    from fleet.remote import fetch_host_key

    found: dict[str, str] = {}
    silent: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=max(1, min(in_force.fanout, len(nodes)))) as pool:
        futures = {each.name: pool.submit(fetch_host_key, each, in_force, known) for each in nodes}
        for name, future in futures.items():
            try:
                found[name] = future.result()
            except errors.FleetError as error:
                silent[name] = f"{error.what}{': ' + error.cause if error.cause else ''}"
    return found, silent


def _checked_key(text: str) -> str:
    """The type and the base64 of a public key; a comment is dropped. Raises BadInput."""
    from fleet.remote import hostkey

    try:
        return hostkey.parse(text)
    except errors.BadInput as error:
        raise errors.BadInput(
            "--key is no public key", hint="'ssh-ed25519 AAAA…', as in /etc/ssh/ssh_host_*_key.pub", slug=error.slug
        ) from None


def fingerprint(key: str) -> str:
    """As `ssh-keygen -l` prints it: type and SHA256 in base64 without padding."""
    kind, blob = key.split()[:2]
    return f"{kind} SHA256:{base64.b64encode(hashlib.sha256(base64.b64decode(blob)).digest()).decode().rstrip('=')}"
