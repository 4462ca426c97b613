"""Restarting nodes, and waiting until each of them has another boot id."""

from __future__ import annotations

from fleet.act import Act, Did, Hands, nap, told
from fleet.core.errors import FleetError
from fleet.core.model import Node
from fleet.core.task import Outcome
from fleet.proof import another_key
from fleet.remote import sweep

_BOOT = "cat /proc/sys/kernel/random/boot_id\n"
# At most once in two minutes for one boot id, whoever asks: a request that was lost is repeated, one under way is not.
_ONCE = """\
seen=$(cat /proc/sys/kernel/random/boot_id)
[ "$seen" = "{boot}" ] || {{ echo other; exit 0; }}
mark=/var/lib/fleet/asked-{boot}
mkdir -p /var/lib/fleet
find /var/lib/fleet -maxdepth 1 -name 'asked-*' -mtime +30 -exec rmdir {{}} + 2>/dev/null
if ! mkdir "$mark" 2>/dev/null; then
    [ -n "$(find "$mark" -maxdepth 0 -mmin +2 2>/dev/null)" ] || {{ echo waiting; exit 0; }}
    touch "$mark"
fi
sync
{act}
echo asked
"""
_REBOOT = "(trap '' HUP; sleep 1; reboot || systemctl reboot || shutdown -r now) </dev/null >/dev/null 2>&1 &"


def restart(hands: Hands, act: Act) -> dict[str, Did]:
    """Restart or power-cycle, and wait until each node has another boot id."""
    step = act.step
    cycle = step.activation in ("power_cycle", "hands")
    results: dict[str, Did] = {}
    pending = dict(act.subjects)
    asked: set[str] = set()
    deadline = hands.elapsed() + step.limit_s
    boots = {name: subject.boot_id for name, subject in pending.items()}
    last = dict.fromkeys(pending, "it does not answer")
    strange: set[str] = set()  # those that show another host key: never while an early boot stage has its own
    while pending:
        up = []
        nodes = [subject.node for subject in pending.values()]
        for answer in sweep(hands.transport, nodes, _BOOT, timeout_s=20, sudo=False, retry=False):
            boot = answer.stdout.decode(errors="replace").strip()
            if not answer.ok or answer.rc != 0 or not boot:
                last[answer.name] = answer.detail or "it does not answer"
                (strange.add if answer.trouble == "key-changed" else strange.discard)(answer.name)
                continue
            last[answer.name] = "it still runs from before"
            boots[answer.name] = boots[answer.name] or boot
            if boot != boots[answer.name]:
                fresh = not act.move.again and answer.name in asked
                results[answer.name] = Did(Outcome("done" if fresh else "already"))
                del pending[answer.name]
            else:
                up.append(pending[answer.name])
        for subject in up:
            name = subject.node.name
            if cycle and (step.activation == "hands" or not hands.power.available(subject.node)):
                results[name] = Did(_for_hands(act, name))
                del pending[name]
                continue
            try:
                if _ask(hands, act, subject.node, boots[name], cycle=cycle):
                    asked.add(name)
            except FleetError as error:  # of this node alone: the others of the chunk go on
                results[name] = Did(told(error))
                del pending[name]
        if hands.elapsed() >= deadline:
            break
        if pending:
            nap(hands, act)
    for name in pending:
        if name in strange:
            results[name] = Did(another_key(name, last[name], step.limit_s))
            continue
        reason = f"no-return: not back within {step.limit_s} s: {last[name]}"
        results[name] = Did(Outcome("failed", reason, "hardware", f"look at the console of {name}"))
    return results


def _for_hands(act: Act, name: str) -> Outcome:
    off = f", {act.step.off_seconds} s without power" if act.step.off_seconds else ""
    return Outcome("hands", f"{name} needs a power cycle{off}", "operator", f"power-cycle {name}{off}, then fleet "
                   f"rollout resume {act.rollout}")  # fmt: skip


def _ask(hands: Hands, act: Act, node: Node, boot: str, *, cycle: bool) -> bool:
    """Ask for the restart, unless it was asked for moments ago; whether it was asked now."""
    if not all(c in "0123456789abcdefABCDEF-" for c in boot):
        raise FleetError(f"{node.name} has the boot id {boot[:60]!r}, which is none", slug="bad-boot-id")
    script = _ONCE.format(boot=boot, act=":" if cycle else _REBOOT)
    answer = hands.transport.run(node, script, timeout_s=30, sudo=hands.sudo)
    if not answer.ok or answer.stdout.strip().split(b"\n")[-1:] != [b"asked"]:
        return False
    if cycle:
        hands.power.do(node, "cycle", act.step.off_seconds)
    return True
