"""ConsumeQueues in RocksDB (`storeType=defaultRocksDB`): bounds of queues, and units in the form of queue files.

The database consumequeue/ has an entry for each unit and, in another column family, the ends of each queue. Keys are
the topic with its length, queue id and queue offset, with 0x01 between them; a value begins like a unit of a queue file
and ends with the store time. Mirrors Java `RocksDBConsumeQueueTable` and `RocksDBConsumeQueueOffsetTable`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.storefiles.rocksdb.databases import DEFAULT_FAMILY, Database, open_database
from orbitlog.storefiles.store_files import is_database

Queue = tuple[str, int]
_OFFSET_FAMILY = "offset"
_LAST = b"max"
_SEPARATOR = b"\x01"
# The position of Java's dispatcher is stored as if it were the end of a queue.
_DISPATCH_TOPIC = "CHECKPOINT_TOPIC"
_LENGTH, _QUEUE_ID, _QUEUE_OFFSET = struct.Struct(">i"), struct.Struct(">i"), struct.Struct(">q")
_END = struct.Struct(">qq")
_VALUE_BYTES = ENTRY_BYTES + 8


@dataclass(frozen=True, slots=True)
class LastUnit:
    """The last unit of a queue: the physical offset of its record and its queue offset."""

    physical_offset: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class StoredUnit:
    """A unit; `raw` are its 20 bytes as a queue file has them."""

    topic: str
    queue_id: int
    queue_offset: int
    raw: bytes


def queue_database(root: Path) -> Path | None:
    """Return the database with the queues of a store; None if its queues are files."""
    directory = root / tree.CONSUMEQUEUE
    return directory if is_database(directory) else None


def read_last_units(directory: Path) -> dict[Queue, LastUnit]:
    """Return the last unit of each queue, as the database records it."""
    with open_database(directory) as database:
        return last_units(database)


def last_units(database: Database) -> dict[Queue, LastUnit]:
    found: dict[Queue, LastUnit] = {}
    for key, value in database.items(_OFFSET_FAMILY):
        topic, rest = _split_key(key, database)
        if topic == _DISPATCH_TOPIC or not rest.startswith(_LAST + _SEPARATOR):
            continue
        try:
            (queue_id,) = _QUEUE_ID.unpack(rest[len(_LAST) + 1 :])
            physical_offset, queue_offset = _END.unpack(value)
        except struct.error:
            raise _unknown_form(database, key) from None
        found[topic, queue_id] = LastUnit(physical_offset, queue_offset)
    return found


def iterate_units(database: Database, start: bytes = b"") -> Iterator[StoredUnit]:
    """Yield units in the order of keys: by topic, queue id and queue offset."""
    for key, value in database.items(DEFAULT_FAMILY, start):
        topic, rest = _split_key(key, database)
        try:
            (queue_id,) = _QUEUE_ID.unpack_from(rest)
            (queue_offset,) = _QUEUE_OFFSET.unpack(rest[_QUEUE_ID.size + 1 :])
        except struct.error:
            raise _unknown_form(database, key) from None
        if len(value) < ENTRY_BYTES or len(value) > _VALUE_BYTES:
            raise _unknown_form(database, key)
        yield StoredUnit(topic, queue_id, queue_offset, value[:ENTRY_BYTES])


def units_of_queue(database: Database, topic: str, queue_id: int, start: int = 0) -> Iterator[StoredUnit]:
    """Yield the units of one queue from a queue offset on."""
    name = topic.encode()
    first = _SEPARATOR.join(
        (_LENGTH.pack(len(name)), name, _QUEUE_ID.pack(queue_id), _QUEUE_OFFSET.pack(max(start, 0)))
    )
    for unit in iterate_units(database, first):
        if (unit.topic, unit.queue_id) != (topic, queue_id):
            return
        yield unit


def _split_key(key: bytes, database: Database) -> tuple[str, bytes]:
    """Return the topic of a key, and what follows the separator after it."""
    try:
        (length,) = _LENGTH.unpack_from(key)
        end = _LENGTH.size + 1 + length
        topic = key[_LENGTH.size + 1 : end].decode()
    except (struct.error, UnicodeDecodeError):
        raise _unknown_form(database, key) from None
    if length < 0 or key[end : end + 1] != _SEPARATOR:
        raise _unknown_form(database, key)
    return topic, key[end + 1 :]


def _unknown_form(database: Database, key: bytes) -> StoreLayoutError:
    return StoreLayoutError(
        f"{database.directory} has an entry of an unknown form (key {key[:64].hex()}); open the store with the broker"
        " that wrote it"
    )
