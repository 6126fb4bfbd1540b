"""Whether a broker is using a store, and how far its log may be read meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orbitlog.errors import StoreLocked
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.dispatch_marks import LEASE_LOCK_FILE
from orbitlog.formats.derived.store_state import CONFIRMED, CONFIRMED_FILE
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.store_files import StoreFiles

# Stores that a command of this process has taken for itself.
_TAKEN: set[Path] = set()


@contextmanager
def taken(root: Path) -> Iterator[None]:
    """Keep brokers out while the block runs; raises `StoreLocked` where one uses the store."""
    disk = RealDisk()
    with ExitStack() as locks:
        locks.callback(disk.lock_file(root / tree.LOCK, tree.LOCK_CONTENT).release)
        if (root / tree.COMMITLOG).is_dir():  # a broker with another root may write to it
            locks.callback(disk.lock_directory(root / tree.COMMITLOG).release)
        if disk.lock_holder(root / LEASE_LOCK_FILE) is not None:
            raise StoreLocked(f"{root} is being dispatched by another process; stop it first")
        _TAKEN.add(root.resolve())
        locks.callback(_TAKEN.discard, root.resolve())
        yield


def is_in_use(store: StoreFiles) -> bool:
    return _holder(store) is not None


def confirmed_to(store: StoreFiles) -> int | None:
    """Return the physical offset up to which a store in use may be read; None where nobody uses it."""
    holder = _holder(store)
    if holder is None:
        return None
    path = store.root / CONFIRMED_FILE
    raw = path.read_bytes() if path.is_file() else b""
    if len(raw) < CONFIRMED.size_bytes:
        raise StoreLocked(f"{store.root} is in use by process {holder}, which does not say how far its log is; stop it")
    return int(CONFIRMED.struct.unpack_from(raw)[0])


def _holder(store: StoreFiles) -> int | None:
    if store.root.resolve() in _TAKEN:
        return None
    return None if store.lock is None else RealDisk().lock_holder(store.root / tree.LOCK)
