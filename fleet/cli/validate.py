"""`fleet validate`: a suite of checks on nodes, with evidence."""

from __future__ import annotations

import secrets

import click

from fleet.cli.output import document, emit, output_option, say, table
from fleet.cli.selection import Pick, now, opened, operator, selecting
from fleet.core import errors


@click.command()
@selecting()
@click.option("--suite", default="smoke", show_default=True, help="Which checks.")
@output_option("table", "json", "yaml")
@click.pass_context
def validate(ctx: click.Context, pick: Pick, suite: str, output: str) -> int:
    """Look at NODES (all by default) and judge them: counts, versions, links, memory errors. Changes nothing.

    Exit status: 4 when a check said no, 6 when a node was silent or nothing could be said.
    """
    import drivers
    from fleet.cli.driving import looker, origin_of, transport_of
    from fleet.evidence import EvidenceStore
    from fleet.probe import recorded
    from fleet.validate import exit_code, summary
    from fleet.validate import validate as run

    with opened(ctx) as (settings, inventory):
        nodes = pick.nodes(inventory, settings, default_all=True)
        known = inventory.facts([node.name for node in nodes])
        counts = {name: len(facts.accelerators) for name, facts in known.items() if facts.accelerators}
        with transport_of(settings, inventory) as transport:
            looks = recorded(looker(settings, transport)(nodes), inventory.record)
            reports = list(run(looks, drivers.vendors(settings.vendor_path), suite, counts))
        origin = origin_of(nodes)
        evidence = EvidenceStore(settings.evidence_dir)
        run_id = f"v-{now()[:10].replace('-', '')}-{secrets.token_hex(3)}"
        for report in reports:
            evidence.append(run_id, now(), origin, "validation", {"suite": suite, **report.as_dict()})
        inventory.audit(operator(settings), "validate", now(), {"run": run_id, "suite": suite, **summary(reports)})
    place = {node.name: number for number, node in enumerate(nodes)}
    reports.sort(key=lambda report: place[report.node])
    if output == "table":
        rows = []
        for report in reports:
            bad = [c for c in report.checks if c.get("result") != "pass"]
            rows.append(
                [
                    report.node,
                    report.vendor or "-",
                    report.verdict,
                    f"{len(report.checks) - len(bad)}/{len(report.checks)}",
                    report.problem or "-",
                ]
            )
        table(["NODE", "VENDOR", "VERDICT", "PASSED", "PROBLEM"], rows)
        say(f"evidence: {run_id}" if reports else "no nodes")
    else:
        body = {"suite": suite, "run": run_id, "summary": summary(reports), "nodes": [r.as_dict() for r in reports]}
        emit(document("ValidationReport", body), output)
    return exit_code(reports) if reports else errors.DONE
