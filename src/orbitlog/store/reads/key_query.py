"""Key query: finds messages by key through the index, newest first.

The index holds hashes. Every hit is read and its topic and key compared, so hash collisions are never returned. The
result is marked incomplete if the index lags the log or the limit was reached.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from orbitlog.errors import FormatError
from orbitlog.formats.derived.index_layout import index_key, key_hash
from orbitlog.formats.java import LONG_MAX, utf8_encode
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import (
    BODY_CRC_MASK,
    MAGIC_V1,
    RECORD_PREFIX,
    TOPIC_BYTES_MAX_V1,
    Message,
    decode_message,
)
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.log.commitlog import CommitLog

QUERY_LIMIT_DEFAULT = 64
STEP_WORK = 1_000
"""Units of work of a step, each some microseconds; the last record of a step may exceed it."""
_KEYS_NAME = (props.KEYS + props.NAME_END).encode()
_ITEM_END = ord(props.PROPERTY_END)
_IPV6_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6
# The fields of an IPv4 prefix that decide whether a record matches.
_PLAIN = RECORD_PREFIX.partial(
    *("total_size", "magic", "body_crc", "physical_offset", "sys_flag", "store_timestamp_ms", "body_length")
)
assert _PLAIN.size == RECORD_PREFIX.size_bytes


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """A key of a topic, a time window and the maximum number of messages."""

    topic: str
    key: str
    begin_ms: int = 0
    end_ms: int = LONG_MAX
    limit: int = QUERY_LIMIT_DEFAULT
    unique_key_only: bool = False
    entries_max: int | None = None
    """Index entries to look at, records to read and their bytes; past one of them the result is incomplete."""
    records_max: int | None = None
    bytes_max: int | None = None
    by_index_time: bool = False
    """Compare the index's timestamps, cut to seconds, instead of the messages' own, as a Java broker does."""

    @property
    def slack_ms(self) -> int:
        """Milliseconds that a message may have been stored after the timestamp of its index entry."""
        return 0 if self.by_index_time else 999


@dataclass(frozen=True, slots=True)
class FoundByKey:
    """Raw records, newest first; `reason` states why there may be more."""

    records: list[bytes] = field(default_factory=list)
    complete: bool = True
    reason: str = ""
    newest_timestamp_ms: int = 0
    stopped_by: str = ""
    """The limit of its work at which the search stopped: entries, records or bytes."""

    @property
    def messages(self) -> list[Message]:
        return [decode_message(record, check_crc=False) for record in self.records]


def read_record_at(log: CommitLog, physical_offset: int) -> Message | None:
    """Read a record of unknown size; return None if no record starts there."""
    record = log.read_record(physical_offset)
    return None if record is None else _decoded(record, physical_offset)


def _decoded(record: bytes, physical_offset: int) -> Message | None:
    try:
        return decode_message(record, physical_offset=physical_offset)
    except FormatError:
        return None


def query_by_key(query: KeyQuery, log: CommitLog, index: IndexFiles, *, indexed_to: int) -> FoundByKey:
    """Return the messages with that key."""
    steps = query_steps(query, log, index, indexed_to=indexed_to)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: FoundByKey = end.value
            return found


def query_steps(
    query: KeyQuery, log: CommitLog, index: IndexFiles, *, indexed_to: int
) -> Generator[int, None, FoundByKey]:
    """Return the messages with that key; yield the units of work after each step of at most `STEP_WORK` of them."""
    records: list[bytes] = []
    newest_ms, reason = 0, ""
    work = _Work(query)
    for candidate in _candidates(query, log, index, work):
        if candidate is None:
            yield work.take_step()
            continue
        if len(records) == query.limit:
            reason = f"there are more than {query.limit}"
            break
        record, store_timestamp_ms = candidate
        records.append(record)
        newest_ms = max(newest_ms, store_timestamp_ms)
    else:
        if work.spent:
            reason = f"the search stopped at the maximum of {work.spent}"
        elif indexed_to < log.written_to:
            reason = f"the index is {log.written_to - indexed_to} bytes behind the log"
    return FoundByKey(records, not reason, reason, newest_ms, work.spent)


class _Work:
    """The work of one query: hashes of different keys can be equal, so a chain may be long and match nothing.

    An entry is one unit, a record 16, and each KiB of it one more.
    """

    def __init__(self, query: KeyQuery) -> None:
        self._entries_left = LONG_MAX if query.entries_max is None else query.entries_max
        self._records_left = LONG_MAX if query.records_max is None else query.records_max
        self._bytes_left = LONG_MAX if query.bytes_max is None else query.bytes_max
        self._units = 0
        self.spent = ""
        """The limit that was reached; empty if none was."""

    @property
    def is_step_done(self) -> bool:
        return self._units >= STEP_WORK

    def take_step(self) -> int:
        """Return the units of a step that ends, and start the next one."""
        units, self._units = self._units, 0
        return units

    def take_entry(self) -> None:
        """Count an index entry."""
        self._units += 1
        self._entries_left -= 1
        if self._entries_left < 0:
            self.spent = "entries"

    def take_record(self, record: bytes | None) -> None:
        """Count a record that was read."""
        size_bytes = 0 if record is None else len(record)
        self._units += 16 + size_bytes // 1024
        self._records_left -= 1
        self._bytes_left -= size_bytes
        if self._records_left <= 0:
            self.spent = "records"
        elif self._bytes_left <= 0:
            self.spent = "bytes"


def _candidates(query: KeyQuery, log: CommitLog, index: IndexFiles, work: _Work) -> Iterator[tuple[bytes, int] | None]:
    """Yield matching records with their timestamps, and None after each step of work."""
    hashed = key_hash(index_key(query.topic, query.key))
    glance = _Glance.at(query)
    seen: set[int] = set()
    for file in reversed(list(index)):
        if file not in index:
            continue  # deleted since the search started: it is closed
        header = file.header
        overlaps = header.begin_timestamp_ms <= query.end_ms and header.end_timestamp_ms >= query.begin_ms
        if header.key_count == 0 or not overlaps:
            continue
        for physical_offset in file.find(hashed, query.begin_ms - query.slack_ms, query.end_ms):
            work.take_entry()
            if physical_offset is not None and physical_offset not in seen and not work.spent:
                seen.add(physical_offset)
                record = log.read_record(physical_offset)
                work.take_record(record)
                matched = None if record is None else _matched(query, glance, record, physical_offset)
                if matched is not None:
                    yield matched
            if work.spent:
                return
            if work.is_step_done:
                yield None
                if file not in index:
                    break


def _matched(query: KeyQuery, glance: _Glance | None, record: bytes, physical_offset: int) -> tuple[bytes, int] | None:
    store_timestamp_ms = None if glance is None else glance.matches(record, physical_offset)
    if store_timestamp_ms is None:
        message = _decoded(record, physical_offset)
        store_timestamp_ms = message.store_timestamp_ms if message and _matches(query, message) else None
    return None if store_timestamp_ms is None else (record, store_timestamp_ms)


def _matches(query: KeyQuery, message: Message) -> bool:
    is_inside = query.by_index_time or query.begin_ms <= message.store_timestamp_ms <= query.end_ms
    if message.topic != query.topic or not is_inside:
        return False
    properties = message.properties
    if properties.get(props.UNIQ_KEY) == query.key:
        return True
    keys = properties.get(props.KEYS, "").split(props.KEY_SEPARATOR)
    return not query.unique_key_only and query.key in keys


class _Glance(NamedTuple):
    """Fast path: matches raw records that are intact and have exactly one key, the one searched for."""

    topic_part: bytes
    key_item: bytes
    begin_ms: int
    end_ms: int

    @classmethod
    def at(cls, query: KeyQuery) -> _Glance | None:
        """Return the fast path for a query; None if its key is not a single valid key."""
        key, topic = query.key, utf8_encode(query.topic)
        if not key or props.KEY_SEPARATOR in key or props.PROPERTY_END in key or len(topic) > TOPIC_BYTES_MAX_V1:
            return None
        if query.unique_key_only or query.by_index_time:
            return None
        key_item = utf8_encode(props.KEYS + props.NAME_END + key)
        return cls(bytes((len(topic),)) + topic, key_item, query.begin_ms, query.end_ms)

    def matches(self, record: bytes, physical_offset: int) -> int | None:
        """Return the store timestamp of a matching record; None if the slow path must decide."""
        topic_part, key_item, begin_ms, end_ms = self
        size_bytes, magic, crc, stated_offset, sys_flag, store_ms, body_bytes = _PLAIN.unpack_from(record)
        body_end = _PLAIN.size + body_bytes
        topic_end = body_end + len(topic_part)
        if (
            magic != MAGIC_V1
            or stated_offset != physical_offset
            or sys_flag & _IPV6_BITS
            or not begin_ms <= store_ms <= end_ms
            or not 0 <= body_bytes <= size_bytes
            or record[body_end:topic_end] != topic_part
            or crc32(record[_PLAIN.size : body_end]) & BODY_CRC_MASK != crc
            or topic_end + 2 + int.from_bytes(record[topic_end : topic_end + 2], "big", signed=True) != size_bytes
        ):
            return None
        start = record.find(key_item, topic_end + 2)
        end = start + len(key_item)
        is_only_key = (
            start >= 0
            and (start == topic_end + 2 or record[start - 1] == _ITEM_END)
            and (end == size_bytes or record[end] == _ITEM_END)
            and record.count(_KEYS_NAME, topic_end + 2) == 1  # of several equal names the last counts
        )
        return store_ms if is_only_key else None
