"""Small files that recovery reads: checkpoint, state and recovery note; an unreadable file counts as missing."""

from __future__ import annotations

from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.checkpoint import Checkpoint, decode_checkpoint
from orbitlog.formats.store_state import (
    RECOVERY_FILE,
    STATE_FILE,
    StoreState,
    decode_recovery_note,
    decode_state,
    encode_recovery_note,
)
from orbitlog.store.disk import Disk


def read_checkpoint(disk: Disk, root: Path) -> Checkpoint:
    """Return the checkpoint; zeros if it is missing or unreadable, which means that everything must be read."""
    raw = disk.read_file(root / tree.CHECKPOINT)
    try:
        return decode_checkpoint(raw) if raw else Checkpoint()
    except FormatError:
        return Checkpoint()


def read_state(disk: Disk, root: Path) -> StoreState | None:
    raw = disk.read_file(root / STATE_FILE)
    try:
        return decode_state(raw) if raw else None
    except FormatError:
        return None


def read_recovery_note(disk: Disk, root: Path) -> int | None:
    """Return the offset that a recovery noted which did not end; None if there was none."""
    raw = disk.read_file(root / RECOVERY_FILE)
    try:
        return decode_recovery_note(raw) if raw else None
    except FormatError:
        return None


def write_recovery_note(disk: Disk, root: Path, dispatched_before: int) -> None:
    disk.replace_file(root / RECOVERY_FILE, encode_recovery_note(dispatched_before))


def remove_recovery_note(disk: Disk, root: Path) -> None:
    """Remove the note of a recovery that has ended; if a power cut brings it back, the valid state file is used."""
    disk.remove_file(root / RECOVERY_FILE)
