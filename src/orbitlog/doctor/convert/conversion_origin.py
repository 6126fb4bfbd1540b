"""Origin of an interrupted conversion: whether this user began it on this machine, from the log as it is now.

The working directory of a conversion is beside the new store, and an archive may contain both a store and a directory
of that name: with links that direct writes elsewhere, or with a log of the attacker's choice. So a run signs the
directory before it writes anything else, and a later one continues only there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orbitlog.errors import StoreLayoutError, StoreLinkError
from orbitlog.jobs.rebuild.rebuild_publish import log_identities
from orbitlog.jobs.run_marks import is_own, mark_of
from orbitlog.storefiles.confined.regular_files import read_below
from orbitlog.storefiles.confined.store_links import find_links
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_files import StoreFiles

_FILE = "origin.json"


def begin_or_continue(disk: Disk, store: StoreFiles, work: Path, state: Path) -> None:
    """Sign a new working directory; raise `StoreLayoutError` for one that is another's, or of another log.

    Raise `StoreLinkError` if it is a link or has one.
    """
    for link in [work] if work.is_symlink() else find_links(work):
        raise StoreLinkError(f"{link} is a link to {link.readlink()}: remove {work} and run the command again")
    wanted = {"store": str(store.root.resolve()), "log": log_identities(store)}
    if _is_unsigned(work, state):
        disk.make_directory(state)
        disk.replace_file(state / _FILE, json.dumps({**wanted, "mark": mark_of(wanted)}).encode())
        return
    origin = _own_origin(work, state / _FILE)
    if origin is None:
        raise StoreLayoutError(
            f"{work} was not begun by this user on this machine: remove that directory and run the command again"
        )
    if origin != wanted:
        raise StoreLayoutError(
            f"{work} is a conversion of this store as it was earlier, or of another one; remove that directory and run"
            " the command again"
        )


def _is_unsigned(work: Path, state: Path) -> bool:
    """Return whether the directory is missing or empty, or is what a run leaves that was killed before it signed."""
    if not work.exists():
        return True
    names = {path.name for path in work.iterdir()}
    in_state = {path.name for path in state.iterdir()} if state.is_dir() else set()
    return names <= {state.name} and in_state <= {f"{_FILE}.orbitlog-new"}


def _own_origin(work: Path, path: Path) -> dict[str, Any] | None:
    """Return what the directory was begun with; None if it does not state that, or if another user or machine did."""
    try:
        origin = json.loads(read_below(work, path) or b"")
        if isinstance(origin, dict) and is_own(origin, origin.pop("mark", None)):
            return origin
    except (ValueError, RecursionError, OSError, StoreLayoutError):
        pass  # not what a run writes
    return None
