"""Offline writer: writes a new store for tests and demonstrations, without broker and recovery.

The log is written as messages are added; queues, index, checkpoint and topics.json are kept in memory and written by
`close`, so it is for small stores. Every file gets its exact size, and the store timestamp of its last message as
modification time (4.x brokers search by it). It is synced and never replaces another: the store must be new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType

from orbitlog.errors import BadField, LimitExceeded, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import Checkpoint, encode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import decode_header
from orbitlog.formats.derived.queue_entry import locate_entry
from orbitlog.formats.names import check_stored_topic
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import Message, assign_fields, encode_message
from orbitlog.formats.records.message_scan import BLANK_BYTES, encode_blank, fits
from orbitlog.formats.records.property_crc import ends_with_crc, seal_record
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig, TopicTable
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.storefiles.disk import Disk, PlainFile, RealDisk

_TOPICS_FILE = "topics.json"
_WRITE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Offsets and timestamp assigned to a message."""

    physical_offset: int
    queue_offset: int
    store_timestamp_ms: int
    size_bytes: int


class OfflineStoreWriter:
    """A new store at `root`, which must not exist or be empty; the store is complete only after `close`."""

    def __init__(self, root: Path, geometry: StoreGeometry, rules: DeriveRules, disk: Disk | None = None) -> None:
        self._disk = disk or RealDisk()
        if root.is_file() or self._disk.list_directory(root):
            raise StoreLayoutError(f"{root} is not an empty directory; give a new one, nothing is ever overwritten")
        self._root = root
        self._geometry = geometry
        self._rules = rules
        self._derived = DerivedFiles(
            rules, queue_file_bytes=geometry.queue_file_bytes, index_layout=geometry.index_layout
        )
        self._segment: PlainFile | None = None
        self._unwritten = bytearray()  # the last bytes of the segment
        self._physical_offset = 0
        self._last_ms = 0
        self._last_message_offset = 0
        self._next_queue_offsets: dict[tuple[str, int], int] = {}
        self._queue_file_ms: dict[tuple[str, int, int], int] = {}
        self._is_closed = False
        # Directories whose entries are not durable yet.
        self._unsynced = {*self._disk.make_directory(root / tree.COMMITLOG, durable=False), root / tree.COMMITLOG}

    def append(self, message: Message) -> AppendResult:
        """Add a message; its queue offset, physical offset and store timestamp are assigned here."""
        return self.append_batch([message])[0]

    def append_batch(self, messages: Sequence[Message]) -> list[AppendResult]:
        """Add messages that were sent together: all of them in one segment."""
        assert not self._is_closed
        records = [self._encode(message) for message in messages]
        total_bytes = sum(map(len, records))
        if not fits(total_bytes, self._geometry.segment_bytes):
            raise LimitExceeded(field="record size", limit=self._geometry.segment_bytes - BLANK_BYTES, got=total_bytes)
        self._make_room(total_bytes)
        return [self._put(message, record) for message, record in zip(messages, records, strict=True)]

    def _encode(self, message: Message) -> bytearray:
        check_stored_topic(message.topic)
        if message.version != 1 and not self._rules.compat.long_topics:
            raise BadField(f"brokers of {self._rules.compat.name} read no V2 records", field="record version")
        return bytearray(encode_message(message))

    def _put(self, message: Message, record: bytearray) -> AppendResult:
        key = message.topic, message.queue_id
        enters_queue = flags.enters_queue(message.sys_flag)
        queue_offset = self._next_queue_offsets.get(key, 0) if enters_queue else 0
        physical_offset = self._last_message_offset = self._physical_offset
        store_timestamp_ms = self._last_ms = max(message.store_timestamp_ms, self._last_ms)
        assign_fields(
            record,
            0,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            store_timestamp_ms=store_timestamp_ms,
        )
        self._write_log(seal_record(bytes(record)) if ends_with_crc(message.properties_raw) else record)
        assigned = message._replace(
            queue_offset=queue_offset, physical_offset=physical_offset, store_timestamp_ms=store_timestamp_ms
        )
        self._derived.add([assigned])
        if enters_queue:
            self._next_queue_offsets[key] = queue_offset + 1
            file_base, _ = locate_entry(queue_offset, self._geometry.queue_file_bytes)
            self._queue_file_ms[*key, file_base] = store_timestamp_ms
        return AppendResult(physical_offset, queue_offset, store_timestamp_ms, len(record))

    def close(self) -> None:
        """Write and sync all derived files; further calls do nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._finish_segment()
        self._write_queues()
        complete_until_ms = self._write_index()
        if self._last_ms:
            self._write(Path(tree.CHECKPOINT), self._checkpoint(complete_until_ms), self._last_ms)
            self._write(Path(tree.CONFIG, _TOPICS_FILE), self._topics(), self._last_ms)
        for directory in sorted(self._unsynced):
            self._disk.sync_directory(directory)

    def __enter__(self) -> OfflineStoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self.close()
        elif self._segment is not None:
            self._segment.close()

    def _make_room(self, record_bytes: int) -> None:
        """Start a segment if the current one, if any, has no room for the records."""
        room = self._geometry.segment_bytes - self._physical_offset % self._geometry.segment_bytes
        if self._segment is not None and not fits(record_bytes, room):
            self._write_log(encode_blank(room))
            self._finish_segment()
            self._physical_offset += room - BLANK_BYTES
        if self._segment is None:
            self._segment = self._create(Path(tree.COMMITLOG, tree.offset_file_name(self._physical_offset)))

    def _write_log(self, data: bytes | bytearray) -> None:
        self._unwritten += data
        self._physical_offset += len(data)
        if len(self._unwritten) >= _WRITE_BYTES:
            self._write_pending()

    def _write_pending(self) -> None:
        assert self._segment is not None
        position = (self._physical_offset - len(self._unwritten)) % self._geometry.segment_bytes
        self._segment.write(position, self._unwritten)
        self._unwritten = bytearray()

    def _finish_segment(self) -> None:
        if self._segment is not None:
            self._write_pending()
            self._segment.resize(self._geometry.segment_bytes)
            self._finish(self._segment, self._last_ms)
            self._segment = None

    def _write_queues(self) -> None:
        for (topic, queue_id), queue_files in self._derived.queues.items():
            for file_base, content in queue_files.items():
                path = Path(tree.queue_directory(topic, queue_id), tree.offset_file_name(file_base))
                # Units of light queues have no queue offset in the record, hence no timestamp.
                self._write(path, content, self._queue_file_ms.get((topic, queue_id, file_base), self._last_ms))

    def _write_index(self) -> int:
        """Write the index files; return the store timestamp up to which they are complete: the last one never is."""
        complete_until_ms = 0
        made_at = datetime.min
        for number, content in enumerate(self._derived.index_files, start=1):
            header = decode_header(content)
            made_at = tree.index_file_time(header.begin_timestamp_ms, made_at)
            self._write(Path(tree.INDEX, tree.index_file_name(made_at)), content, header.end_timestamp_ms)
            if number < len(self._derived.index_files):
                complete_until_ms = header.end_timestamp_ms
        return complete_until_ms

    def _checkpoint(self, complete_until_ms: int) -> bytes:
        checkpoint = Checkpoint(
            physic_msg_timestamp_ms=self._last_ms,
            logics_msg_timestamp_ms=self._last_ms,
            index_msg_timestamp_ms=complete_until_ms,
            logics_physical_offset=self._last_message_offset,
        )
        return encode_checkpoint(checkpoint, self._rules.compat)

    def _topics(self) -> bytes:
        counts: dict[str, int] = {}
        for topic, queue_id in sorted(self._derived.queues):
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        topics = {topic: TopicConfig(topic, count, count) for topic, count in counts.items()}
        version = DataVersion(counter=len(topics), timestamp_ms=self._last_ms)
        return config_codec(_TOPICS_FILE).encode(TopicTable(topics=topics, data_version=version), self._rules.compat)

    def _write(self, path: Path, content: bytes | bytearray, modified_ms: int) -> None:
        file = self._create(path)
        file.write(0, content)
        self._finish(file, modified_ms)

    def _create(self, path: Path) -> PlainFile:
        """Create a file, with its directory; `close` syncs both names."""
        target = self._root / path
        self._unsynced.update(self._disk.make_directory(target.parent, durable=False), (target.parent,))
        return self._disk.create_plain(target)

    @staticmethod
    def _finish(file: PlainFile, modified_ms: int) -> None:
        file.set_modified(modified_ms * 1_000_000)
        file.sync()
        file.close()
