"""Store use: whether another process uses a store, and up to which offset its log may be read meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from orbitlog.errors import StoreLocked
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.dispatch_marks import LEASE_LOCK_FILE
from orbitlog.formats.derived.store_state import CONFIRMED, CONFIRMED_FILE
from orbitlog.storefiles.confined.regular_files import read_below
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.store_files import StoreFiles
from orbitlog.storefiles.store_log import committed_end


@dataclass(frozen=True, slots=True)
class StoreUse:
    """How a command uses a store: beside other processes, or alone after `taken` has locked it for the command."""

    is_alone: bool = False

    def is_in_use(self, store: StoreFiles) -> bool:
        """Return whether another process has the store's lock."""
        return self._holder(store) is not None

    def confirmed_to(self, store: StoreFiles) -> int | None:
        """Return the physical offset up to which the log may be read; None if it may be read completely.

        That is the offset that a broker of Orbitlog publishes while it uses the store, and else the committed end of a
        DLedger log. Raise `StoreLocked` if the process that uses it does not publish it, as Java's broker.
        """
        holder = self._holder(store)
        if holder is None:
            return committed_end(store)
        raw = read_below(store.root, store.root / CONFIRMED_FILE) or b""
        if len(raw) < CONFIRMED.size_bytes:
            raise StoreLocked(
                f"{store.root} is in use by process {holder}, which does not publish the end of its log; stop it first"
            )
        return int(CONFIRMED.struct.unpack_from(raw)[0])

    def _holder(self, store: StoreFiles) -> int | None:
        # A process that asks for the holder of its own lock would be named itself.
        if self.is_alone or store.lock is None:
            return None
        return RealDisk().lock_holder(store.root / tree.LOCK)


SHARED_USE = StoreUse()


@contextmanager
def taken(root: Path) -> Iterator[StoreUse]:
    """Lock a store for the block; raise `StoreLocked` if a broker or a dispatcher uses it."""
    disk = RealDisk()
    with ExitStack() as locks:
        locks.callback(disk.lock_file(root / tree.LOCK, tree.LOCK_CONTENT).release)
        if (root / tree.COMMITLOG).is_dir():  # a broker with another root may write to it
            locks.callback(disk.lock_directory(root / tree.COMMITLOG).release)
        if disk.lock_holder(root / LEASE_LOCK_FILE) is not None:
            raise StoreLocked(f"{root} is being dispatched by another process; stop it first")
        yield StoreUse(is_alone=True)
