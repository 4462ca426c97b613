"""`fleet probe`: look at nodes, say what they are, record it."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.output import FORMATS, document, emit, output_option, say, settings, table
from fleet.cli.selection import Pick, now, operator, selecting
from fleet.config import Settings
from fleet.core import errors
from fleet.core.model import ComponentFact, Facts, Node
from fleet.core.nodeset import fold, natural

if TYPE_CHECKING:
    from fleet.inventory import Inventory
    from fleet.probe import Probed
    from fleet.remote import Transport

BATCH = 256  # nodes recorded in one transaction
_USUAL = ("driver", "firmware", "toolkit")
_ALWAYS = ("os", "kernel")
_HINTS = {
    "unknown-key": "fleet node trust {0}",
    "key-changed": "an incident until explained: look at the machine, then fleet node trust {0}",
    "refused": "is the key in ssh_key authorized for the user on {0}?",
    "no-sudo": "allow `sudo -n sh` for the user on {0}, or set FLEET_SUDO=0",
}


@click.command()
@selecting()
@click.option("--record", metavar="DIR", type=click.Path(file_okay=False), help="Keep every raw answer in DIR.")
@click.option("--replay", metavar="DIR", type=click.Path(exists=True, file_okay=False), help="Read answers from DIR.")
@click.option("--fanout", metavar="N", type=click.IntRange(1, 4096), help="Nodes at a time.  [default: 64]")
@click.option("--timeout", metavar="S", type=click.IntRange(1, 3600), help="Seconds for one node.  [default: 60]")
@click.option("--local", is_flag=True, help="Look at this machine, without SSH.")
@output_option(*FORMATS)
@click.pass_context
def probe(
    ctx: click.Context,
    pick: Pick,
    record: str | None,
    replay: str | None,
    fanout: int | None,
    timeout: int | None,
    local: bool,
    output: str,
) -> int:
    """Look at nodes (all of the inventory by default) and record what they say.

    Equal nodes share a line. The exit status is 6 when a node did not answer, or not fully. Facts of --replay are
    shown, not recorded.
    """
    if local and replay:
        raise errors.UsageError("--local and --replay exclude each other")
    config = settings(ctx, fanout=fanout, probe_timeout=timeout)
    if local and pick != Pick(None, None, None):
        raise errors.UsageError("--local looks at this machine only", hint="fleet probe --local")

    from fleet.inventory import open_inventory

    inventory = open_inventory(config.database)
    try:
        return _run(config, inventory, pick, record, replay, local, output)
    finally:
        inventory.close()


def _run(
    config: Settings,
    inventory: Inventory,
    pick: Pick,
    record: str | None,
    replay: str | None,
    local: bool,
    output: str,
) -> int:
    import compat_matrix
    import drivers
    from fleet.probe import probe as look
    from fleet.remote import Record

    chosen = _chosen(config, inventory, pick, replay, local)
    if not chosen:
        say("no nodes yet: fleet node add NAME" if pick.everything else "no nodes")
    known_keys = inventory.host_keys()
    transport = _transport(config, known_keys, replay, local, bool(chosen))
    if record:
        transport = Record(transport, record)
    matrix = compat_matrix.load(config.matrix_path, config.vendor_path)
    known = {node.name for node in inventory.nodes()} if local else {node.name for node in chosen}
    book = _Book(inventory, config, known_keys, known if not replay else set())
    progress = _Progress(len(chosen))
    results: list[Probed] = []
    interrupted = False
    try:
        for result in look(
            chosen,
            transport,
            drivers.vendors(config.vendor_path),
            matrix.model,
            now,
            fanout=config.fanout,
            timeout_s=config.probe_timeout,
            sudo=config.sudo,
        ):
            results.append(dataclasses.replace(result, raw={}, readings={}))  # those of a fleet would fill the memory
            book.keep(result)
            if output == "jsonl":
                click.echo(json.dumps(document("Probed", _as_dict(result)), ensure_ascii=False))
            progress.step(result)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        transport.close()
        progress.clear()
        book.write()
    results.sort(key=lambda result: natural(result.name))
    _print(results, output)
    if local and results and results[0].name not in known:
        say(f"not recorded: the inventory has no node {results[0].name!r}")
    if interrupted:
        left = len(chosen) - len(results)
        raise errors.Interrupted(f"stopped; {left} nodes were not looked at", hint="run the same command again")
    return errors.NODES_FAILED if any(result.outcome != "answered" for result in results) else errors.DONE


def _chosen(config: Settings, inventory: Inventory, pick: Pick, replay: str | None, local: bool) -> list[Node]:
    """The nodes meant: this machine, those of a recording, or those of the inventory."""
    if local:
        return [Node(platform.node() or "localhost", "127.0.0.1")]
    if replay and pick == Pick(None, None, None):
        from fleet.remote import Replay

        return list(Replay(replay).nodes())
    return pick.nodes(inventory, config, default_all=True)


def _transport(
    config: Settings, known_keys: Mapping[str, str], replay: str | None, local: bool, needed: bool
) -> Transport:
    from fleet.remote import Local, Replay, Ssh

    if replay:
        return Replay(replay)
    return Local() if local or not needed else Ssh.of(config, known_keys)


class _Book:
    """Writes results into the inventory, in batches: facts, first host keys under `tofu`, changed keys as incidents."""

    def __init__(
        self, inventory: Inventory, config: Settings, known_keys: Mapping[str, str], names: Iterable[str]
    ) -> None:
        self._inventory = inventory
        self._known_keys = known_keys
        self._names = set(names)
        self._tofu = config.host_keys == "tofu"
        self._who = operator(config)
        self._facts: list[Facts] = []
        self._raw: dict[str, bytes] = {}

    def keep(self, result: Probed) -> None:
        if result.name not in self._names:
            return
        if result.facts is not None:
            self._facts.append(result.facts)
            self._raw.update(result.raw)
        met = result.outcome in ("answered", "partial")
        if self._tofu and met and result.host_key and result.name not in self._known_keys:
            self._inventory.trust(result.name, result.host_key, self._who, now())
            self._inventory.audit(
                self._who, "first-contact", now(), {"node": result.name, "key": result.host_key, "policy": "tofu"}
            )
        if result.outcome == "key-changed":
            recorded = self._known_keys.get(result.name, "")
            self._inventory.audit(
                self._who,
                "host-key-changed",
                now(),
                {"node": result.name, "shown": result.host_key, "recorded": recorded},
            )
        if len(self._facts) >= BATCH:
            self.write()

    def write(self) -> None:
        facts, raw = self._facts, self._raw
        self._facts, self._raw = [], {}
        if not facts:
            return
        try:
            self._inventory.record(facts, raw)
        except errors.NotFound:  # somebody removed a node while it was looked at: the others are recorded
            there = {node.name for node in self._inventory.nodes()}
            self._inventory.record([fact for fact in facts if fact.node in there], raw)


class _Progress:
    """One line that is written over, on a terminal only."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._seen = 0
        self._bad = 0
        self._next = 0.0
        self._shown = sys.stderr.isatty()

    def step(self, result: Probed) -> None:
        self._seen += 1
        self._bad += result.outcome != "answered"
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.1
            bad = f", {self._bad} not fine" if self._bad else ""
            click.echo(f"\r\x1b[Klooked at {self._seen}/{self._total}{bad}", nl=False, err=True)

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)


# --- the report -------------------------------------------------------------------------------------------------------


def _print(results: Sequence[Probed], output: str) -> None:
    if output in ("json", "yaml"):
        counts = Counter(result.outcome for result in results)
        body = {"summary": dict(sorted(counts.items())), "nodes": [_as_dict(result) for result in results]}
        emit(document("ProbeReport", body), output)
    elif output == "name":
        for result in results:
            if result.outcome == "answered":
                click.echo(result.name)
    elif output in ("table", "wide"):
        _report(results, wide=output == "wide")
    if output != "jsonl":
        _summary(results)


def _as_dict(result: Probed) -> dict[str, Any]:
    facts = result.facts
    return {
        "name": result.name,
        "outcome": result.outcome,
        "phase": result.phase,
        "detail": result.detail,
        "hostKey": result.host_key,
        "seconds": round(result.seconds, 3),
        "facts": None if facts is None else {**facts.content(), "bootId": facts.boot_id, "at": facts.at},
        "raw": dict(result.sections),
    }


def _report(results: Sequence[Probed], *, wide: bool) -> None:
    with_facts = [(result, result.facts) for result in results if result.facts is not None]
    names = _components(facts for _, facts in with_facts) if wide else list(_USUAL)
    rows = _folded(
        (result.name, (result.outcome, _cards(facts), _os(facts), facts.os.kernel, *_versions(facts, names)))
        for result, facts in with_facts
    )
    if rows:
        header = ["NODES", "OUTCOME", "ACCELERATORS", "OS", "KERNEL", *(name.upper() for name in names)]
        table(header, ([where, *row] for where, row in rows))
    wrong = _folded(
        (result.name, (result.outcome, result.phase, result.detail or "-"))
        for result in results
        if result.outcome != "answered"
    )
    if wrong:
        if rows:
            click.echo()
        table(["NODES", "OUTCOME", "PHASE", "DETAIL"], ([where, *row] for where, row in wrong))
    problems = _folded((result.name, (problem,)) for result, facts in with_facts for problem in facts.problems)
    if problems:
        click.echo()
        table(["NODES", "PROBLEM"], ([where, *row] for where, row in problems))


def _folded(lines: Iterable[tuple[str, tuple[str, ...]]]) -> list[tuple[str, tuple[str, ...]]]:
    """Equal lines once, under the nodeset of all who said so."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, line in lines:
        groups.setdefault(line, []).append(name)
    return [(fold(names), line) for line, names in groups.items()]


def _cards(facts: Facts) -> str:
    counts = Counter(card.model for card in facts.accelerators)
    return ", ".join(f"{count} x {model}" for model, count in sorted(counts.items())) or "none"


def _os(facts: Facts) -> str:
    return f"{facts.os.id} {facts.os.version}".strip() or "unknown"


def _components(all_facts: Iterable[Facts]) -> list[str]:
    there = {name for facts in all_facts for name in facts.components if name not in _ALWAYS}
    first: Callable[[str], tuple[bool, str]] = lambda name: (name not in _USUAL, name)  # noqa: E731
    return sorted(there | set(_USUAL), key=first)


def _versions(facts: Facts, names: Sequence[str]) -> list[str]:
    return [_version(facts.components.get(name)) for name in names]


def _version(fact: ComponentFact | None) -> str:
    """What is in force; what is installed but not running stands behind an arrow."""
    if fact is None or (fact.current is None and fact.runtime is None):
        return "-"
    return f"{fact.loaded} -> {fact.installed}" if fact.pending else str(fact.current or fact.runtime)


def _summary(results: Sequence[Probed]) -> None:
    if not results:
        return
    counts = Counter(result.outcome for result in results)
    say(f"{len(results)} nodes: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    for outcome, hint in _HINTS.items():
        names = [result.name for result in results if result.outcome == outcome]
        if names:
            say(f"hint: {outcome}: {hint.format(fold(names))}")
