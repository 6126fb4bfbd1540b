"""Walking records in a range of bytes, with every check that `formats.records.message.decode_message` makes.

`look_at` is the only function that reads a record before its bounds are checked; it checks them. The parts that it
returns may be read with the unchecked loads of `unaligned`. A walk stops at the first bytes that are not a message and
returns their kind; errors for damage come from `formats`, which decodes the same position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orbitlog.formats.hosts import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from orbitlog.formats.records import flags
from orbitlog.formats.records.dledger import ENTRY_HEADER, ENTRY_MAGIC, FILE_END_MAGIC
from orbitlog.formats.records.log_format import LogFormat, read_log_at
from orbitlog.formats.records.message import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    RECORD_PREFIX,
    TOPIC_BYTES_MAX_V1,
    TOPIC_BYTES_MAX_V2,
    Bytes,
    Message,
)
from orbitlog.formats.records.message_scan import MAGIC_BLANK, Damage, LogEnd, SegmentEnd
from orbitlog.formats.records.properties import CRC32, CRC_PROPERTY_BYTES
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.jit import inlined, kernel, with_twin
from orbitlog.kernels.plain import plain_loads
from orbitlog.kernels.text import is_utf8
from orbitlog.kernels.unaligned import (
    body_crc,
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_word,
    prefetch,
)

# Why a walk stopped. The first two are limits of the caller, the others the kind of bytes at the position.
RANGE_END, OUTPUT_FULL, SEGMENT_END, LOG_END, DAMAGE = 0, 1, 2, 3, 4
MESSAGE = 5

_V1, _V2, _BLANK = np.uint32(MAGIC_V1), np.uint32(MAGIC_V2), np.uint32(MAGIC_BLANK)
_PHYSICAL_OFFSET = RECORD_PREFIX.position("physical_offset")
_SYS_FLAG = RECORD_PREFIX.position("sys_flag")
_BODY_CRC = RECORD_PREFIX.position("body_crc")
_CRC_PROPERTY_BYTES = CRC_PROPERTY_BYTES
_CRC_NAME = np.uint64(int.from_bytes(CRC32.encode(), "little"))
_PREFIX_BYTES = RECORD_PREFIX.size_bytes
_IPV6_EXTRA = IPV6_HOST_BYTES - IPV4_HOST_BYTES
_BORN_IPV6, _STORE_IPV6 = flags.BORN_HOST_IPV6, flags.STORE_HOST_IPV6
_TAIL_BYTES = RECORD_BYTES_MIN - _PREFIX_BYTES
_ENTRY_MAGIC, _FILE_END = np.int32(ENTRY_MAGIC), np.int32(FILE_END_MAGIC)
_ENTRY_BYTES = ENTRY_HEADER.size_bytes
_ENTRY_SIZE = ENTRY_HEADER.position("size_bytes")
_ENTRY_INDEX = ENTRY_HEADER.position("index")
_ENTRY_OFFSET = ENTRY_HEADER.position("physical_offset")
_ENTRY_BODY = ENTRY_HEADER.position("body_bytes")
_TOPIC_MAX_V1, _TOPIC_MAX_V2, _RECORD_MIN = TOPIC_BYTES_MAX_V1, TOPIC_BYTES_MAX_V2, RECORD_BYTES_MIN


@inlined
def _look_at_entry(address, position, end, base, check_offset):
    """Return the kind of the DLedger entry at `position`: MESSAGE if a record may follow; its end is in `end`."""
    available = end - position
    if available < 8:
        return DAMAGE
    magic = load_i32(address, position)
    size = np.int64(load_i32(address, position + _ENTRY_SIZE))
    if magic != _ENTRY_MAGIC:
        if magic == _FILE_END and size == available:
            return SEGMENT_END
        if magic == 0 and size == 0:
            return LOG_END
        return DAMAGE
    if size < _ENTRY_BYTES or size > available:
        return DAMAGE
    if load_i32(address, position + _ENTRY_BODY) != size - _ENTRY_BYTES:
        return DAMAGE
    if load_i64(address, position + _ENTRY_INDEX) < 0:
        return DAMAGE
    if check_offset and load_i64(address, position + _ENTRY_OFFSET) != base + position:
        return DAMAGE
    # The body must be one record, of exactly this size.
    if size < _ENTRY_BYTES + 8 or load_i32(address, position + _ENTRY_BYTES) != size - _ENTRY_BYTES:
        return DAMAGE
    return MESSAGE


@inlined
def _kind_without_record(magic, total_size, available, header_bytes):
    """Return the kind of bytes that do not have the magic of a record; after the header of an entry they are damage."""
    if header_bytes == 0 and magic == _BLANK and total_size == available:
        return SEGMENT_END
    if header_bytes == 0 and magic == 0 and total_size == 0:
        return LOG_END
    return DAMAGE


@inlined
def look_at(address, position, end, base, check_offset, header_bytes):
    """Return the kind of bytes at `position`, and the parts of a message.

    A record begins at `position`, or after the header of a DLedger entry there if `header_bytes` is not 0.
    Parts are (total_size, body_start, body_length, topic_start, topic_length, properties_length); properties are the
    last bytes of the record. Reads no byte at or past `end`. The topic's encoding and the CRCs are left to `is_intact`:
    kernels that look topics up in a table check each topic once.
    """
    nothing = (np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0))
    if header_bytes:
        kind = _look_at_entry(address, position, end, base, check_offset)
        if kind != MESSAGE:
            return kind, nothing
        position += _ENTRY_BYTES
    available = end - position
    if available < 8:
        return DAMAGE, nothing
    total_size = np.int64(load_i32(address, position))
    magic = load_u32(address, position + 4)
    if magic != _V1 and magic != _V2:
        return _kind_without_record(magic, total_size, available, header_bytes), nothing
    if total_size < _RECORD_MIN or total_size > available:
        return DAMAGE, nothing
    if check_offset and load_i64(address, position + _PHYSICAL_OFFSET) != base + position:
        return DAMAGE, nothing
    record_end = position + total_size
    sys_flag = load_i32(address, position + _SYS_FLAG)
    body_start = position + _PREFIX_BYTES
    if sys_flag & (_BORN_IPV6 | _STORE_IPV6):
        body_start += _IPV6_EXTRA if sys_flag & _BORN_IPV6 else 0
        body_start += _IPV6_EXTRA if sys_flag & _STORE_IPV6 else 0
        if body_start + _TAIL_BYTES > record_end:
            return DAMAGE, nothing
    body_length = np.int64(load_i32(address, body_start - 4))
    is_v2 = magic == _V2
    topic_length_bytes = 2 if is_v2 else 1
    body_end = body_start + body_length
    if body_length < 0 or body_end + topic_length_bytes + 2 > record_end:
        return DAMAGE, nothing
    topic_length = np.int64(load_u16(address, body_end)) if is_v2 else np.int64(load_u8(address, body_end))
    topic_start = body_end + topic_length_bytes
    topic_end = topic_start + topic_length
    topic_max = _TOPIC_MAX_V2 if is_v2 else _TOPIC_MAX_V1
    if topic_length == 0 or topic_length > topic_max or topic_end + 2 > record_end:
        return DAMAGE, nothing
    properties_length = np.int64(load_u16(address, topic_end))
    if properties_length > 32767 or topic_end + 2 + properties_length != record_end:
        return DAMAGE, nothing
    return MESSAGE, (total_size, body_start, body_length, topic_start, topic_length, properties_length)


@with_twin(plain_loads.prefetch_next)
def prefetch_next(address, position, total_size):
    """Prefetch the record after the next one.

    A walk is a chain of dependent loads. Records of a log tend to have similar sizes, so the position of the record
    after next can be guessed before the size of the next one is known. It pays when bodies are skipped.
    """
    guess = position + 2 * total_size
    for line in range(-192, 192, 64):
        prefetch(address, guess + line)


@inlined
def has_wrong_property_crc(address, position, total_size, properties_length):
    """Return whether a record ends with a property CRC that is not the CRC of the bytes before it."""
    end = position + total_size
    start = end - _CRC_PROPERTY_BYTES
    if properties_length < _CRC_PROPERTY_BYTES or load_u8(address, start + 8) != 1:
        return False
    if load_word(address, start) != _CRC_NAME:
        return False
    crc = np.int64(body_crc(address, position, total_size - _CRC_PROPERTY_BYTES))
    for at in range(start + 9, end - 1):  # decimal digits, the lowest first
        if load_u8(address, at) != 48 + crc % 10:
            return True
        crc //= 10
    return load_u8(address, end - 1) != 2


@inlined
def has_right_crcs(address, position, parts, check_offset):
    """Return whether the body's CRC is right, and the property CRC if there is one and the record is in a log."""
    total_size, body_start, body_length, _, _, properties_length = parts
    if load_i32(address, position + _BODY_CRC) != body_crc(address, body_start, body_length):
        return False
    return not (check_offset and has_wrong_property_crc(address, position, total_size, properties_length))


@inlined
def is_intact(address, position, parts, check_offset, check_crc):
    """Return whether a message passes the checks that `look_at` leaves out."""
    if check_crc and not has_right_crcs(address, position, parts, check_offset):
        return False
    topic_start, topic_length = parts[3], parts[4]
    return is_utf8(address, topic_start, topic_start + topic_length)


@inlined
def _walk(address, position, stop, end, base, check_offset, header_bytes, check_crc, positions, is_noted):
    """Walk the messages that start before `stop`; return (count, next position, why it stopped)."""
    count = 0
    while position < stop:
        if is_noted and count == positions.shape[0]:
            return count, position, OUTPUT_FULL
        kind, parts = look_at(address, position, end, base, check_offset, header_bytes)
        if kind != MESSAGE:
            return count, position, kind
        prefetch_next(address, position, header_bytes + parts[0])  # before the CRCs: the loads overlap with them
        if not is_intact(address, position + header_bytes, parts, check_offset, check_crc):
            return count, position, DAMAGE
        if is_noted:
            positions[count] = position
        count += 1
        position += header_bytes + parts[0]
    return count, position, RANGE_END


@kernel
def walk(address, position, stop, end, base, check_offset, header_bytes, check_crc, positions):
    """Note the positions of messages that start before `stop`; return (count, next position, why it stopped)."""
    return _walk(address, position, stop, end, base, check_offset, header_bytes, check_crc, positions, True)


@kernel
def count_records(address, position, stop, end, base, check_offset, header_bytes, check_crc):
    """Count the messages that start before `stop`; return (count, next position, why it stopped)."""
    unused = np.empty(0, np.int64)
    return _walk(address, position, stop, end, base, check_offset, header_bytes, check_crc, unused, False)


Stop = SegmentEnd | LogEnd | Damage | None


class SourceBytes:
    """Bytes that kernels may read: keeps them alive, knows their address and bounds.

    `base_physical_offset` is that of the first byte; without it the physical offsets of records are not checked.
    `log_format` decides whether each record follows the header of a DLedger entry.
    """

    __slots__ = ("address", "array", "base", "check_offset", "header_bytes", "log_format", "view")

    def __init__(
        self,
        buffer: Bytes,
        base_physical_offset: int | None = None,
        log_format: LogFormat = LogFormat.ORDINARY,
    ) -> None:
        self.view = memoryview(buffer).toreadonly()
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self.view, np.uint8)
        self.address = self.array.ctypes.data
        self.base = base_physical_offset or 0
        self.check_offset = base_physical_offset is not None
        self.log_format = log_format
        self.header_bytes = log_format.header_bytes

    def __len__(self) -> int:
        return len(self.view)

    def range(self, start: int, stop: int | None) -> tuple[int, int]:
        """Return the range after checking that it is inside the bytes: kernels rely on it."""
        stop = len(self) if stop is None else stop
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"range {start}..{stop} is not inside {len(self)} bytes")
        return start, stop

    def run(
        self, walks: Callable[..., tuple[int, int, int]], position: int, stop: int, check_crc: bool, *outputs: object
    ) -> tuple[int, int, int]:
        """Run a kernel over a range that `range` has checked; return (rows, next position, why it stopped).

        All kernels that walk records begin with the same eight parameters; `outputs` are those that follow.
        """
        return walks(
            self.address,
            position,
            stop,
            len(self),
            self.base,
            self.check_offset,
            self.header_bytes,
            check_crc,
            *outputs,
        )

    def explain(self, position: int, why: int, *, check_crc: bool) -> Stop:
        """Return the reason why a walk stopped at `position`, as `formats` reports it."""
        if why in (RANGE_END, OUTPUT_FULL):
            return None
        base = self.base if self.check_offset else None
        found = read_log_at(self.view, position, self.log_format, base_physical_offset=base, check_crc=check_crc)
        if isinstance(found, Message):
            raise AssertionError(f"kernel and formats disagree on the record at {position}")
        return found


@dataclass(frozen=True, slots=True)
class Walk:
    """Result of a walk: positions of messages, the next position, and the reason (None at the end of the range)."""

    positions: npt.NDArray[np.int64]
    next_position: int
    stop: Stop


def walk_messages(
    buffer: Bytes,
    start: int = 0,
    stop: int | None = None,
    *,
    base_physical_offset: int | None = None,
    log_format: LogFormat = LogFormat.ORDINARY,
    check_crc: bool = True,
) -> Walk:
    """Find every message that starts in the range; the twin of `formats.records.log_format.scan_log`.

    The positions are those of records, or of the entries that contain them.
    """
    source = SourceBytes(buffer, base_physical_offset, log_format)
    position, stop = source.range(start, stop)
    found: list[npt.NDArray[np.int64]] = []
    why = OUTPUT_FULL
    while why == OUTPUT_FULL:
        room = np.empty(min(65536, (stop - position) // RECORD_BYTES_MIN + 1), np.int64)
        count, position, why = source.run(walk, position, stop, check_crc, room)
        found.append(room[:count])
    return Walk(np.concatenate(found), position, source.explain(position, why, check_crc=check_crc))
