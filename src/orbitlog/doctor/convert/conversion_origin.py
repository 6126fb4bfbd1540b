"""Origin of an interrupted conversion: whether this user began it on this machine, from the log as it is now.

The working directory of a conversion is beside the new store, and an archive may contain both a store and a directory
of that name: with links that direct writes elsewhere, or with a log of the attacker's choice. So a run signs what it
begins before it writes anything else, and a later one continues only there. The signed origin is a file beside the
directory: it must stay until the directory has the name of the new store, and must not get into that store.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orbitlog.errors import StoreLayoutError, StoreLinkError
from orbitlog.jobs.rebuild.rebuild_publish import log_identities
from orbitlog.jobs.run_marks import is_own, mark_of
from orbitlog.storefiles.confined.regular_files import read_regular
from orbitlog.storefiles.confined.store_links import find_links
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_files import StoreFiles

_SUFFIX = ".json"
_TEMPORARY_SUFFIX = ".orbitlog-new"  # under this name the disk writes a file before it replaces another


def begin_or_continue(disk: Disk, store: StoreFiles, work: Path) -> None:
    """Sign a new working directory; raise `StoreLayoutError` for one that is another's, or of another log.

    Raise it also if an entry of another kind has a name that is needed, and `StoreLinkError` for a link.
    """
    for link in [work] if work.is_symlink() else find_links(work):
        raise StoreLinkError(f"{link} is a link to {link.readlink()}: remove {work} and run the command again")
    if work.exists() and not work.is_dir():
        raise StoreLayoutError(f"{work} is not a directory: remove or rename it and run the command again")
    wanted = {"store": str(store.root.resolve()), "log": log_identities(store)}
    if not work.exists() or not any(work.iterdir()):
        _refuse_foreign_origin(_origin_file(work))
        disk.replace_file(_origin_file(work), json.dumps({**wanted, "mark": mark_of(wanted)}).encode())
        disk.make_directory(work)
        return
    origin = _own_origin(_origin_file(work))
    if origin is None:
        raise StoreLayoutError(
            f"{work} was not begun by this user on this machine: remove that directory and run the command again"
        )
    if origin != wanted:
        raise StoreLayoutError(
            f"{work} is a conversion of this store as it was earlier, or of another one; remove that directory and run"
            " the command again"
        )


def forget_origin(disk: Disk, work: Path) -> None:
    """Remove the origin of a directory that has got the name of the new store."""
    disk.remove_file(_origin_file(work))


def _origin_file(work: Path) -> Path:
    return work.with_name(work.name + _SUFFIX)


def _refuse_foreign_origin(path: Path) -> None:
    """Raise `StoreLayoutError` for an entry that no run of this user wrote, as it would be overwritten and removed."""
    if not path.is_symlink() and path.exists() and _own_origin(path) is None:
        raise StoreLayoutError(
            f"{path} was not written by a conversion of this user on this machine: remove or rename it and run the"
            " command again"
        )
    temporary = path.with_name(path.name + _TEMPORARY_SUFFIX)
    if not temporary.is_symlink() and temporary.is_dir():
        raise StoreLayoutError(f"{temporary} is a directory: remove or rename it and run the command again")


def _own_origin(path: Path) -> dict[str, Any] | None:
    """Return what the directory was begun with; None if it does not state that, or if another user or machine did."""
    try:
        origin = json.loads(read_regular(path))
        if isinstance(origin, dict) and is_own(origin, origin.pop("mark", None)):
            return origin
    except (ValueError, RecursionError, OSError, StoreLayoutError):
        pass  # not what a run writes
    return None
