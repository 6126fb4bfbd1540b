"""Finding messages by key through the index: newest first, and complete or saying that it is not.

The index holds hashes. Every hit is read and its real topic and key compared, so no collision leaks; where the index is
behind the log, or the limit was reached, the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from orbitlog.errors import FormatError
from orbitlog.formats import properties as props
from orbitlog.formats.index_layout import index_key, key_hash
from orbitlog.formats.java import LONG_MAX, utf8_encode
from orbitlog.formats.message import Message, decode_message
from orbitlog.store.commitlog import CommitLog
from orbitlog.store.index_files import IndexFiles

QUERY_LIMIT_DEFAULT = 64
_KEYS_NAME = (props.KEYS + props.NAME_END).encode()
_ITEM_EDGES = (b"", props.PROPERTY_END.encode())


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """A key of a topic, a time window and how many messages at most."""

    topic: str
    key: str
    begin_ms: int = 0
    end_ms: int = LONG_MAX
    limit: int = QUERY_LIMIT_DEFAULT
    unique_key_only: bool = False
    by_index_time: bool = False
    """Take the index's times, cut to seconds, for the messages' own: what a Java broker answers to a narrow window."""

    @property
    def slack_ms(self) -> int:
        """How much later than its index entry says a message may have been stored."""
        return 0 if self.by_index_time else 999


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Messages, newest first; `reason` says why there may be more."""

    messages: list[Message] = field(default_factory=list)
    complete: bool = True
    reason: str = ""
    records: list[bytes] = field(default_factory=list)
    """The messages as they lie in the log, where they were found by key: what a broker answers with."""


def read_record_at(log: CommitLog, physical_offset: int) -> Message | None:
    """Read a record whose size is not known; None where none is there."""
    found = _record_at(log, physical_offset)
    return None if found is None else found[0]


def _record_at(log: CommitLog, physical_offset: int) -> tuple[Message, bytes] | None:
    record = log.read_record(physical_offset)
    if record is None:
        return None
    try:
        return decode_message(record, physical_offset=physical_offset), record
    except FormatError:
        return None


def query_by_key(query: KeyQuery, log: CommitLog, index: IndexFiles, *, indexed_to: int) -> QueryResult:
    """Find the messages with that key."""
    found: list[Message] = []
    records: list[bytes] = []
    for message, record in _candidates(query, log, index):
        if len(found) == query.limit:
            return QueryResult(found, complete=False, reason=f"there are more than {query.limit}", records=records)
        found.append(message)
        records.append(record)
    if indexed_to < log.written_to:
        behind = log.written_to - indexed_to
        return QueryResult(found, complete=False, reason=f"the index is {behind} bytes behind the log", records=records)
    return QueryResult(found, records=records)


def _candidates(query: KeyQuery, log: CommitLog, index: IndexFiles) -> Iterator[tuple[Message, bytes]]:
    hashed = key_hash(index_key(query.topic, query.key))
    only_key = None if query.unique_key_only else _item_of_only_key(query.key)
    seen: set[int] = set()
    for file in reversed(list(index)):
        header = file.header
        overlaps = header.begin_timestamp_ms <= query.end_ms and header.end_timestamp_ms >= query.begin_ms
        if header.key_count == 0 or not overlaps:
            continue
        for physical_offset in file.find(hashed, query.begin_ms - query.slack_ms, query.end_ms):
            if physical_offset in seen:
                continue
            seen.add(physical_offset)
            found = _record_at(log, physical_offset)
            if found is not None and _matches(query, found[0], only_key):
                yield found


def _matches(query: KeyQuery, message: Message, only_key: bytes | None) -> bool:
    is_inside = query.by_index_time or query.begin_ms <= message.store_timestamp_ms <= query.end_ms
    if message.topic != query.topic or not is_inside:
        return False
    if only_key is not None and _is_only_key(message.properties_raw, only_key):
        return True
    properties = message.properties
    if properties.get(props.UNIQ_KEY) == query.key:
        return True
    keys = properties.get(props.KEYS, "").split(props.KEY_SEPARATOR)
    return not query.unique_key_only and query.key in keys


def _item_of_only_key(key: str) -> bytes | None:
    """The property of a message that has this key and no other; None for what no single key can be."""
    if not key or props.KEY_SEPARATOR in key or props.PROPERTY_END in key:
        return None
    return utf8_encode(props.KEYS + props.NAME_END + key)


def _is_only_key(properties_raw: bytes, only_key: bytes) -> bool:
    """Tell at a glance that a message has this one key, as most do that are found; a False says nothing."""
    start = properties_raw.find(only_key)
    end = start + len(only_key)
    return (
        start >= 0
        and properties_raw[start - 1 : start] in _ITEM_EDGES
        and properties_raw[end : end + 1] in _ITEM_EDGES
        and properties_raw.count(_KEYS_NAME) == 1  # of several equal names the last counts
    )
