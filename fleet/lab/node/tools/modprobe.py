"""modprobe, rmmod, insmod and lsmod of a lab node: argv[1] is the name under which the program was called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import labnode
else:
    import labnode


def _fail(text: str) -> int:
    sys.stderr.write(text + "\n")
    return 1


def modprobe(arguments: list[str]) -> int:
    remove = quiet = dry = False
    names = []
    for argument in arguments:
        if argument in {"-r", "--remove"}:
            remove = True
        elif argument in {"-q", "--quiet"}:
            quiet = True
        elif argument in {"-n", "--dry-run", "--show"}:
            dry = True
        elif not argument.startswith("-") and "=" not in argument:
            names.append(argument)
    for name in names if remove or "-a" in arguments or "--all" in arguments else names[:1]:
        if dry:
            rc, text = (0, "") if labnode.module_files(name) else (1, "")
        elif remove:
            rc, text = labnode.unload_module(name)
            if rc:
                what = "is not found." if labnode.loaded(name) is None else "is in use."
                text = f"modprobe: FATAL: Module {name} {what}"
                if what == "is not found." and labnode.module_files(name):
                    continue  # not loaded: nothing to remove, as the real one says nothing
        else:
            rc, text = labnode.load_module(name)
        if rc:
            return 1 if quiet else _fail(text)
    return 0


def rmmod(arguments: list[str]) -> int:
    code = 0
    for name in [a for a in arguments if not a.startswith("-")]:
        rc, text = labnode.unload_module(name.removesuffix(".ko"))
        if rc:
            code = _fail(text)
    return code


def insmod(arguments: list[str]) -> int:
    files = [a for a in arguments if not a.startswith("-") and "=" not in a]
    if not files:
        return _fail("insmod: ERROR: missing filename.")
    file = Path(files[0])
    if not file.is_file():
        return _fail(f"insmod: ERROR: could not load module {files[0]}: No such file or directory")
    why = labnode.insert(file.name.split(".ko")[0].replace("-", "_"), file)
    if why == "Exec format error":
        why = "Invalid module format"
    return _fail(f"insmod: ERROR: could not insert module {files[0]}: {why}") if why else 0


def lsmod() -> int:
    print("Module                  Size  Used by")
    for name in reversed(list(labnode.state().get("modules", {}))):
        above = labnode.users(name)
        files = labnode.module_files(name)
        size = files[0].stat().st_size if files else 16384
        used = len(above) + len(labnode.holders(name))
        print(f"{name:<19} {size:>8}  {used}{' ' + ','.join(above) if above else ''}")
    return 0


def main() -> int:
    labnode.refuse_outside_lab()
    called, arguments = sys.argv[1], sys.argv[2:]
    if called == "modprobe":
        return modprobe(arguments)
    if called == "rmmod":
        return rmmod(arguments)
    return insmod(arguments) if called == "insmod" else lsmod()


if __name__ == "__main__":
    sys.exit(main())
