"""The tables of topics, groups and offsets, alone and in the files of Java brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.broker.tables.groups import Groups
from orbitlog.broker.tables.topics import Topics
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.tables.group_config import SUBSCRIPTION_GROUP
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.storefiles.disk import RealDisk
from orbitlog.testing.golden import GoldenStore

unheard = Mock()


def test_topics_after_every_change_bump_the_version_and_call_back() -> None:
    reported: list[int] = []
    topics = Topics(lambda: 5, lambda: reported.append(topics.data_version.counter))
    topics.create_system_topics(BrokerSettings())
    topics.find_or_create("A", 2)
    topics.find_or_create("A", 9)
    assert topics.delete("A") and not topics.delete("A")
    assert reported == [2, 3], "the system topics of version 1 are created while the broker is built"
    assert topics.data_version.timestamp_ms == 5


def test_broker_without_write_permission_registers_no_writable_topic() -> None:
    topics = Topics(lambda: 0, unheard)
    topics.find_or_create("A", 2)
    assert topics.registered(["A", "deleted"], 4)["A"].permission == 4
    assert topics.registered(["A"], 6)["A"].permission == 6


def test_tables_of_apache_brokers_are_rewritten_byte_for_byte(
    golden_497: GoldenStore, golden_550_crash: GoldenStore, golden_copy: Callable[[GoldenStore], GoldenStore]
) -> None:
    for golden, compat in ((golden_497, COMPAT_4_9), (golden_550_crash, COMPAT_5_5)):
        root = golden_copy(golden).store
        directory = ConfigDirectory(RealDisk(), root, compat)
        for file in (TOPICS, SUBSCRIPTION_GROUP):
            table = directory.load(file)
            assert table is not None
            made = Topics(lambda: 0, unheard, table) if file is TOPICS else Groups(lambda: 0, unheard, table)  # type: ignore[arg-type]
            before = (root / "config" / file.name).read_bytes()
            directory.write(file.name, directory.encode(file, made.snapshot()))  # type: ignore[arg-type]
            assert (root / "config" / file.name).read_bytes() == before


def test_replaced_table_is_kept_as_backup(tmp_path: Path) -> None:
    directory = ConfigDirectory(RealDisk(), tmp_path, COMPAT_5_5)
    topics = Topics(lambda: 0, unheard)
    topics.find_or_create("A", 1)
    first = directory.encode(TOPICS, topics.snapshot())
    directory.write(TOPICS.name, first)
    topics.find_or_create("B", 1)
    directory.write(TOPICS.name, directory.encode(TOPICS, topics.snapshot()))
    assert (tmp_path / "config" / "topics.json.bak").read_bytes() == first
    (tmp_path / "config" / "topics.json").write_bytes(b'{"cut')
    loaded = ConfigDirectory(RealDisk(), tmp_path, COMPAT_5_5).load(TOPICS)
    assert loaded is not None and set(loaded.topics) == {"A"}


def test_offset_reset_waits_for_the_next_pull() -> None:
    offsets = CommittedOffsets(lambda: 0)
    assert offsets.commit("T", "G", 0, 10)
    offsets.reset("T", "G", 0, 3)
    assert not offsets.commit("T", "G", 0, 11)
    assert offsets.commit("T", "G", 1, 4)
    assert offsets.take_reset("T", "G", 0) == 3 and offsets.take_reset("T", "G", 0) is None
    assert offsets.find("T", "G", 0) == 3
    assert offsets.commit("T", "G", 0, 4)


def test_offsets_are_saved_and_loaded(tmp_path: Path) -> None:
    offsets = CommittedOffsets(lambda: 7)
    offsets.commit("T", "G", 1, 4)
    offsets.note_pull("T", "G", 1, 9)
    directory = ConfigDirectory(RealDisk(), tmp_path, COMPAT_5_5)
    directory.write(CONSUMER_OFFSET.name, directory.encode(CONSUMER_OFFSET, offsets.snapshot()))
    again = CommittedOffsets(lambda: 7, directory.load(CONSUMER_OFFSET))
    assert again.find("T", "G", 1) == 4 and again.pulled("T", "G", 1) == 9 and not again.is_changed
    assert again.topics_of("G") == ["T"] and again.groups_of("T") == ["G"]


def test_changed_topics_are_known_since_a_version_of_this_run() -> None:
    topics = Topics(lambda: 0, unheard)
    topics.find_or_create("A", 2)
    version = topics.data_version
    topics.find_or_create("B", 2)
    topics.find_or_create("C", 2)
    topics.delete("B")
    assert topics.changed_since(version) == ["C"]
    assert topics.changed_since(topics.data_version) == []
    assert topics.changed_since(replace(version, counter=99)) is None
    topics.touch()
    assert topics.changed_since(version) is None, "every topic changed with the broker's permission"


def test_changed_topics_are_unknown_past_the_length_of_the_journal() -> None:
    topics = Topics(lambda: 0, unheard)
    versions = [topics.data_version]
    for number in range(1_002):
        topics.find_or_create(f"T{number}", 1)
        versions.append(topics.data_version)
    assert topics.changed_since(versions[1]) is None
    assert len(topics.changed_since(versions[2]) or ()) == 1_000
