"""`fleet evidence`: what was done and seen, chained by digests."""

from __future__ import annotations

import json

import click

from fleet.cli.output import document, emit, output_option, say, settings, table
from fleet.core import errors


@click.group()
def evidence() -> None:
    """What was done and seen, chained by digests: list, show, verify."""


@evidence.command("list")
@output_option("table", "json", "yaml", "name")
@click.pass_context
def list_(ctx: click.Context, output: str) -> int:
    """The runs with evidence."""
    from fleet.evidence import EvidenceStore

    store = EvidenceStore(settings(ctx).evidence_dir)
    rows = []
    for run in store.runs():
        origins: set[str] = set()
        first = last = None
        count = 0
        for last in store.records(run):
            first = first or last
            count += 1
            origins.add(last.origin)
        ends = {"from": first.at if first else "", "to": last.at if last else "", "head": last.digest if last else ""}
        rows.append({"run": run, "records": count, "origin": ", ".join(sorted(origins)), **ends})
    if output == "name":
        for row in rows:
            click.echo(row["run"])
    elif output == "table":
        if not rows:
            say("no evidence yet")
            return errors.DONE
        table(["RUN", "RECORDS", "ORIGIN", "FROM", "TO"], [list(row.values())[:5] for row in rows])
    else:
        emit(document("EvidenceList", {"items": rows}), output)
    return errors.DONE


@evidence.command()
@click.argument("run")
@click.option("--node", help="Only records on this node.")
@click.option("--output-of", "seq", type=int, metavar="SEQ", help="The output that this record names.")
@output_option("table", "json", "yaml", "jsonl")
@click.pass_context
def show(ctx: click.Context, run: str, node: str | None, seq: int | None, output: str) -> int:
    """The records of a run. RUN may be the beginning of its id, where no other begins so."""
    from fleet.evidence import EvidenceStore

    store = EvidenceStore(settings(ctx).evidence_dir)
    run = store.find(run)
    records = [r for r in store.records(run) if node is None or r.body.get("node", r.body.get("name")) == node]
    if seq is not None:
        named = next((str(r.body.get("output") or "") for r in records if r.seq == seq), "")
        if not named:
            raise errors.NotFound(f"record {seq} of {run} names no output", slug="unknown-blob")
        click.echo(store.read_blob(named).decode(errors="replace"))
        return errors.DONE
    if output == "jsonl":
        for record in records:
            click.echo(json.dumps(vars(record), ensure_ascii=False))
    elif output == "table":
        keys = ("node", "name", "phase", "state", "suite")
        table(
            ["SEQ", "AT", "ORIGIN", "KIND", "WHAT", "RESULT", "REASON"],
            [
                [r.seq, r.at, r.origin, r.kind, " ".join(str(r.body[k]) for k in keys if r.body.get(k)) or "-",
                 r.body.get("result", r.body.get("verdict", "-")), r.body.get("reason") or "-"]
                for r in records
            ],
        )  # fmt: skip
    else:
        emit(document("Evidence", {"run": run, "records": [vars(record).copy() for record in records]}), output)
    if not store.verify(run).ok:
        raise errors.CheckFailed(
            f"the evidence of {run} is not whole: more may have been there", hint=f"fleet evidence verify {run}",
            slug="evidence-broken",
        )  # fmt: skip
    return errors.DONE


@evidence.command()
@click.argument("runs", nargs=-1)
@output_option("table", "json", "yaml")
@click.pass_context
def verify(ctx: click.Context, runs: tuple[str, ...], output: str) -> int:
    """Whether the chains are whole (all runs by default). Exit status 4 when one was changed."""
    from fleet.evidence import EvidenceStore

    store = EvidenceStore(settings(ctx).evidence_dir)
    verdicts = [store.verify(run) for run in ([store.find(run) for run in runs] or store.runs())]
    if output == "table":
        for verdict in verdicts:
            torn = "; its last line was cut off by a crash" if verdict.torn else ""
            said = "whole" if verdict.ok else f"BROKEN: {verdict.problem}"
            click.echo(f"{verdict.run}: {verdict.records} records, {said}{torn}")
    else:
        items = [{**vars(verdict), "ok": verdict.ok} for verdict in verdicts]
        emit(document("EvidenceReport", {"items": items}), output)
    return errors.DONE if all(verdict.ok for verdict in verdicts) else errors.CHECK_SAID_NO
