"""Config files of a store: reads topics.json and the other tables below config/ as a broker would load them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from orbitlog.errors import FormatError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.config_files import ConfigValue, config_codec
from orbitlog.formats.tables.group_config import SUBSCRIPTION_GROUP
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET, LMQ_CONSUMER_OFFSET
from orbitlog.formats.tables.topic_config import TOPICS, TopicTable
from orbitlog.storefiles.confined.regular_files import read_below
from orbitlog.storefiles.rocksdb.databases import has_binding
from orbitlog.storefiles.rocksdb.rocksdb_tables import ROCKSDB_FILES, rocksdb_directories, table_documents
from orbitlog.storefiles.store_files import StoreFiles

CONFIG_TABLES = {
    TOPICS.name: b"topicConfigTable",
    CONSUMER_OFFSET.name: b"offsetTable",
    LMQ_CONSUMER_OFFSET.name: b"offsetTable",
    DELAY_OFFSET.name: b"offsetTable",
    SUBSCRIPTION_GROUP.name: b"subscriptionGroupTable",
}
_EMPTY = b"{} \t\r\n\xef\xbb\xbf"
# The attribute of a topic in topics.json that moves its queue (Java `TopicAttributes`, `CQType`).
_QUEUE_TYPE, _BATCH_QUEUE = "queue.type", "BatchCQ"
_CONFIG_BYTES_MAX = 256 * 1024 * 1024
_CACHED_BYTES_MAX = 1024 * 1024


def read_config(path: Path) -> bytes:
    """Return the bytes of a file of config/; only the start of one that is too large.

    Empty if it is missing, or if it or its directory is a link or a special file. A table that the store has in RocksDB
    is returned in the form of its file.
    """
    stored = stored_table(path)
    if stored is not None:
        return stored
    try:
        return read_below(path.parent.parent, path, _CONFIG_BYTES_MAX) or b""
    except (StoreLinkError, IsADirectoryError, NotADirectoryError):
        return b""


def stored_table(path: Path) -> bytes | None:
    """Return a table that the store has in RocksDB, as its file would be; None if files have the table.

    Without the package that reads RocksDB there are files only; `unread_tables` names what is missing then.
    """
    directories = rocksdb_directories(path.parent) if path.name in ROCKSDB_FILES else []
    if not directories or not has_binding():
        return None
    newest = max(file.stat().st_mtime_ns for directory in directories for file in directory.iterdir())
    return _stored_tables(path.parent, newest).get(path.name)


@lru_cache(maxsize=4)
def _stored_tables(config: Path, _newest_ns: int) -> dict[str, bytes]:
    return table_documents(config, COMPAT_5_5)


def unread_tables(root: Path) -> list[Path]:
    """Return the directories with tables in RocksDB if the package that reads them is not installed."""
    return [] if has_binding() else rocksdb_directories(root / tree.CONFIG)


def is_readable(path: Path) -> bool:
    """Return whether a broker would load a file of config/."""
    raw = read_config(path)
    return bool(raw) and not _problem(path, raw)


def config_problem(path: Path) -> str:
    """Return why a broker would not load a file of config/; empty if it would."""
    return _problem(path, read_config(path))


def _problem(path: Path, raw: bytes) -> str:
    try:
        _decode(path.name, raw)
    except FormatError as error:
        return f"cannot be read ({error})"
    table = CONFIG_TABLES.get(path.name.removesuffix(tree.BACKUP_SUFFIX))
    if table is not None and table not in raw and (raw.strip(_EMPTY) or table in read_config(backup_of(path))):
        return f"has no {table.decode()}: it is another file, or what is left of one"
    return ""


def _decode(name: str, raw: bytes) -> ConfigValue:
    # The surveys of one examination ask for the same few tables some twenty times. Records are immutable.
    return _decode_cached(name, raw) if len(raw) <= _CACHED_BYTES_MAX else config_codec(name).decode(raw)


@lru_cache(maxsize=16)
def _decode_cached(name: str, raw: bytes) -> ConfigValue:
    return config_codec(name).decode(raw)


def backup_of(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(tree.BACKUP_SUFFIX) + tree.BACKUP_SUFFIX)


def known_topics(root: Path) -> TopicTable | None:
    """Return topics.json as a broker would load it, or None if neither it nor its backup can be read."""
    for name in (TOPICS.name, TOPICS.name + tree.BACKUP_SUFFIX):
        path = root / tree.CONFIG / name
        raw = read_config(path)
        if raw and not _problem(path, raw):
            table = _decode(name, raw)
            assert isinstance(table, TopicTable)
            return table
    return None


def topics_with_batch_queues(store: StoreFiles) -> frozenset[str]:
    """Return the topics whose units are in batchconsumequeue/, by their attribute or by the files."""
    table = known_topics(store.root)
    known = table.topics.items() if table is not None else ()
    by_attribute = {topic for topic, entry in known if entry.attributes.get(_QUEUE_TYPE) == _BATCH_QUEUE}
    return frozenset(by_attribute | {topic for topic, _ in store.batch_queues})
