"""How brsmi writes its answers: values in, text out. The table follows public captures of 1.11.0."""

from __future__ import annotations

WIDE = "+" + "-" * 78 + "+"
RULE = "+----------------------------+-----------------------+-------------------------+"
UNITS = {"memory.used": "MiB", "memory.free": "MiB", "memory.total": "MiB", "power.draw": "W", "utilization.gpu": "%"}


def table(timestamp, smi, driver, supa, cards):
    """{index, name, bus_id, ecc, temperature, perf, power, limit, used, total, utilization, …} a card."""
    head = f"| BR-SMI {smi}".ljust(25) + f"Driver Version: {driver}".ljust(32) + f"SUPA Version: {supa}"
    out = f"{timestamp}\n{WIDE}\n{head.ljust(79)}|\n{RULE}\n"
    out += "|   GPU                 Name |                Bus-Id |    Volatile Uncorr. ECC |\n"
    out += "|  Temp  Perf  Pwr:Usage/Cap |          Memory-Usage |    GPU-Util  Compute M. |\n"
    out += "|              Persistence-M |                       |                  SVI M. |\n"
    out += RULE.replace("-", "=") + "\n"
    for card in cards:
        memory = f"{card['used']}MiB / {card['total']}MiB"
        power = f"{card['power']}W / {card['limit']}W"
        out += f"| {card['index']:>5}{card['name']:>21} | {card['bus_id']:>21} | {card['ecc']:>23} |\n"
        left = f"{card['temperature']:>5}{card['perf']:>6}{power:>15}"
        out += f"| {left} | {memory:>21} | {card['utilization']:>11}{card['compute']:>12} |\n"
        out += f"| {card['persistence']:>26} | {'':>21} | {card['svi']:>23} |\n{RULE}\n"
    return out + processes()


def processes():
    return (
        f"{WIDE}\n| {'Processes:':<77}|\n| GPU   SVI Dev        PID   Process Name{' ' * 21}GPU Memory Usage |\n"
        f"+{'=' * 78}+\n|  {'No running process found.':<76}|\n{WIDE}\n"
    )


def query(fields, cards, header, units):
    """The CSV answer: one line a card, fields as asked for."""
    out = ""
    if header:
        out += ", ".join(f"{name} [{UNITS[name]}]" if units and name in UNITS else name for name in fields) + "\n"
    for card in cards:
        cells = []
        for name in fields:
            value = card.get(name, "[N/A]")
            cells.append(f"{value} {UNITS[name]}" if units and name in UNITS and value != "[N/A]" else str(value))
        out += ", ".join(cells) + "\n"
    return out
