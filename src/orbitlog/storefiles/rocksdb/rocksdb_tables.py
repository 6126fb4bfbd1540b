"""RocksDB tables: reads the topics, groups and offsets that a 5.x broker keeps in RocksDB below config/.

Two layouts exist. With `storeType=defaultRocksDB` or `configManagerVersion=v1` there is one database per table, and a
value is the JSON of its entry. With `configManagerVersion=v2` the database config/rdb has all tables under binary keys:
a format byte, the table's number, a record kind, then length-prefixed names.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbitlog.errors import FormatError, StoreLayoutError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.formats.tables.group_config import SUBSCRIPTION_GROUP
from orbitlog.formats.tables.loose_json import Json, read_json
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET
from orbitlog.formats.tables.topic_config import TOPICS as TOPICS_FILE
from orbitlog.storefiles.confined.regular_files import read_below
from orbitlog.storefiles.rocksdb.databases import Database, has_entries, open_database

_ENTRIES_MAX = 10_000_000
_JSON_BYTES_MAX = 256 * 1024 * 1024
_VERSION_FAMILY, _FORBIDDEN_FAMILY = "kvDataVersion", "forbidden"
_VERSION_KEY = b"kvDataVersionKey"
TOPICS, GROUPS, OFFSETS, JOINT = "topics", "subscriptionGroups", "consumerOffsets", "rdb"
ROCKSDB_FILES = frozenset((TOPICS_FILE.name, SUBSCRIPTION_GROUP.name, CONSUMER_OFFSET.name))
"""Files that a broker with its tables in RocksDB does not write."""
# Java `TableId`.
_PULLS = "pullOffsets"
_TABLES = {1: OFFSETS, 2: _PULLS, 3: TOPICS, 4: GROUPS}
_FORMAT, _DATA_VERSION, _DATA = 1, 1, 2
_TABLE_KEY = struct.Struct(">BHB")
_LENGTH, _QUEUE, _OFFSET = struct.Struct(">H"), struct.Struct(">i"), struct.Struct(">q")
_VERSION = struct.Struct(">qqq")


@dataclass(slots=True)
class TablesFound:
    """Entries of the tables, as the JSON files of an ordinary store have them; versions by table."""

    topics: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    forbidden: dict[str, Json] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    pull_offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    versions: dict[str, Json] = field(default_factory=dict)


def rocksdb_directories(config: Path) -> list[Path]:
    """Return the directories below config/ that have a RocksDB database with entries."""
    return [config / name for name in (TOPICS, GROUPS, OFFSETS, JOINT) if has_entries(config / name)]


def read_tables(config: Path) -> TablesFound:
    """Read all tables; raise `StoreLayoutError` if the binding is not installed."""
    found = TablesFound()
    for directory in rocksdb_directories(config):
        with open_database(directory) as database:
            if directory.name == JOINT:
                _take_joint(found, database)
            else:
                _take_table(found, directory.name, database)
    return found


def table_documents(config: Path, compat: Compat) -> dict[str, bytes]:
    """Return the tables as the JSON files of an ordinary store, by name; nothing if no table is in RocksDB.

    A JSON file beside a database is one from before the tables moved, or a newer one that was put there. Brokers take
    its entries over if its version is higher and each table has its own database.
    """
    directories = {directory.name for directory in rocksdb_directories(config)}
    if not directories:
        return {}
    is_joint = JOINT in directories
    if is_joint and len(directories) > 1:
        raise StoreLayoutError(
            f"{config} has tables in {JOINT}/ and in a database per table; move away those that the broker's"
            " configManagerVersion does not use"
        )
    found = read_tables(config)
    documents: dict[str, Mapping[str, Any]] = {}
    if directories & {TOPICS, JOINT}:
        documents[TOPICS_FILE.name] = {
            "dataVersion": found.versions.get(TOPICS, {}),
            "topicConfigTable": found.topics,
        }
    if directories & {GROUPS, JOINT}:
        documents[SUBSCRIPTION_GROUP.name] = {
            "dataVersion": found.versions.get(GROUPS, {}),
            "forbiddenTable": found.forbidden,
            "subscriptionGroupTable": found.groups,
        }
    if directories & {OFFSETS, JOINT}:
        documents[CONSUMER_OFFSET.name] = {
            "dataVersion": found.versions.get(OFFSETS, {}),
            "offsetTable": found.offsets,
            "pullOffsetTable": found.pull_offsets,
        }
    if not is_joint:
        documents = {name: _merged(config / name, document) for name, document in documents.items()}
    return {name: _encoded(document, name, config, compat) for name, document in documents.items()}


def _merged(path: Path, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the entries of a JSON file that is newer than the database, as Java does when it starts."""
    for candidate in (path, path.with_name(path.name + tree.BACKUP_SUFFIX)):
        try:
            beside = read_json((read_below(path.parent.parent, candidate, _JSON_BYTES_MAX) or b"").decode())
        except (OSError, FormatError, StoreLinkError, UnicodeDecodeError):
            continue
        if not isinstance(beside, dict) or _counter(beside) <= _counter(document):
            return document
        merged = dict(document)
        for key, table in document.items():
            newer = beside.get(key)
            if isinstance(newer, dict):
                merged[key] = {**table, **newer}
        return merged
    return document


def _counter(document: Mapping[Any, Any]) -> int:
    version = document.get("dataVersion")
    counter = version.get("counter") if isinstance(version, dict) else None
    return counter if isinstance(counter, int) else -1


def _encoded(document: Mapping[str, Any], name: str, config: Path, compat: Compat) -> bytes:
    """Decode and encode a table once: an entry of an unknown form is refused here, not at a broker's start."""
    codec = config_codec(name)
    try:
        return codec.encode(codec.decode(json.dumps(document).encode()), compat)
    except FormatError as error:
        raise StoreLayoutError(f"the RocksDB tables below {config} do not fit into {name}: {error}") from None


def _take_table(found: TablesFound, table: str, database: Database) -> None:
    directory = database.directory
    for key, value in database.items(_VERSION_FAMILY):
        if key == _VERSION_KEY:
            found.versions[table] = _json(value, directory)
    for key, value in database.items(_FORBIDDEN_FAMILY):
        found.forbidden[_text(key, directory)] = _json(value, directory)
    for key, value in _bounded(database):
        name, entry = _text(key, directory), _json(value, directory)
        if table == OFFSETS:
            found.offsets[name] = _offsets_in(entry, name, directory)
        elif table == TOPICS:
            found.topics[name] = entry
        else:
            found.groups[name] = entry


def _offsets_in(entry: Json, name: str, directory: Path) -> dict[str, int]:
    offsets = entry.get("offsetTable") if isinstance(entry, dict) else None
    if not isinstance(offsets, dict):
        raise StoreLayoutError(f"{directory} has an entry for {name} without offsets")
    try:
        return {str(queue): int(str(offset)) for queue, offset in offsets.items()}
    except ValueError:
        raise StoreLayoutError(f"{directory} has an entry for {name} with an offset that is not a number") from None


def _take_joint(found: TablesFound, database: Database) -> None:
    directory = database.directory
    for key, value in _bounded(database):
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
            if len(rest) < _LENGTH.size:
                raise StoreLayoutError(f"{directory} has an entry without a name")
            (length,) = _LENGTH.unpack_from(rest)
            name = _text(rest[_LENGTH.size : _LENGTH.size + length], directory)
            (found.topics if table == TOPICS else found.groups)[name] = _json(value[1:], directory)


def _bounded(database: Database) -> Iterator[tuple[bytes, bytes]]:
    for number, entry in enumerate(database.items()):
        if number == _ENTRIES_MAX:
            raise StoreLayoutError(f"{database.directory} has more than {_ENTRIES_MAX} entries")
        yield entry


def _text(raw: bytes, directory: Path) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise StoreLayoutError(f"{directory} has an entry whose name is not UTF-8: {raw[:64].hex()}") from None


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
        return read_json(value.decode())
    except (FormatError, UnicodeDecodeError) as error:
        raise StoreLayoutError(f"{directory} has an entry that is not JSON: {error}") from None
