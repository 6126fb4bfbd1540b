"""RocksDB tables: reads the topics, groups and offsets that a 5.x broker keeps in RocksDB below config/.

Two layouts exist. With `storeType=defaultRocksDB` or `configManagerVersion=v1` there is one database per table, and a
value is the JSON of its entry. With `configManagerVersion=v2` the database config/rdb has all tables under binary keys:
a format byte, the table's number, a record kind, then length-prefixed names. The binding (`rocksdict`) is an extra; a
database is copied before it is opened, because opening one for reading may still write to its directory.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats.tables.loose_json import Json, read_json

_ENTRIES_MAX = 10_000_000
_VERSION_FAMILY = "kvDataVersion"
_VERSION_KEY = b"kvDataVersionKey"
TOPICS, GROUPS, OFFSETS, JOINT = "topics", "subscriptionGroups", "consumerOffsets", "rdb"
# Java `TableId`.
_PULLS = "pullOffsets"
_TABLES = {1: OFFSETS, 2: _PULLS, 3: TOPICS, 4: GROUPS}
_FORMAT, _DATA_VERSION, _DATA = 1, 1, 2
_TABLE_KEY = struct.Struct(">BHB")
_LENGTH, _QUEUE, _OFFSET = struct.Struct(">H"), struct.Struct(">i"), struct.Struct(">q")
_VERSION = struct.Struct(">qqq")
# ConsumeQueues: length, topic, `max` or `min` and queue id, with 0x01 between them.
_OFFSET_FAMILY, _LAST = "offset", b"max"


@dataclass(slots=True)
class TablesFound:
    """Entries of the tables, as the JSON files of an ordinary store have them; versions by table."""

    topics: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    pull_offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    versions: dict[str, Json] = field(default_factory=dict)


def rocksdb_directories(config: Path) -> list[Path]:
    """Return the directories below config/ that have a RocksDB database."""
    return [config / name for name in (TOPICS, GROUPS, OFFSETS, JOINT) if (config / name / "CURRENT").is_file()]


def read_tables(config: Path) -> TablesFound:
    """Read all tables; raise `StoreLayoutError` if the binding is not installed."""
    found = TablesFound()
    for directory in rocksdb_directories(config):
        with _opened(directory) as families:
            if directory.name == JOINT:
                _take_joint(found, families["default"], directory)
            else:
                _take_table(found, directory.name, families, directory)
    return found


def read_queues(directory: Path) -> set[tuple[str, int]]:
    """Return the queues of a database of ConsumeQueues: those for which it records a last offset."""
    queues = set()
    with _opened(directory) as families:
        for key, _ in families.get(_OFFSET_FAMILY, ()):
            try:
                (length,) = _QUEUE.unpack_from(key)
                end = _QUEUE.size + 1 + length
                topic, kind = key[_QUEUE.size + 1 : end].decode(), key[end + 1 : end + 1 + len(_LAST)]
                (queue_id,) = _QUEUE.unpack_from(key, end + 2 + len(_LAST))
            except (struct.error, UnicodeDecodeError):
                raise StoreLayoutError(f"{directory} has an offset entry of an unknown form") from None
            if kind == _LAST:
                queues.add((topic, queue_id))
    return queues


Families = dict[str, list[tuple[bytes, bytes]]]


@contextmanager
def _opened(directory: Path) -> Iterator[Families]:
    """Yield the entries of a copy of a database, by column family."""
    try:
        from rocksdict import AccessType, Options, Rdict
    except ImportError:
        raise StoreLayoutError(
            "reading RocksDB tables needs the package rocksdict; install it with pip install 'orbitlog[rocksdb]'"
        ) from None
    with tempfile.TemporaryDirectory(prefix="orbitlog-rocksdb-") as temporary:
        copy = str(shutil.copytree(directory, Path(temporary) / directory.name))
        try:
            options = Options(raw_mode=True)
            names = Rdict.list_cf(copy, options)
            families = {name: Options(raw_mode=True) for name in names}
            database: Any = Rdict(copy, options, families, AccessType.read_only())
        except Exception as error:  # noqa: BLE001 - the binding raises nothing narrower for what RocksDB reports
            raise StoreLayoutError(f"{directory} cannot be opened as a RocksDB database: {error}") from None
        try:
            yield {name: _entries(database.get_column_family(name), directory) for name in names}
        finally:
            database.close()


def _entries(family: Any, directory: Path) -> list[tuple[bytes, bytes]]:
    entries: list[tuple[bytes, bytes]] = []
    for key, value in family.items():
        entries.append((bytes(key), bytes(value)))
        if len(entries) > _ENTRIES_MAX:
            raise StoreLayoutError(f"{directory} has more than {_ENTRIES_MAX} entries")
    return entries


def _take_table(found: TablesFound, table: str, families: Families, directory: Path) -> None:
    for key, value in families.get(_VERSION_FAMILY, ()):
        if key == _VERSION_KEY:
            found.versions[table] = _json(value, directory)
    for key, value in families["default"]:
        name, entry = key.decode("utf-8", "replace"), _json(value, directory)
        if table == OFFSETS:
            offsets = entry.get("offsetTable") if isinstance(entry, dict) else None
            if not isinstance(offsets, dict):
                raise StoreLayoutError(f"{directory} has an entry for {name} without offsets")
            found.offsets[name] = {str(queue): int(str(offset)) for queue, offset in offsets.items()}
        elif table == TOPICS:
            found.topics[name] = entry
        else:
            found.groups[name] = entry


def _take_joint(found: TablesFound, entries: list[tuple[bytes, bytes]], directory: Path) -> None:
    for key, value in entries:
        if len(key) < _TABLE_KEY.size:
            raise StoreLayoutError(f"{directory} has a key of {len(key)} bytes, which no known version writes")
        version, number, kind = _TABLE_KEY.unpack_from(key)
        table = _TABLES.get(number)
        if version != _FORMAT or table is None:
            raise StoreLayoutError(
                f"{directory} has an entry of format {version}, table {number}, which is not known; open the store with"
                " the broker that wrote it"
            )
        rest = key[_TABLE_KEY.size :]
        if kind == _DATA_VERSION and len(value) == _VERSION.size:
            state, timestamp_ms, counter = _VERSION.unpack(value)
            found.versions.setdefault(table, {"counter": counter, "stateVersion": state, "timestamp": timestamp_ms})
        elif kind == _DATA and table in (OFFSETS, _PULLS):
            _take_offset(found.offsets if table == OFFSETS else found.pull_offsets, rest, value, directory)
        elif kind == _DATA:
            (length,) = _LENGTH.unpack_from(rest)
            name = rest[_LENGTH.size : _LENGTH.size + length].decode("utf-8", "replace")
            (found.topics if table == TOPICS else found.groups)[name] = _json(value[1:], directory)


def _take_offset(offsets: dict[str, dict[str, int]], rest: bytes, value: bytes, directory: Path) -> None:
    try:
        (group_length,) = _LENGTH.unpack_from(rest)
        at = _LENGTH.size + group_length
        group = rest[_LENGTH.size : at].decode()
        (topic_length,) = _LENGTH.unpack_from(rest, at + 1)
        topic = rest[at + 1 + _LENGTH.size : at + 1 + _LENGTH.size + topic_length].decode()
        (queue_id,) = _QUEUE.unpack_from(rest, at + 2 + _LENGTH.size + topic_length)
        (offset,) = _OFFSET.unpack(value)
    except (struct.error, UnicodeDecodeError):
        raise StoreLayoutError(f"{directory} has an offset entry of an unknown form") from None
    offsets.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset


def _json(value: bytes, directory: Path) -> Json:
    try:
        return read_json(value.decode("utf-8", "replace"))
    except FormatError as error:
        raise StoreLayoutError(f"{directory} has an entry that is not JSON: {error}") from None
