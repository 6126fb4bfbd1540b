"""Finding messages by key through the index: newest first, and complete or saying that it is not.

The index holds hashes. Every hit is read and its real topic and key compared, so no collision leaks; where the index is
behind the log, or the limit was reached, the answer says so.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from orbitlog.errors import FormatError
from orbitlog.formats import properties as props
from orbitlog.formats.index_layout import index_key, key_hash
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.message import RECORD_BYTES_MIN, Message
from orbitlog.store.commitlog import CommitLog
from orbitlog.store.index_files import IndexFiles

QUERY_LIMIT_DEFAULT = 64
_SIZE = struct.Struct(">i")


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


def read_record_at(log: CommitLog, physical_offset: int) -> Message | None:
    """Read a record whose size is not known; None where none is there."""
    head = log.read(physical_offset, _SIZE.size)
    if head is None:
        return None
    (size_bytes,) = _SIZE.unpack(head)
    try:
        return log.read_message(physical_offset, size_bytes) if size_bytes >= RECORD_BYTES_MIN else None
    except FormatError:
        return None


def query_by_key(query: KeyQuery, log: CommitLog, index: IndexFiles, *, indexed_to: int) -> QueryResult:
    """Find the messages with that key."""
    found: list[Message] = []
    for message in _candidates(query, log, index):
        if len(found) == query.limit:
            return QueryResult(found, complete=False, reason=f"there are more than {query.limit}")
        found.append(message)
    if indexed_to < log.written_to:
        behind = log.written_to - indexed_to
        return QueryResult(found, complete=False, reason=f"the index is {behind} bytes behind the log")
    return QueryResult(found)


def _candidates(query: KeyQuery, log: CommitLog, index: IndexFiles) -> Iterator[Message]:
    hashed = key_hash(index_key(query.topic, query.key))
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
            message = read_record_at(log, physical_offset)
            if message is not None and _matches(query, message):
                yield message


def _matches(query: KeyQuery, message: Message) -> bool:
    is_inside = query.by_index_time or query.begin_ms <= message.store_timestamp_ms <= query.end_ms
    if message.topic != query.topic or not is_inside:
        return False
    properties = message.properties
    if properties.get(props.UNIQ_KEY) == query.key:
        return True
    keys = properties.get(props.KEYS, "").split(props.KEY_SEPARATOR)
    return not query.unique_key_only and query.key in keys
