"""Queue reader: reads messages from a queue offset on, within limits, with Java's statuses (GetMessageStatus).

A read stays within one ConsumeQueue file and a bounded number of units; the result contains the next queue offset.
Mirrors Java `DefaultMessageStore.getMessage`.

Records are checked before they are returned, including the CRC of the body. Records that this process wrote and that
are still in memory, which nearly every consumer reads, take a fast path: only size, magic and physical offset are
compared with the unit. A read of joined records without a filter does so in a kernel, if it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol
from zlib import crc32

from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QUEUE_ENTRY
from orbitlog.formats.derived.queue_ext import is_ext_address
from orbitlog.formats.hosts import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from orbitlog.formats.java import INT_MAX, string_hash
from orbitlog.formats.records.flags import BORN_HOST_IPV6, STORE_HOST_IPV6
from orbitlog.formats.records.message import (
    BODY_CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    RECORD_PREFIX,
    RECORD_START,
    RECORD_TAIL,
    decode_message,
)
from orbitlog.formats.records.properties import TAGS
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.log.commitlog import CommitLog

_HEAD = RECORD_PREFIX.partial("total_size", "magic", "body_crc", "physical_offset", "sys_flag")
_unpack_start = RECORD_START.unpack_from
_iter_units = QUEUE_ENTRY.struct.iter_unpack
_unpack_unit = QUEUE_ENTRY.struct.unpack_from
_MAGICS = (MAGIC_V1, MAGIC_V2)
_SCANNED_UNITS_MIN = 16000 // ENTRY_BYTES
# A filter over whole records costs microseconds each, which every other client waits for: a read looks at fewer.
_FILTERED_UNITS_MIN = 128
_FILTERED_BYTES_MAX = 128 * 1024

TagsFilter = Callable[[int], bool]
RecordFilter = Callable[[bytes], bool]


class GetStatus(Enum):
    """Java's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadLimits(NamedTuple):
    """Limits of one read; lower ones for old messages, which must be read from disk."""

    count_in_memory: int = 32
    bytes_in_memory: int = 256 * 1024
    count_on_disk: int = 8
    bytes_on_disk: int = 64 * 1024
    memory_bytes: int = 8 * 1024**3


_DEFAULT_LIMITS = ReadLimits()


@dataclass(slots=True)
class GetResult:
    """Raw records, and the queue offset of the next read."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[bytes] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Physical offset and size of skipped damaged messages."""
    count: int = 0
    """Messages in `records`: more than its items if records are joined."""


@dataclass(slots=True)
class ReadRequest:
    """A read of a queue; without a filter, every message is accepted."""

    queue_offset: int
    max_count: int
    tags_filter: TagsFilter | None = None
    record_filter: RecordFilter | None = None
    limits: ReadLimits = _DEFAULT_LIMITS
    may_join: bool = False
    """Whether one item of the result may be several records; for callers in the thread of the store's owner."""


class JoinedReads(Protocol):
    """Copies records of one file one after another: see `kernels.reading.joined_reads`."""

    def read(  # noqa: PLR0917
        self, units: bytes, log: memoryview, base: int, first: int, end: int, count_max: int, bytes_max: int
    ) -> tuple[int, bytes]: ...


def read_queue(
    queue: ConsumeQueue | None, log: CommitLog, request: ReadRequest, joined: JoinedReads | None = None
) -> GetResult:
    """Read messages from a queue offset on."""
    if queue is None or queue.max_offset == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
    low, high, asked = queue.min_offset, queue.max_offset, request.queue_offset
    if asked < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if asked == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, asked, low, high)
    if asked > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    if request.record_filter is None:
        unit_count = max(_SCANNED_UNITS_MIN, request.max_count)
    else:
        unit_count = max(_FILTERED_UNITS_MIN, min(request.max_count, request.limits.count_in_memory))
    units = queue.read(asked, unit_count)
    if not units:
        next_file = queue.segments.base_of(asked * ENTRY_BYTES) + queue.segments.file_bytes
        return GetResult(GetStatus.OFFSET_FOUND_NULL, next_file // ENTRY_BYTES, low, high)
    collected = _Collected(log, request)
    scanned = collected.take(units, joined if request.may_join else None)
    records, damaged = collected.records, collected.damaged
    return GetResult(collected.status, asked + scanned, low, high, records, damaged, collected.count)


def _is_sound(record: bytes, physical_offset: int) -> bool:
    """Return whether size, magic, physical offset, lengths and the body's CRC are right.

    These are the checks of `decode_message` in little more than half its time: no field is extracted.
    """
    if len(record) < RECORD_BYTES_MIN:
        return False
    size_bytes, magic, crc, stated_offset, sys_flag = _HEAD.unpack_from(record)
    if size_bytes != len(record) or stated_offset != physical_offset or (magic != MAGIC_V1 and magic != MAGIC_V2):
        return False
    body_start = RECORD_PREFIX.size_bytes
    if sys_flag & (BORN_HOST_IPV6 | STORE_HOST_IPV6):
        longer = (sys_flag & BORN_HOST_IPV6 > 0) + (sys_flag & STORE_HOST_IPV6 > 0)
        body_start += longer * (IPV6_HOST_BYTES - IPV4_HOST_BYTES)
    body_end = body_start + int.from_bytes(record[body_start - 4 : body_start], "big", signed=True)
    if not body_start <= body_end <= len(record) - RECORD_TAIL.size_bytes:
        return False
    if crc32(record[body_start:body_end]) & BODY_CRC_MASK != crc:
        return False
    topic_start = body_end + (1 if magic == MAGIC_V1 else 2)
    topic_end = topic_start + int.from_bytes(record[body_end:topic_start], "big")
    properties_bytes = int.from_bytes(record[topic_end : topic_end + 2], "big")
    # Consumers decode the topic: one that is not UTF-8 would block them at this message.
    return topic_end + 2 + properties_bytes == size_bytes and _is_text(record[topic_start:topic_end])


def _tags_hash(record: bytes) -> int:
    tags = decode_message(record, check_crc=False).properties.get(TAGS)
    return string_hash(tags) if tags else 0


def _is_text(raw: bytes) -> bool:
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Collected:
    """The state of one read."""

    def __init__(self, log: CommitLog, request: ReadRequest) -> None:
        self._log = log
        self._request = request
        self._bytes = 0
        self._joined = 0  # records in the first item beyond one
        self._was_removed = False
        self.records: list[bytes] = []
        self.damaged: list[tuple[int, int]] = []

    @property
    def count(self) -> int:
        return len(self.records) + self._joined

    @property
    def status(self) -> GetStatus:
        if self.records:
            return GetStatus.FOUND
        return GetStatus.MESSAGE_WAS_REMOVING if self._was_removed else GetStatus.NO_MATCHED_MESSAGE

    def take(self, units: bytes, joined: JoinedReads | None) -> int:
        """Read the records of units until a limit is reached; return the number of units scanned."""
        tags_filter, record_filter = self._request.tags_filter, self._request.record_filter
        begun, filtered_bytes = 0, 0
        if joined is not None and tags_filter is None and record_filter is None:
            begun = self._take_joined(units, joined)
            if begun >= self._count_in_memory:
                return begun
        if record_filter is None:
            begun += self._take_young(units[begun * ENTRY_BYTES :] if begun else units)
        if begun:
            units = units[begun * ENTRY_BYTES :]
        for scanned, (physical_offset, size_bytes, tags_code) in enumerate(_iter_units(units), begun):
            if self._is_enough(physical_offset, size_bytes) or filtered_bytes >= _FILTERED_BYTES_MAX:
                return scanned
            # A broker with filter bit maps stores the address of one there: the tags must be read from the record.
            needs_record = tags_filter is not None and is_ext_address(tags_code)
            if size_bytes == INT_MAX or not (tags_filter is None or needs_record or tags_filter(tags_code)):
                continue
            record = self._log.read(physical_offset, size_bytes)
            if record is None and 0 <= physical_offset < self._log.min_physical_offset:
                self._was_removed = True
            elif record is None or not _is_sound(record, physical_offset):
                self.damaged.append((physical_offset, size_bytes))
            elif needs_record and tags_filter is not None and not tags_filter(_tags_hash(record)):
                continue
            elif record_filter is not None and not record_filter(record):
                filtered_bytes += size_bytes
            else:
                self.records.append(record)
                self._bytes += size_bytes
        return begun + len(units) // ENTRY_BYTES

    @property
    def _count_in_memory(self) -> int:
        return min(self._request.max_count, self._request.limits.count_in_memory)

    def _take_joined(self, units: bytes, joined: JoinedReads) -> int:
        """Do what `_take_young` does by a kernel, in the file of the first unit; return the number of units taken."""
        log, limits = self._log, self._request.limits
        segments, (physical_offset, _, _) = log.segments, _unpack_unit(units)
        base = segments.base_of(physical_offset)
        if not segments.has(base):
            return 0
        view = segments.file(base).view()
        first, end = max(log.own_from, log.written_to - limits.memory_bytes), log.written_to
        count, records = joined.read(units, view, base, first, end, self._count_in_memory, limits.bytes_in_memory)
        if count:
            self.records.append(records)
            self._bytes, self._joined = len(records), count - 1
        return count

    def _take_young(self, units: bytes) -> int:
        """Fast path: read records while all are in memory and match their units; return the number of units scanned."""
        log, tags_filter, limits = self._log, self._request.tags_filter, self._request.limits
        segments, records = log.segments, self.records
        young_from = max(log.own_from, log.written_to - limits.memory_bytes)
        count_max, bytes_max = self._count_in_memory - self._joined, limits.bytes_in_memory
        scanned, taken_bytes, base, end = 0, self._bytes, -1, -1
        for physical_offset, size_bytes, tags_code in _iter_units(units):
            if physical_offset < young_from or taken_bytes + size_bytes > bytes_max or len(records) >= count_max:
                break
            if tags_filter is not None:
                if is_ext_address(tags_code):
                    break
                if not tags_filter(tags_code):
                    scanned += 1
                    continue
            if not base <= physical_offset < end:
                base = segments.base_of(physical_offset)
                if not segments.has(base):
                    break
                read, end = segments.file(base).read, min(base + segments.file_bytes, log.written_to)
            if physical_offset + size_bytes > end or size_bytes < RECORD_BYTES_MIN:
                break
            record = read(physical_offset - base, size_bytes)
            stated_bytes, magic, stated_offset = _unpack_start(record)
            if stated_offset != physical_offset or stated_bytes != size_bytes or magic not in _MAGICS:
                break
            records.append(record)
            taken_bytes += size_bytes
            scanned += 1
        self._bytes = taken_bytes
        return scanned

    def _is_enough(self, physical_offset: int, size_bytes: int) -> bool:
        count, limits = self.count, self._request.limits
        if count == 0:
            return False
        is_on_disk = self._log.written_to - physical_offset > limits.memory_bytes
        count_max = limits.count_on_disk if is_on_disk else limits.count_in_memory
        bytes_max = limits.bytes_on_disk if is_on_disk else limits.bytes_in_memory
        return count >= min(self._request.max_count, count_max) or self._bytes + size_bytes > bytes_max
