"""Queue table: numbers each distinct (topic, queue id) of a scan.

A hash table in plain arrays, so that kernels can look up and add queues without leaving machine code. Each queue has
attributes of its topic: whether it is the schedule topic, and the Java hash of `topic#`, which the hash of every index
key continues.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.formats import names
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.jit import inlined, kernel, with_twin
from orbitlog.kernels.plain import plain_text
from orbitlog.kernels.text import is_utf8, java_hash
from orbitlog.kernels.unaligned import copy_bytes, load_u8, load_word

_TOPIC_BYTES_MAX = 256
_MIX = np.uint64(0x9E3779B97F4A7C15)
_HASH = ord("#")
_SCHEDULE = np.frombuffer(names.SCHEDULE_TOPIC.encode(), np.uint8).copy()
_SCHEDULE_BYTES = len(_SCHEDULE)
TABLE_FULL, BAD_TOPIC = -1, -2


class QueueArrays(NamedTuple):
    """The table as kernels see it; `queue_count[0]` queues are in it."""

    queue_count: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int32]
    topics: npt.NDArray[np.uint8]
    topic_lengths: npt.NDArray[np.int32]
    queue_ids: npt.NDArray[np.int32]
    key_prefix_hash: npt.NDArray[np.int32]
    is_schedule: npt.NDArray[np.bool_]


def _empty_arrays(capacity: int) -> QueueArrays:
    return QueueArrays(
        queue_count=np.zeros(1, np.int64),
        slots=np.full(4 * capacity, -1, np.int32),
        topics=np.zeros(capacity * _TOPIC_BYTES_MAX, np.uint8),
        topic_lengths=np.zeros(capacity, np.int32),
        queue_ids=np.zeros(capacity, np.int32),
        key_prefix_hash=np.zeros(capacity, np.int32),
        is_schedule=np.zeros(capacity, np.bool_),
    )


@with_twin(plain_text.slot_of)
def _slot_of(address, position, length, queue_id, slots):
    """Mix topic and queue id into a first slot to try."""
    mixed = np.uint64(queue_id + 2**32) * _MIX
    last = position + length - 8
    while position < last:
        mixed = (mixed ^ load_word(address, position)) * _MIX
        mixed ^= mixed >> np.uint64(29)
        position += 8
    if length >= 8:
        mixed = (mixed ^ load_word(address, last)) * _MIX  # overlaps the word before: no bytes one by one
    else:
        for index in range(length):
            mixed = (mixed ^ np.uint64(load_u8(address, position + index))) * _MIX
    # Names differ mostly in their last bytes, which are the word's highest: bring them down before the last mixing.
    mixed = (mixed ^ mixed >> np.uint64(32)) * _MIX
    return np.int64(mixed >> np.uint64(33)) & (slots - 1)


@inlined
def _same_bytes(left, left_position, right, right_position, length):
    if length < 8:
        for index in range(length):
            if load_u8(left, left_position + index) != load_u8(right, right_position + index):
                return False
        return True
    last = length - 8
    done = 0
    while done < last:
        if load_word(left, left_position + done) != load_word(right, right_position + done):
            return False
        done += 8
    return load_word(left, left_position + last) == load_word(right, right_position + last)


@inlined
def find_queue(address, position, length, queue_id, table):
    """Return the number of a queue, adding it if it is new; TABLE_FULL or BAD_TOPIC if it cannot be added."""
    known = table.topics.ctypes.data
    slot_count = table.slots.shape[0]
    slot = _slot_of(address, position, length, queue_id, slot_count)
    while table.slots[slot] >= 0:
        code = np.int64(table.slots[slot])
        if table.queue_ids[code] == queue_id and table.topic_lengths[code] == length:
            if _same_bytes(known, code * _TOPIC_BYTES_MAX, address, position, length):
                return code
        slot = (slot + 1) & (slot_count - 1)
    return _add_queue(address, position, length, queue_id, table, slot)


@inlined
def _add_queue(address, position, length, queue_id, table, slot):
    code = table.queue_count[0]
    if code == table.queue_ids.shape[0]:
        return np.int64(TABLE_FULL)
    if not is_utf8(address, position, position + length):
        return np.int64(BAD_TOPIC)
    copy_bytes(table.topics.ctypes.data, code * _TOPIC_BYTES_MAX, address, position, length)
    table.topic_lengths[code] = length
    table.queue_ids[code] = queue_id
    prefix = java_hash(address, position, position + length, np.int32(0))
    table.key_prefix_hash[code] = np.int32(prefix * np.int32(31) + np.int32(_HASH))
    is_schedule = length == _SCHEDULE_BYTES
    for index in range(_SCHEDULE_BYTES):
        if not is_schedule:
            break
        is_schedule = load_u8(address, position + index) == _SCHEDULE[index]
    table.is_schedule[code] = is_schedule
    table.slots[slot] = code
    table.queue_count[0] = code + 1
    return np.int64(code)


@kernel
def _refill_slots(table):
    """Enter every queue into empty slots again."""
    slot_count = table.slots.shape[0]
    topics = table.topics.ctypes.data
    for code in range(table.queue_count[0]):
        length = np.int64(table.topic_lengths[code])
        slot = _slot_of(topics, np.int64(code * _TOPIC_BYTES_MAX), length, table.queue_ids[code], slot_count)
        while table.slots[slot] >= 0:
            slot = (slot + 1) & (slot_count - 1)
        table.slots[slot] = code


class QueueTable:
    """A growing table of queues; `arrays` is what kernels take."""

    def __init__(self, capacity: int = 1024) -> None:
        assert capacity & (capacity - 1) == 0
        self.arrays = _empty_arrays(capacity)

    def __len__(self) -> int:
        return int(self.arrays.queue_count[0])

    @property
    def is_full(self) -> bool:
        return len(self) == len(self.arrays.queue_ids)

    def grow(self) -> None:
        """Double the room; the numbers given stay as they are."""
        old = self.arrays
        capacity = len(old.queue_ids)
        self.arrays = _empty_arrays(2 * capacity)
        for name in ("topics", "topic_lengths", "queue_ids", "key_prefix_hash", "is_schedule"):
            stored = getattr(old, name)
            getattr(self.arrays, name)[: len(stored)] = stored
        self.arrays.queue_count[0] = len(old.queue_ids)
        _refill_slots(self.arrays)

    def queue(self, code: int) -> tuple[str, int]:
        """Return the topic and queue id of a number."""
        arrays = self.arrays
        start = code * _TOPIC_BYTES_MAX
        topic = arrays.topics[start : start + int(arrays.topic_lengths[code])].tobytes().decode()
        return topic, int(arrays.queue_ids[code])

    def queues(self) -> list[tuple[str, int]]:
        """Return every queue, in the order of their numbers."""
        return [self.queue(code) for code in range(len(self))]
