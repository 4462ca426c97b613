"""The vendors: one folder each, found by listing. `read_output` is the one entry for text.

A vendor is `drivers/<name>/`, `compat_matrix/<name>/` and `playbooks/roles/<name>/`; a folder of the setting
`vendor_path` may hold the same three subfolders for vendors that are not part of this distribution.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from drivers.text import clean
from fleet.core.errors import NotFound
from fleet.core.vendor import Reading, Vendor, unparsed

_HERE = Path(__file__).parent


def _folders(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if (p / "__init__.py").is_file()) if root.is_dir() else []


@lru_cache
def vendors(vendor_path: tuple[str, ...] = ()) -> dict[str, Vendor]:
    """name -> Vendor, of this distribution and of each folder in `vendor_path` (which holds `drivers/<name>/`)."""
    found: dict[str, Vendor] = {}
    for folder in _folders(_HERE):
        found[folder.name] = importlib.import_module(f"drivers.{folder.name}").VENDOR
    for root in vendor_path:
        for folder in _folders(Path(root) / "drivers"):
            found[folder.name] = _load(folder)
    return found


def _load(folder: Path) -> Vendor:
    name = f"drivers.{folder.name}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise NotFound(f"vendor folder {folder} cannot be loaded", slug="unknown-vendor")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    vendor: Vendor = sys.modules[name].VENDOR
    return vendor


def get(name: str, vendor_path: Iterable[str] = ()) -> Vendor:
    """The vendor of that name; NotFound when there is none."""
    known = vendors(tuple(vendor_path))
    if name not in known:
        raise NotFound(f"vendor {name!r} is not known", hint=f"known are: {', '.join(known)}", slug="unknown-vendor")
    return known[name]


def read_output(
    vendor: str, command: str, output: bytes, rc: int | None = None, vendor_path: Iterable[str] = ()
) -> Reading:
    """What `output` of `command` means. Never raises for any output: what is not understood is `unparsed`."""
    adapter = get(vendor, vendor_path)
    text = clean(output)
    if text is None:
        return unparsed(vendor, command, "the output is binary or larger than fleet reads")
    return adapter.read(command, text, rc)
