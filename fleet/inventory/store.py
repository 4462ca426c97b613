"""The inventory: nodes, what they said, whom we trust, what they should be, and who did what."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, bindparam, delete, insert, select, update

from fleet.core.drift import Baseline
from fleet.core.errors import BadInput, NotFound
from fleet.core.model import SICK, Facts, Hold, Json, Lifecycle, Node, digest
from fleet.core.nodeset import fold, natural
from fleet.inventory import rows
from fleet.inventory.database import Database, chunks, upsert
from fleet.inventory.history import with_plan
from fleet.inventory.tables import nodes as tables
from fleet.inventory.tables import table

NODE = table(tables.NodeRow)
LABEL = table(tables.LabelRow)
CURRENT = table(tables.FactCurrentRow)
COMPONENT = table(tables.ComponentFactRow)
ACCELERATOR = table(tables.AcceleratorRow)
REVISION = table(tables.FactRevisionRow)
RAW = table(tables.RawOutputRow)
HOST_KEY = table(tables.HostKeyRow)
BASELINE = table(tables.BaselineRow)
AUDIT_LOG = table(tables.AuditLogRow)


@dataclass(frozen=True)
class Revision:
    """One entry of a node's history: from `at` on it said this, until the next entry."""

    id: int
    digest: str
    facts: Facts


@dataclass(frozen=True)
class LogEntry:
    """One line of the audit log. `at` is ISO 8601, UTC."""

    at: str
    who: str
    what: str
    detail: Mapping[str, Json]


class Inventory:
    """The stored state of a fleet. Every changing method is one transaction: all or nothing.

    Methods that take names raise NotFound for a name that no node has, before anything is changed.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def close(self) -> None:
        """Close the connections."""
        self.database.close()

    # --- nodes ----------------------------------------------------------------------------------------------------

    def nodes(self, names: Iterable[str] | None = None) -> list[Node]:
        """The nodes of these names, or all, in natural order (gpu2 before gpu10)."""
        wanted = None if names is None else list(dict.fromkeys(names))
        with self.database.reading() as connection:
            found = [dict(row) for row in _by_node(connection, NODE, NODE.c.name, wanted)]
            labels: dict[str, dict[str, str]] = {}
            for row in _by_node(connection, LABEL, LABEL.c.node, wanted):
                labels.setdefault(row["node"], {})[row["key"]] = row["value"]
        if wanted is not None:
            _all_there(wanted, {row["name"] for row in found})
        found.sort(key=lambda row: natural(row["name"]))
        return [rows.node(row, labels.get(row["name"], {})) for row in found]

    def node(self, name: str) -> Node:
        """One node by its name."""
        return self.nodes([name])[0]

    def add(self, nodes: Iterable[Node]) -> None:
        """Add new nodes. Raises BadInput when one of the names is taken, in the inventory or within `nodes`."""
        new = list(nodes)
        names = [node.name for node in new]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise BadInput(f"node {fold(twice)} is given twice", slug="duplicate-node")
        with self.database.writing() as connection:
            taken = [row["name"] for row in _by_node(connection, NODE, NODE.c.name, names)]
            if taken:
                raise BadInput(
                    f"node {fold(taken)} is in the inventory already",
                    hint="leave it out, or import with --update",
                    slug="duplicate-node",
                )
            self._put(connection, new)

    def put(self, nodes: Iterable[Node]) -> None:
        """Add nodes or replace what is stored of them: fields, labels, lifecycle and hold. Facts and keys stay."""
        with self.database.writing() as connection:
            self._put(connection, list({node.name: node for node in nodes}.values()))

    def _put(self, connection: Connection, nodes: Sequence[Node]) -> None:
        upsert(connection, NODE, map(rows.node_row, nodes), ("name",))
        _delete(connection, LABEL, LABEL.c.node, [node.name for node in nodes])
        upsert(connection, LABEL, (row for node in nodes for row in rows.label_rows(node)), ("node", "key"))

    def remove(self, names: Iterable[str]) -> None:
        """Forget nodes with their labels, facts, history and host keys. The audit log stays."""
        wanted = list(dict.fromkeys(names))
        with self.database.writing() as connection:
            _known(connection, wanted)
            _delete(connection, NODE, NODE.c.name, wanted)

    def label(self, names: Iterable[str], set_: Mapping[str, str] | None = None, unset: Iterable[str] = ()) -> None:
        """Set and remove labels."""
        wanted = list(dict.fromkeys(names))
        gone = list(unset)
        with self.database.writing() as connection:
            _known(connection, wanted)
            for some in chunks(wanted):
                if gone:
                    connection.execute(delete(LABEL).where(LABEL.c.node.in_(some), LABEL.c.key.in_(gone)))
            new = ({"node": n, "key": key, "value": value} for n in wanted for key, value in (set_ or {}).items())
            upsert(connection, LABEL, new, ("node", "key"))

    def hold(self, names: Iterable[str], hold: Hold) -> None:
        """Forbid changes of nodes until `release`, or until the hold's own end."""
        self._update(names, {"hold_who": hold.who, "hold_why": hold.why, "hold_until": hold.until})

    def release(self, names: Iterable[str]) -> None:
        """End holds; a node without one stays as it is."""
        self._update(names, {"hold_who": "", "hold_why": "", "hold_until": ""})

    def set_lifecycle(self, names: Iterable[str], state: Lifecycle) -> None:
        """Set the lifecycle state of nodes."""
        self._update(names, {"lifecycle": state})

    def _update(self, names: Iterable[str], values: Mapping[str, Any]) -> None:
        wanted = list(dict.fromkeys(names))
        with self.database.writing() as connection:
            _known(connection, wanted)
            for some in chunks(wanted):
                connection.execute(update(NODE).where(NODE.c.name.in_(some)).values(**values))

    # --- facts ----------------------------------------------------------------------------------------------------

    def record(self, facts: Iterable[Facts], raw: Mapping[str, bytes] | None = None) -> int:
        """Store what nodes said, and raw outputs by digest. Returns how many nodes said something new.

        A revision is written only where the content differs from the node's newest one; time and boot id are always
        renewed. The later call wins.
        """
        newest = {fact.node: fact for fact in facts}
        names = list(newest)
        packed = [{"digest": key, "data": zlib.compress(data)} for key, data in (raw or {}).items()]
        digests = {name: digest(fact.content()) for name, fact in newest.items()}
        with self.database.writing() as connection:
            _known(connection, names)
            before = {row["node"]: row["digest"] for row in _by_node(connection, CURRENT, CURRENT.c.node, names)}
            changed = [fact for name, fact in newest.items() if before.get(name) != digests[name]]
            changed_names = [fact.node for fact in changed]
            for some in chunks(changed):
                connection.execute(insert(REVISION), [_revision_row(fact, digests[fact.node]) for fact in some])
            _delete(connection, COMPONENT, COMPONENT.c.node, [name for name in changed_names if name in before])
            _delete(connection, ACCELERATOR, ACCELERATOR.c.node, [name for name in changed_names if name in before])
            upsert(
                connection, COMPONENT, (row for f in changed for row in rows.component_rows(f)), ("node", "component")
            )
            upsert(
                connection,
                ACCELERATOR,
                (row for f in changed for row in rows.accelerator_rows(f)),
                ("node", "identity"),
            )
            upsert(connection, CURRENT, (rows.current_row(f, digests[n]) for n, f in newest.items()), ("node",))
            upsert(connection, RAW, packed, ("digest",), replace=False)
        return len(changed)

    def facts(self, names: Iterable[str] | None = None) -> dict[str, Facts]:
        """node -> what it said last. A node that was never probed is not in the answer, whoever asked for it."""
        wanted = None if names is None else list(dict.fromkeys(names))
        # The newest revision of a node is the one with its highest id; `fact_current` holds the time of the last look.
        newest = (
            select(REVISION.c.id)
            .where(REVISION.c.node == CURRENT.c.node)
            .order_by(REVISION.c.id.desc())
            .limit(1)
            .correlate(CURRENT)
            .scalar_subquery()
        )
        query = select(CURRENT.c.node, CURRENT.c.at, CURRENT.c.boot_id, REVISION.c.document).join(
            REVISION, REVISION.c.id == newest
        )
        found: dict[str, Facts] = {}
        with self.database.reading() as connection:
            for some in [None] if wanted is None else chunks(wanted):
                narrowed = query if some is None else query.where(CURRENT.c.node.in_(some))
                for name, at, boot_id, document in connection.execute(narrowed):
                    found[name] = rows.facts(name, document, at, boot_id)
        return dict(sorted(found.items(), key=lambda item: natural(item[0])))

    def sick(self) -> set[str]:
        """Names of the nodes that said last that an accelerator is critical or lost."""
        query = select(ACCELERATOR.c.node).where(ACCELERATOR.c.health.in_(SICK)).distinct()
        with self.database.reading() as connection:
            return set(connection.execute(query).scalars())

    def history(self, name: str) -> list[Revision]:
        """What a node has said over time, oldest first; `at` and `boot_id` are those of the first such answer."""
        query = select(REVISION).where(REVISION.c.node == name).order_by(REVISION.c.id)
        with self.database.reading() as connection:
            _known(connection, [name])
            return [
                Revision(row.id, row.digest, rows.facts(name, row.document, row.at, row.boot_id))
                for row in connection.execute(query)
            ]

    def raw(self, digest: str) -> bytes:
        """A raw output by its digest. Raises NotFound."""
        with self.database.reading() as connection:
            data = connection.execute(select(RAW.c.data).where(RAW.c.digest == digest)).scalar()
        if data is None:
            raise NotFound(f"no raw output {digest!r} is kept")
        return zlib.decompress(data)

    def summaries(self) -> list[dict[str, Any]]:
        """For every node that has answered, what selectors ask for: the columns of `fact_current` and `components`,
        which maps a component to its version now in force."""
        with self.database.reading() as connection:
            found = {row["node"]: {**row, "components": {}} for row in connection.execute(select(CURRENT)).mappings()}
            query = select(COMPONENT.c.node, COMPONENT.c.component, COMPONENT.c.loaded, COMPONENT.c.installed)
            for name, component, loaded, installed in connection.execute(query):
                version = loaded if loaded is not None else installed
                if version is not None and name in found:
                    found[name]["components"][component] = version
        return list(found.values())

    # --- trust, baselines, audit log ------------------------------------------------------------------------------

    def host_keys(self) -> dict[str, str]:
        """node -> the key vouched for, `ssh-ed25519 AAAA…`."""
        with self.database.reading() as connection:
            return {row.node: row.key for row in connection.execute(select(HOST_KEY.c.node, HOST_KEY.c.key))}

    def trust(self, name: str, key: str, who: str, at: str) -> None:
        """Vouch for a node's host key, in place of an earlier one. An empty key withdraws the trust."""
        with self.database.writing() as connection:
            _known(connection, [name])
            if key:
                upsert(connection, HOST_KEY, [{"node": name, "key": key, "who": who, "at": at}], ("node",))
            else:
                _delete(connection, HOST_KEY, HOST_KEY.c.node, [name])

    def save_baseline(self, baseline: Baseline, who: str, at: str) -> None:
        """Store a named stack, in place of an earlier one of that name."""
        row = {
            "name": baseline.name,
            "vendor": baseline.vendor,
            "model": baseline.model,
            "stack": dict(baseline.stack),
            "who": who,
            "at": at,
        }
        with self.database.writing() as connection:
            upsert(connection, BASELINE, [row], ("name",))

    def baselines(self) -> dict[str, Baseline]:
        """Every named stack by its name."""
        with self.database.reading() as connection:
            return {
                row.name: Baseline(row.name, row.stack, row.vendor, row.model)
                for row in connection.execute(select(BASELINE).order_by(BASELINE.c.name))
            }

    def remove_baseline(self, name: str) -> None:
        """Forget a named stack. Raises NotFound."""
        with self.database.writing() as connection:
            if connection.execute(delete(BASELINE).where(BASELINE.c.name == name)).rowcount == 0:
                raise NotFound(f"no baseline is called {name!r}", hint="fleet stack list")

    def audit(self, who: str, what: str, at: str, detail: Mapping[str, Json] | None = None) -> None:
        """Add a line to the audit log. One that names a rollout names its plan too."""
        with self.database.writing() as connection:
            row = {"at": at, "who": who, "what": what, "detail": with_plan(connection, detail or {})}
            connection.execute(insert(AUDIT_LOG), [row])

    def audit_log(self, limit: int = 1000) -> list[LogEntry]:
        """The newest lines of the audit log, newest first."""
        query = select(AUDIT_LOG).order_by(AUDIT_LOG.c.id.desc()).limit(limit)
        with self.database.reading() as connection:
            return [LogEntry(row.at, row.who, row.what, row.detail) for row in connection.execute(query)]


def _revision_row(facts: Facts, content: str) -> dict[str, Any]:
    document = facts.content()
    return {"node": facts.node, "digest": content, "at": facts.at, "boot_id": facts.boot_id, "document": document}


def _by_node(connection: Connection, rows_of: Table, column: Any, names: Sequence[str] | None) -> Iterable[Any]:
    """The rows whose `column` is in `names`, as mappings; all for None."""
    if names is None:
        yield from connection.execute(select(rows_of)).mappings()
        return
    for some in chunks(names):
        yield from connection.execute(select(rows_of).where(column.in_(some))).mappings()


def _delete(connection: Connection, rows_of: Table, column: Any, names: Sequence[str]) -> None:
    statement = delete(rows_of).where(column.in_(bindparam("names", expanding=True)))
    for some in chunks(names):
        connection.execute(statement, {"names": list(some)})


def _known(connection: Connection, names: Sequence[str]) -> None:
    _all_there(names, {row["name"] for row in _by_node(connection, NODE, NODE.c.name, names)})


def _all_there(names: Sequence[str], there: set[str]) -> None:
    missing = [name for name in names if name not in there]
    if missing:
        raise NotFound(f"node {fold(missing)} is not in the inventory", hint="fleet node list", slug="unknown-node")
