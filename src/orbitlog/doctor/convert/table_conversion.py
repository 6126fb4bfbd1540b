"""Table conversion: copies config/ into the new store, RocksDB tables as the JSON files of an ordinary store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orbitlog.doctor.convert.rocksdb_tables import read_tables, rocksdb_directories
from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.formats.tables.config_files import config_codec
from orbitlog.formats.tables.group_config import SUBSCRIPTION_GROUP
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.jobs.staging import TEMPORARY, put_bytes
from orbitlog.storefiles.config_reading import read_config
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_files import StoreFiles


def convert_tables(disk: Disk, store: StoreFiles, out: Path, state: Path, compat: Compat) -> list[str]:
    """Write config/ of the new store; return the names of its files."""
    target, temporary = out / tree.CONFIG, state / TEMPORARY
    written: dict[str, bytes] = {file.path.name: read_config(file.path) for file in store.config_files}
    config = store.root / tree.CONFIG
    if rocksdb_directories(config):
        written |= _tables_of(config, compat)
    for name, data in sorted(written.items()):
        put_bytes(disk, target / name, data, temporary)
    return sorted(written)


def _tables_of(config: Path, compat: Compat) -> dict[str, bytes]:
    found = read_tables(config)
    documents: dict[str, Mapping[str, Any]] = {
        TOPICS.name: {"dataVersion": found.versions.get("topics", {}), "topicConfigTable": found.topics},
        SUBSCRIPTION_GROUP.name: {
            "dataVersion": found.versions.get("subscriptionGroups", {}),
            "forbiddenTable": {},
            "subscriptionGroupTable": found.groups,
        },
        CONSUMER_OFFSET.name: {
            "dataVersion": found.versions.get("consumerOffsets", {}),
            "offsetTable": found.offsets,
            "pullOffsetTable": found.pull_offsets,
        },
    }
    converted = {}
    for name, document in documents.items():
        codec = config_codec(name)
        try:
            # Decoded and encoded once: an entry of an unknown form is refused here, not at the broker's start.
            converted[name] = codec.encode(codec.decode(json.dumps(document).encode()), compat)
        except FormatError as error:
            raise StoreLayoutError(f"the RocksDB tables below {config} do not fit into {name}: {error}") from None
    return converted
