"""What a range of the log means for queues and index: the twin of `formats.derived.derive` for many records.

One pass gives, for each message, its ConsumeQueue unit and the hashes of its index keys. Topics are not copied:
each distinct (topic, queue) gets a small number, its `queue_code`, in a `QueueTable` that lives as long as the scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orbitlog.formats.derived.derive import DeriveRules, QueueUnit, queue_units
from orbitlog.formats.derived.index_layout import TAGS_KEY_MARK
from orbitlog.formats.records import flags
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import RECORD_PREFIX, Bytes, decode_message
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.columns import staggered, store_time_position
from orbitlog.kernels.jit import inlined, kernel
from orbitlog.kernels.property_scan import find_known, parse_delay_level
from orbitlog.kernels.queue_table import TABLE_FULL, QueueTable, find_queue
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
from orbitlog.kernels.text import find_byte, index_hash, java_hash
from orbitlog.kernels.unaligned import load_i32, load_i64

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class DispatchColumns(NamedTuple):
    """One row a message; its keys are `key_hashes[key_ends[row - 1]:key_ends[row]]` (from 0 in row 0)."""

    physical_offset: Longs
    size_bytes: Ints
    queue_code: Ints
    queue_offset: Longs
    tags_code: Longs
    store_timestamp_ms: Longs
    sys_flag: Ints
    is_multi_dispatch: npt.NDArray[np.bool_]
    key_ends: Longs
    key_hashes: Ints

    @classmethod
    def allocate(cls, rows: int, keys: int) -> DispatchColumns:
        dtypes = {"size_bytes": np.int32, "queue_code": np.int32, "sys_flag": np.int32, "is_multi_dispatch": np.bool_}
        fixed = staggered([dtypes.get(name, np.int64) for name in cls._fields[:-1]], rows)
        return cls._make((*fixed, np.empty(keys, np.int32)))

    def rows(self, count: int) -> DispatchColumns:
        """Return the first `count` rows and their keys."""
        keys = int(self.key_ends[count - 1]) if count else 0
        return DispatchColumns._make((*(column[:count] for column in self[:-1]), self.key_hashes[:keys]))


_QUEUE_ID = RECORD_PREFIX.position("queue_id")
_QUEUE_OFFSET = RECORD_PREFIX.position("queue_offset")
_PHYSICAL_OFFSET = RECORD_PREFIX.position("physical_offset")
_SYS_FLAG = RECORD_PREFIX.position("sys_flag")
enters_queue = inlined(flags.enters_queue)
_TRANSACTION_MASK = flags.TRANSACTION_MASK
_ROLLBACK = int(flags.TransactionType.ROLLBACK)
_SPACES = np.uint64(0x2020202020202020)
_HASH_STEP = np.int32(31)
# A properties string of 32767 bytes cannot hold more keys than this, UNIQ_KEY and TAGS included.
KEYS_IN_RECORD_MAX = 16384 + 2


_TAGS_MARK = np.frombuffer(TAGS_KEY_MARK.encode(), np.uint8).copy()


@inlined
def _tags_code(address, known, is_schedule, store_timestamp_ms, delays_ms):
    """Return the delivery time of a message in the schedule topic, else the hash of its tags."""
    if is_schedule and known[6] >= 0:
        level = min(parse_delay_level(address, known[6], known[7]), delays_ms.shape[0])
        if level > 0:
            return np.int64(store_timestamp_ms + delays_ms[level - 1])
    if known[0] < 0:
        return np.int64(0)
    return np.int64(java_hash(address, known[0], known[1], np.int32(0)))


@inlined
def _put_keys(address, known, topic_hash, indexes_tags, keys, used):
    """Append the hashes of one message's keys: unique key, each of KEYS, then the tags; returns the new count."""
    if known[4] >= 0:
        keys[used] = index_hash(java_hash(address, known[4], known[5], topic_hash))
        used += 1
    position, end = known[2], known[3]
    while position < end:
        key_end = find_byte(address, position, end, _SPACES)
        if key_end > position:
            keys[used] = index_hash(java_hash(address, position, key_end, topic_hash))
            used += 1
        position = key_end + 1
    if indexes_tags and known[0] >= 0:
        value = topic_hash
        for mark in _TAGS_MARK:
            value = np.int32(value * _HASH_STEP + np.int32(mark))
        keys[used] = index_hash(java_hash(address, known[0], known[1], value))
        used += 1
    return used


@kernel
def fill_dispatch(
    address, position, stop, end, base, check_offset, header_bytes, check_crc, indexes_tags, delays_ms, table, columns
):
    """Fill rows from `position` on; returns (rows, next position, why it stopped, queues known).

    OUTPUT_FULL means: take what is there, make room (rows, keys or queues), and call again.
    """
    row = 0
    used = np.int64(0)
    rows_max = columns.physical_offset.shape[0]
    keys_max = columns.key_hashes.shape[0] - KEYS_IN_RECORD_MAX
    while position < stop:
        kind, parts = look_at(address, position, end, base, check_offset, header_bytes)
        if kind != MESSAGE:
            return row, position, kind
        if row == rows_max or used > keys_max:
            return row, position, OUTPUT_FULL
        record = position + header_bytes
        if check_crc and not has_right_crcs(address, record, parts, check_offset):
            return row, position, DAMAGE
        total_size, _, _, topic_start, topic_length, properties_length = parts
        code = find_queue(address, topic_start, topic_length, load_i32(address, record + _QUEUE_ID), table)
        if code < 0:
            return row, position, OUTPUT_FULL if code == TABLE_FULL else DAMAGE
        prefetch_next(address, position, header_bytes + total_size)
        sys_flag = load_i32(address, record + _SYS_FLAG)
        store_timestamp_ms = load_i64(address, store_time_position(record, sys_flag))
        record_end = record + total_size
        known = find_known(address, record_end - properties_length, record_end, end)
        columns.physical_offset[row] = load_i64(address, record + _PHYSICAL_OFFSET)
        columns.size_bytes[row] = total_size
        columns.queue_code[row] = code
        columns.queue_offset[row] = load_i64(address, record + _QUEUE_OFFSET)
        columns.tags_code[row] = _tags_code(address, known, table.is_schedule[code], store_timestamp_ms, delays_ms)
        columns.store_timestamp_ms[row] = store_timestamp_ms
        columns.sys_flag[row] = sys_flag
        columns.is_multi_dispatch[row] = known[8]
        if sys_flag & _TRANSACTION_MASK != _ROLLBACK:
            used = _put_keys(address, known, table.key_prefix_hash[code], indexes_tags, columns.key_hashes, used)
        columns.key_ends[row] = used
        row += 1
        position = record_end
    return row, position, RANGE_END


class DispatchScan:
    """Derives queue units and index keys from one range after another, chunk by chunk."""

    def __init__(self, rules: DeriveRules, *, chunk_rows: int = 16384) -> None:
        self.queues = QueueTable()
        self._rules = rules
        self._delays_ms = np.array(rules.delay_levels.delays_ms, np.int64)
        self._columns = DispatchColumns.allocate(chunk_rows, 4 * chunk_rows + KEYS_IN_RECORD_MAX)
        self.ended: tuple[int, Stop] = 0, None

    def scan(
        self,
        buffer: Bytes,
        start: int = 0,
        stop: int | None = None,
        *,
        base_physical_offset: int | None = None,
        log_format: LogFormat = LogFormat.ORDINARY,
        check_crc: bool = False,
    ) -> Iterator[DispatchColumns]:
        """Yield the columns of every message that starts in the range; `ended` then has the position and the reason.

        A chunk's arrays are reused for the next one: copy what must outlive it.
        """
        source = SourceBytes(buffer, base_physical_offset, log_format)
        position, stop = source.range(start, stop)
        why = OUTPUT_FULL
        while why == OUTPUT_FULL:
            rows, position, why = self._fill(source, position, stop, check_crc=check_crc)
            if rows:
                yield self._columns.rows(rows)
        self.ended = position, source.explain(position, why, check_crc=check_crc)

    def chunk(
        self,
        buffer: Bytes,
        start: int,
        stop: int,
        *,
        base_physical_offset: int,
        log_format: LogFormat = LogFormat.ORDINARY,
    ) -> DispatchColumns:
        """Return the columns of messages from `start` on, as many as one chunk holds; no row if there is no message.

        The arrays are used again for the next chunk.
        """
        source = SourceBytes(buffer, base_physical_offset, log_format)
        rows, _, _ = self._fill(source, *source.range(start, stop), check_crc=False)
        return self._columns.rows(rows)

    def _fill(self, source: SourceBytes, position: int, stop: int, *, check_crc: bool) -> tuple[int, int, int]:
        """Fill the columns; return the number of rows, the next position, and the reason."""
        if self.queues.is_full:
            self.queues.grow()
        rules = self._rules.compat.indexes_tags, self._delays_ms
        rows, position, why = source.run(
            fill_dispatch, position, stop, check_crc, *rules, self.queues.arrays, self._columns
        )
        return int(rows), int(position), int(why)

    def light_queue_units(self, buffer: Bytes, columns: DispatchColumns, base_physical_offset: int) -> list[QueueUnit]:
        """Return the units of light queues that the chunk's messages were also sent to.

        Few brokers have them and few messages use them: they are left to `formats`.
        """
        if not self._rules.multi_dispatch:
            return []
        units: list[QueueUnit] = []
        for row in np.flatnonzero(columns.is_multi_dispatch):
            position = int(columns.physical_offset[row]) - base_physical_offset
            units += queue_units(decode_message(buffer, position, check_crc=False), self._rules)[1:]
        return units
