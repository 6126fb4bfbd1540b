"""Whether a broker is using a store, and how far its log may be read meanwhile."""

from __future__ import annotations

from orbitlog.errors import StoreLocked
from orbitlog.formats import store_tree as tree
from orbitlog.formats.store_state import CONFIRMED, CONFIRMED_FILE
from orbitlog.store.disk import RealDisk
from orbitlog.store.store_files import StoreFiles


def is_in_use(store: StoreFiles) -> bool:
    return _holder(store) is not None


def confirmed_to(store: StoreFiles) -> int | None:
    """Return the physical offset up to which a store in use may be read; None where nobody uses it."""
    holder = _holder(store)
    if holder is None:
        return None
    path = store.root / CONFIRMED_FILE
    raw = path.read_bytes() if path.exists() else b""
    if len(raw) < CONFIRMED.size_bytes:
        raise StoreLocked(f"{store.root} is in use by process {holder}, which does not say how far its log is; stop it")
    return int(CONFIRMED.struct.unpack_from(raw)[0])


def _holder(store: StoreFiles) -> int | None:
    return None if store.lock is None else RealDisk().lock_holder(store.root / tree.LOCK)
