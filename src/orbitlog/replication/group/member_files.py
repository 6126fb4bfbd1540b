"""Member files: epochs, boot note and kept tails of one group member, below `orbitlog.group` in its store.

epochs                 the epochs of the log, in the format of Java's `epochFileCheckpoint`; in a group of Apache's
                       controller that file has them as well, and counts
boot                   the boot of the machine at which the member last ran with all bytes that it had reported
lost/<epoch>-<a>-<b>   bytes a to b of the log, which the member gave up because the elected master lacks them
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from orbitlog.errors import FormatError, StoreError
from orbitlog.formats.derived.epoch_file import EPOCH_FILE, EpochEntry, decode_epoch_file, encode_epoch_file
from orbitlog.formats.derived.store_state import EPOCHS_FILE, GROUP_DIRECTORY
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import BLANK, BLANK_BYTES, MAGIC_BLANK, read_at
from orbitlog.storefiles.disk import Disk, disk_errors

_BOOT = "boot"
_LOST = "lost"
_BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")
_TAIL_NAME = re.compile(r"([0-9]{1,10})-([0-9]{1,19})-([0-9]{1,19})")
_CHUNK_BYTES = 1024 * 1024
_TAILS_SHOWN_MAX = 1000

ReadLog = Callable[[int, int], bytes]
"""Returns bytes of the log from an offset on, at most to the end of their segment."""


class KeptTail(NamedTuple):
    """A range of the log that a member gave up, and the file that has its bytes."""

    epoch: int
    physical_offset: int
    end: int
    path: Path


class MemberFiles:
    """The files of one member; written through its store's disk, in one thread."""

    def __init__(self, disk: Disk, root: Path, boot_id: str | None = None, *, is_controlled: bool = False) -> None:
        self._disk = disk
        self._directory = root / GROUP_DIRECTORY
        self._epochs_path = root / (EPOCH_FILE if is_controlled else EPOCHS_FILE)
        self._mark_path = root / EPOCHS_FILE
        self._counts: dict[Path, int] = {}
        self._boot_id = machine_boot_id() if boot_id is None else boot_id

    # Epochs

    def read_epochs(self) -> tuple[EpochEntry, ...]:
        """Return the epochs of the log; raise `StoreError` if the file is damaged."""
        raw = self._disk.read_file(self._epochs_path)
        if raw is None:
            return ()
        try:
            return decode_epoch_file(raw.decode("ascii", "replace"))
        except FormatError as error:
            raise StoreError(
                f"{self._epochs_path}: {error}; without its epochs this log cannot be compared with that of the master:"
                " move the store away and start the member with an empty one"
            ) from error

    def save_epochs(self, entries: tuple[EpochEntry, ...]) -> None:
        """Replace the epoch file, durably."""
        self._disk.make_directory(self._directory)
        content = encode_epoch_file(entries).encode("ascii")
        if entries or self._epochs_path == self._mark_path:  # Java writes no file without entries
            self._disk.replace_file(self._epochs_path, content)
        if self._epochs_path != self._mark_path:
            self._disk.replace_file(self._mark_path, content)  # opening the store looks for it

    # Power cuts

    def may_have_lost_bytes(self, *, was_closed: bool, is_empty: bool) -> bool:
        """Return whether bytes that this member reported may be lost: the machine stopped, and the store did not."""
        if was_closed or is_empty:
            return False
        raw = self._disk.read_file(self._directory / _BOOT)
        return not self._boot_id or raw is None or raw.decode("ascii", "replace") != self._boot_id

    def is_new(self, *, is_empty: bool) -> bool:
        """Return whether the store has never been this member's; an earlier one may have been lost with its disk."""
        return is_empty and self._disk.read_file(self._directory / _BOOT) is None

    def note_boot(self) -> None:
        """Record, durably, that this boot of the machine has every byte that the member reported."""
        self._disk.make_directory(self._directory)
        self._disk.replace_file(self._directory / _BOOT, self._boot_id.encode("ascii"))

    # Kept tails

    def keep_tail(self, last_epoch: int, physical_offset: int, end: int, read: ReadLog) -> KeptTail:
        """Copy a range of the log to a file of its own, durably. A copy that was interrupted is replaced."""
        directory = self._directory / _LOST
        self._disk.make_directory(directory)
        name = f"{last_epoch}-{physical_offset}-{end}"
        unfinished = directory / f"{name}.new"
        self._disk.remove_file(unfinished)
        with disk_errors(f"writing {unfinished}"):
            file = self._disk.create_plain(unfinished)
            try:
                position = physical_offset
                while position < end:
                    data = read(position, min(_CHUNK_BYTES, end - position))
                    file.write(position - physical_offset, data)
                    position += len(data)
                file.sync()
            finally:
                file.close()
            self._disk.rename_file(unfinished, name)
            self._disk.sync_directory(directory)
        return KeptTail(last_epoch, physical_offset, end, directory / name)

    def kept_tails(self) -> list[KeptTail]:
        """Return the ranges that this member gave up, oldest epoch first."""
        directory = self._directory / _LOST
        tails = []
        for entry in self._disk.list_directory(directory)[:_TAILS_SHOWN_MAX]:
            match = _TAIL_NAME.fullmatch(entry.name)
            if match is not None and not entry.is_directory:
                tails.append(KeptTail(int(match[1]), int(match[2]), int(match[3]), directory / entry.name))
        return sorted(tails)

    def count_messages(self, tail: KeptTail) -> int:
        """Return the number of complete messages of a kept tail; each file is read once."""
        count = self._counts.get(tail.path)
        if count is None:
            count = self._counts[tail.path] = sum(1 for _ in self.tail_messages(tail))
        return count

    def tail_messages(self, tail: KeptTail) -> Iterator[Message]:
        """Yield the complete messages of a kept tail."""
        raw = self._disk.read_file(tail.path) or b""
        position = 0
        while position + BLANK_BYTES <= len(raw):
            size_bytes, magic = BLANK.struct.unpack_from(raw, position)
            if magic == MAGIC_BLANK and size_bytes > 0:
                position += size_bytes  # the tail continues in the next segment
                continue
            found = read_at(raw, position, base_physical_offset=tail.physical_offset)
            if not isinstance(found, Message):
                return
            yield found
            position += size_bytes


def machine_boot_id() -> str:
    """Return the id of this boot of the machine; empty if the system does not state one."""
    try:
        return _BOOT_ID_PATH.read_text(encoding="ascii").strip()
    except OSError:
        return ""
