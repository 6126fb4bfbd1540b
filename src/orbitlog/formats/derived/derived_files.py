"""ConsumeQueue and IndexFile bytes from messages, in memory and in plain Python.

The reference that every faster engine must equal. It places a unit by its queue offset; a queue whose first unit
is not at the start of a file gets pre-blank units before it, as Java writes them.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitlog.errors import BadField
from orbitlog.formats.derived.derive import DeriveRules, QueueUnit, index_hashes, queue_units
from orbitlog.formats.derived.index_layout import IndexLayout, IndexWriter
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW, encode_entry, locate_entry
from orbitlog.formats.records.message import Message

QueueFiles = dict[int, bytearray]


class DerivedFiles:
    """Everything derived from the messages added so far."""

    def __init__(self, rules: DeriveRules, *, queue_file_bytes: int, index_layout: IndexLayout) -> None:
        self._rules = rules
        self._queue_file_bytes = queue_file_bytes
        self._index_layout = index_layout
        self._index_writer: IndexWriter | None = None
        self.queues: dict[tuple[str, int], QueueFiles] = {}
        self.index_files: list[bytearray] = []

    def add(self, messages: Iterable[Message]) -> None:
        """Add messages in the order of the log."""
        for message in messages:
            for unit in queue_units(message, self._rules):
                self._put_unit(unit)
            # Java looks for a file with room before it looks for keys: a message without keys also creates one.
            self._index_with_room()
            for hashed_key in index_hashes(message, self._rules.compat):
                writer = self._index_with_room()
                accepted = writer.put(hashed_key, message.physical_offset, message.store_timestamp_ms)
                assert accepted

    def _put_unit(self, unit: QueueUnit) -> None:
        if unit.queue_offset < 0 or unit.entry.physical_offset < 0:
            offsets = f"queue offset {unit.queue_offset}, physical offset {unit.entry.physical_offset}"
            raise BadField(f"{offsets} out of range", field="queue unit")
        base, position = locate_entry(unit.queue_offset, self._queue_file_bytes)
        files = self.queues.setdefault((unit.topic, unit.queue_id), {})
        if base not in files:
            files[base] = bytearray(self._queue_file_bytes)
            if len(files) == 1:
                files[base][:position] = PRE_BLANK_RAW * (position // ENTRY_BYTES)
        files[base][position : position + ENTRY_BYTES] = encode_entry(unit.entry)

    def _index_with_room(self) -> IndexWriter:
        writer = self._index_writer
        if writer is None or writer.is_full:
            self.index_files.append(bytearray(self._index_layout.file_bytes))
            after = writer.header if writer else None
            writer = self._index_writer = IndexWriter(self.index_files[-1], self._index_layout, after=after)
        return writer
