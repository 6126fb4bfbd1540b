"""Tables in RocksDB, as the JSON files of an ordinary store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.group_config import SUBSCRIPTION_GROUP
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, TopicGroup
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.storefiles.rocksdb.rocksdb_tables import table_documents
from tests.support.rocksdb_archives import JOINT, ONE_PER_TABLE, unpack_rocksdb_store

rocksdict = pytest.importorskip("rocksdict")


@pytest.fixture(params=[ONE_PER_TABLE, JOINT])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack_rocksdb_store(request.param, tmp_path) / "config"


def write_topics(path: Path, counter: int) -> None:
    document = json.loads(TOPICS.encode(TopicTable({"Newer": TopicConfig("Newer")}), COMPAT_5_5))
    document["dataVersion"] = {"counter": counter, "stateVersion": 0, "timestamp": 1}
    path.write_text(json.dumps(document))


def test_tables_are_those_that_the_broker_had(config: Path) -> None:
    documents = table_documents(config, COMPAT_5_5)
    topics = TOPICS.decode(documents[TOPICS.name].decode()).topics
    (topic,) = (name for name in topics if name.startswith("Plain_"))
    assert topics[topic].read_queue_count == 4
    offsets = CONSUMER_OFFSET.decode(documents[CONSUMER_OFFSET.name].decode()).offsets
    group = topic.replace("Plain", "plain")
    assert offsets[TopicGroup(topic, group)] == {0: 3, 1: 3, 2: 3, 3: 3}
    groups = SUBSCRIPTION_GROUP.decode(documents[SUBSCRIPTION_GROUP.name].decode()).groups
    # Java 5.5.0 does not save groups that it creates by itself in the joint database.
    assert group in groups or not groups


def test_json_file_counts_if_it_is_newer_than_a_database_of_its_table(tmp_path: Path) -> None:
    config = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path) / "config"
    write_topics(config / TOPICS.name, 0)
    assert "Newer" not in TOPICS.decode(table_documents(config, COMPAT_5_5)[TOPICS.name].decode()).topics
    write_topics(config / TOPICS.name, 10_000)
    topics = TOPICS.decode(table_documents(config, COMPAT_5_5)[TOPICS.name].decode()).topics
    assert "Newer" in topics and any(name.startswith("Plain_") for name in topics)


def test_json_file_beside_the_joint_database_never_counts(tmp_path: Path) -> None:
    config = unpack_rocksdb_store(JOINT, tmp_path) / "config"
    write_topics(config / TOPICS.name, 10_000)
    assert "Newer" not in TOPICS.decode(table_documents(config, COMPAT_5_5)[TOPICS.name].decode()).topics


def test_tables_in_both_layouts_are_refused(tmp_path: Path) -> None:
    config = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path / "one") / "config"
    shutil.copytree(unpack_rocksdb_store(JOINT, tmp_path / "joint") / "config" / "rdb", config / "rdb")
    with pytest.raises(StoreLayoutError, match="configManagerVersion"):
        table_documents(config, COMPAT_5_5)


def test_forbidden_topics_of_groups_are_kept(tmp_path: Path) -> None:
    config = unpack_rocksdb_store(ONE_PER_TABLE, tmp_path) / "config"
    directory = config / "subscriptionGroups"
    options = rocksdict.Options(raw_mode=True)
    names = rocksdict.Rdict.list_cf(str(directory), options)
    opened = rocksdict.Rdict(str(directory), options, {name: rocksdict.Options(raw_mode=True) for name in names})
    opened.create_column_family("forbidden", rocksdict.Options(raw_mode=True))[b"g1"] = b'{"Orders":3}'
    opened.close()
    groups = SUBSCRIPTION_GROUP.decode(table_documents(config, COMPAT_5_5)[SUBSCRIPTION_GROUP.name].decode())
    assert groups.forbidden == {"g1": {"Orders": 3}}


@pytest.mark.parametrize("value", [b"no JSON", b'{"offsetTable":3}', b'{"offsetTable":{"0":"x"}}', b"\xff"])
def test_entry_of_an_unknown_form_is_refused(tmp_path: Path, value: bytes) -> None:
    directory = tmp_path / "consumerOffsets"
    opened = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))
    opened[b"Topic@group"] = value
    opened.close()
    with pytest.raises(StoreLayoutError):
        table_documents(tmp_path, COMPAT_5_5)


def test_directory_without_databases_has_no_tables(tmp_path: Path) -> None:
    assert table_documents(tmp_path, COMPAT_5_5) == {}
