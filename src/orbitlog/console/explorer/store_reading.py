"""Access to store directories: by the name that the start gave them; the browser never names a path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orbitlog.console.views.answers import ConsoleError
from orbitlog.storefiles.store_files import StoreFiles, find_store_files


def named_stores(paths: tuple[Path, ...]) -> dict[str, Path]:
    """Return a unique short name for each directory: its last part, with a number if several have the same."""
    stores: dict[str, Path] = {}
    for path in paths:
        start = path.resolve().name or "store"
        name, number = start, 1
        while name in stores:
            number += 1
            name = f"{start}-{number}"
        stores[name] = path.resolve()
    return stores


def store_path(stores: Mapping[str, Path], name: str) -> Path:
    """Return the directory of a store; raise `ConsoleError` if none has this name."""
    path = stores.get(name)
    if path is None:
        known = ", ".join(stores) or "none; start the console with --store DIR"
        raise ConsoleError(404, f"unknown store {name[:80]!r}; this console has: {known}")
    return path


def store_files(stores: Mapping[str, Path], name: str) -> StoreFiles:
    return find_store_files(store_path(stores, name))
