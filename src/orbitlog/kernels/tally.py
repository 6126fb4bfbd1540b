"""Tally: counts a range of the log by queue, tag, hour and producer address, in one pass without copying messages.

Each distinct value gets a row of numbers: messages, bytes, the first and last store timestamp, and a histogram of body
sizes with steps of 3 %, so that sums of ranges give quantiles of the whole. When a table is full its rows are taken out
and the pass continues with empty tables: memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orbitlog.formats.java import INT_MAX, LONG_MAX, LONG_MIN
from orbitlog.formats.records import flags
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import RECORD_PREFIX, Bytes
from orbitlog.kernels.columns import store_time_position
from orbitlog.kernels.jit import inlined, kernel
from orbitlog.kernels.property_scan import find_known
from orbitlog.kernels.queue_table import BAD_TOPIC, TABLE_FULL, QueueTable, find_queue
from orbitlog.kernels.record_walk import (
    DAMAGE,
    MESSAGE,
    OUTPUT_FULL,
    RANGE_END,
    SourceBytes,
    Stop,
    has_right_crcs,
    look_at,
    prefetch_next,
)
from orbitlog.kernels.unaligned import load_i32, load_i64, load_u32

GROUPS_MAX = 4096
OTHER_TAGS = "(not text, or longer than 255 bytes)"
HOUR_MS = 3_600_000
_TAGS_BYTES_MAX = 255
_EXACT_SIZES = 64
_STEPS = 32
BUCKETS = _EXACT_SIZES + 25 * _STEPS
_MIX = np.uint64(0x9E3779B97F4A7C15)
_QUEUE_ID = RECORD_PREFIX.position("queue_id")
_SYS_FLAG = RECORD_PREFIX.position("sys_flag")
_BORN_HOST = RECORD_PREFIX.position("born_host_raw")
_BORN_IPV6 = flags.BORN_HOST_IPV6

Longs = npt.NDArray[np.int64]


class Sums(NamedTuple):
    """Sums for each group of one table."""

    messages: Longs
    stored_bytes: Longs
    body_bytes: Longs
    first_ms: Longs
    last_ms: Longs
    histogram: npt.NDArray[np.int32]

    @classmethod
    def empty(cls) -> Sums:
        return cls(
            messages=np.zeros(GROUPS_MAX, np.int64),
            stored_bytes=np.zeros(GROUPS_MAX, np.int64),
            body_bytes=np.zeros(GROUPS_MAX, np.int64),
            first_ms=np.full(GROUPS_MAX, LONG_MAX, np.int64),
            last_ms=np.full(GROUPS_MAX, LONG_MIN, np.int64),
            histogram=np.zeros((GROUPS_MAX, BUCKETS), np.int32),
        )

    def rows(self, count: int) -> Sums:
        return Sums._make(column[:count] for column in self)


class NumberTable(NamedTuple):
    """Groups by three numbers, in the order in which they were met."""

    group_count: Longs
    slots: npt.NDArray[np.int32]
    topic_code: Longs
    high: Longs
    low: Longs

    @classmethod
    def empty(cls) -> NumberTable:
        numbers = [np.zeros(GROUPS_MAX, np.int64) for _ in range(3)]
        return cls(np.zeros(1, np.int64), np.full(4 * GROUPS_MAX, -1, np.int32), *numbers)


@inlined
def bucket_of(size_bytes):
    """Return the step of the histogram: one a byte up to 64, then 32 for each doubling."""
    if size_bytes < _EXACT_SIZES:
        return size_bytes
    exponent = np.int64(0)
    rest = size_bytes >> 6
    while rest > 1:
        rest >>= 1
        exponent += 1
    return _EXACT_SIZES + exponent * _STEPS + ((size_bytes >> (exponent + 1)) & (_STEPS - 1))


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """Return the smallest and the largest size of a step."""
    if bucket < _EXACT_SIZES:
        return bucket, bucket
    exponent, step = divmod(bucket - _EXACT_SIZES, _STEPS)
    return (_STEPS + step) << (exponent + 1), ((_STEPS + step + 1) << (exponent + 1)) - 1


assert bucket_bounds(BUCKETS - 1)[1] == INT_MAX


@inlined
def _find_numbers(topic_code, high, low, table):
    """Return the number of a group, adding it if it is new; TABLE_FULL without room."""
    slot_count = table.slots.shape[0]
    mixed = (np.uint64(high) * _MIX ^ np.uint64(low)) * _MIX ^ np.uint64(topic_code)
    mixed = (mixed ^ mixed >> np.uint64(32)) * _MIX
    slot = np.int64(mixed >> np.uint64(33)) & (slot_count - 1)
    while table.slots[slot] >= 0:
        group = np.int64(table.slots[slot])
        if table.topic_code[group] == topic_code and table.high[group] == high and table.low[group] == low:
            return group
        slot = (slot + 1) & (slot_count - 1)
    group = table.group_count[0]
    if group == table.high.shape[0]:
        return np.int64(TABLE_FULL)
    table.topic_code[group], table.high[group], table.low[group] = topic_code, high, low
    table.slots[slot] = group
    table.group_count[0] = group + 1
    return group


@inlined
def _add(sums, group, total_size, body_length, bucket, store_timestamp_ms):
    sums.messages[group] += 1
    sums.stored_bytes[group] += total_size
    sums.body_bytes[group] += body_length
    sums.first_ms[group] = min(sums.first_ms[group], store_timestamp_ms)
    sums.last_ms[group] = max(sums.last_ms[group], store_timestamp_ms)
    sums.histogram[group, bucket] += 1


@inlined
def _find_tag(address, start, end, topic_code, tags):
    """Return the number of a topic's tag; tags that are no text or very long share one, under a negative topic."""
    length = end - start if start >= 0 else np.int64(0)
    code = np.int64(BAD_TOPIC)
    if length <= _TAGS_BYTES_MAX:
        code = find_queue(address, max(start, 0), length, np.int32(topic_code), tags)
    if code == BAD_TOPIC:
        code = find_queue(address, 0, 0, np.int32(-1 - topic_code), tags)
    return code


@kernel
def tally_range(
    address, position, stop, end, base, header_bytes, check_crc, tables, queue_sums, tag_sums, hour_sums, host_sums
):
    """Count the records from `position` on; returns (messages, next position, why it stopped).

    OUTPUT_FULL: a table is full; nothing of the next record was counted.
    """
    topics, queues, topic_of_queue, tags, hours, hosts = tables
    count = 0
    while position < stop:
        kind, parts = look_at(address, position, end, base, True, header_bytes)
        if kind != MESSAGE:
            return count, position, kind
        record = position + header_bytes
        if check_crc and not has_right_crcs(address, record, parts, True):
            return count, position, DAMAGE
        total_size, _, body_length, topic_start, topic_length, properties_length = parts
        prefetch_next(address, position, header_bytes + total_size)
        known_queues = queues.queue_count[0]
        queue = find_queue(address, topic_start, topic_length, load_i32(address, record + _QUEUE_ID), queues)
        if queue < 0:
            return count, position, OUTPUT_FULL if queue == TABLE_FULL else DAMAGE
        if queue == known_queues:
            # There are never more topics than queues, so there is room.
            topic_of_queue[queue] = find_queue(address, topic_start, topic_length, np.int32(0), topics)
        topic_code = topic_of_queue[queue]
        sys_flag = load_i32(address, record + _SYS_FLAG)
        store_timestamp_ms = load_i64(address, store_time_position(record, sys_flag))
        record_end = record + total_size
        known = find_known(address, record_end - properties_length, record_end, end)
        tag = _find_tag(address, known[0], known[1], topic_code, tags)
        hour = _find_numbers(topic_code, store_timestamp_ms // HOUR_MS, np.int64(0), hours)
        if sys_flag & _BORN_IPV6:
            high, low = load_i64(address, record + _BORN_HOST), load_i64(address, record + _BORN_HOST + 8)
        else:
            high, low = np.int64(0), np.int64(load_u32(address, record + _BORN_HOST))
        # IPv4 addresses are marked, so that an IPv6 address of mostly zeros is not among them.
        is_ipv6 = np.int64(1) if sys_flag & _BORN_IPV6 else np.int64(0)
        host = _find_numbers(topic_code * 2 + is_ipv6, high, low, hosts)
        if tag < 0 or hour < 0 or host < 0:
            return count, position, OUTPUT_FULL
        bucket = bucket_of(body_length)
        _add(queue_sums, queue, total_size, body_length, bucket, store_timestamp_ms)
        _add(tag_sums, tag, total_size, body_length, bucket, store_timestamp_ms)
        _add(hour_sums, hour, total_size, body_length, bucket, store_timestamp_ms)
        _add(host_sums, host, total_size, body_length, bucket, store_timestamp_ms)
        count += 1
        position = record_end
    return count, position, RANGE_END


class Counted(NamedTuple):
    """Groups of one kind: topic and value of each, and their sums. Values: queue id, tag, hour, or raw address."""

    kind: str
    topics: list[str]
    values: Sequence[int | str | bytes | None]
    sums: Sums


class Tally:
    """Counts one range after another; `take` returns the counts and resets them."""

    def __init__(self) -> None:
        self.ended: tuple[int, Stop] = 0, None
        self.message_count = 0
        self._begin()

    def _begin(self) -> None:
        self._topics, self._queues, self._tags = (QueueTable(GROUPS_MAX) for _ in range(3))
        self._topic_of_queue = np.zeros(GROUPS_MAX, np.int64)
        self._hours, self._hosts = NumberTable.empty(), NumberTable.empty()
        self._sums = [Sums.empty() for _ in range(4)]

    def count(
        self,
        buffer: Bytes,
        start: int,
        stop: int,
        *,
        base_physical_offset: int,
        log_format: LogFormat = LogFormat.ORDINARY,
        check_crc: bool = False,
    ) -> Iterator[list[Counted]]:
        """Count a range; yields counts whenever the tables are full. `ended` then has the position and the reason."""
        source = SourceBytes(buffer, base_physical_offset, log_format)
        position, stop = source.range(start, stop)
        why = OUTPUT_FULL
        while why == OUTPUT_FULL:
            tables = (
                self._topics.arrays,
                self._queues.arrays,
                self._topic_of_queue,
                self._tags.arrays,
                self._hours,
                self._hosts,
            )
            counted, position, why = tally_range(
                source.address,
                position,
                stop,
                len(source),
                source.base,
                source.header_bytes,
                check_crc,
                tables,
                *self._sums,
            )
            self.message_count += counted
            if why == OUTPUT_FULL:
                yield self.take()
        self.ended = position, source.explain(position, why, check_crc=check_crc)

    def take(self) -> list[Counted]:
        """Return everything counted since the last call."""
        topics = [topic for topic, _ in self._topics.queues()]
        queue_sums, tag_sums, hour_sums, host_sums = self._sums
        queues = self._queues.queues()
        tags = self._tags.queues()
        tag_topics = [topics[code if code >= 0 else -1 - code] for _, code in tags]
        hour_count, host_count = int(self._hours.group_count[0]), int(self._hosts.group_count[0])
        hour_topics = [topics[code] for code in self._hours.topic_code[:hour_count].tolist()]
        host_topics = [topics[code // 2] for code in self._hosts.topic_code[:host_count].tolist()]
        result = [
            Counted("queue", [topic for topic, _ in queues], [number for _, number in queues], queue_sums),
            Counted("tag", tag_topics, [_tag_value(tag, code) for tag, code in tags], tag_sums),
            Counted("hour", hour_topics, self._hours.high[:hour_count].tolist(), hour_sums),
            Counted("host", host_topics, self._addresses(host_count), host_sums),
        ]
        self._begin()
        return [_used(counted) for counted in result]

    def _addresses(self, count: int) -> list[bytes]:
        codes, highs, lows = (column[:count].tolist() for column in self._hosts[2:])
        return [
            high.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big", signed=True)
            if code % 2
            else low.to_bytes(4, "big")
            for code, high, low in zip(codes, highs, lows, strict=True)
        ]


def _tag_value(tag: str, code: int) -> str | None:
    return OTHER_TAGS if code < 0 else tag or None


def _used(counted: Counted) -> Counted:
    """Keep groups with messages: the last record may have been entered into one table and then had no room."""
    sums = counted.sums.rows(len(counted.topics))
    used = np.flatnonzero(sums.messages).tolist()
    return Counted(
        counted.kind,
        [counted.topics[number] for number in used],
        [counted.values[number] for number in used],
        Sums._make(column[used] for column in sums),
    )
