"""Names and small files of a store: missing consumer offsets, a directory where a table is expected."""

from __future__ import annotations

import shutil
from itertools import count, islice
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.finding_kinds import Severity
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, ConsumerOffsets, TopicGroup
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.golden import GoldenStore
from orbitlog.testing.sample_messages import sample_messages
from tests.support.damage_zoo import patch, records


def test_progress_of_unknown_groups_is_reported(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    assert not [each for each in examine(root).diagnoses if each.finding.kind == "progress unknown"]
    (root / "config" / "consumerOffset.json").unlink()
    (root / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    examined = examine(root)
    (told,) = [each for each in examined.diagnoses if each.finding.kind == "progress unknown"]
    assert examined.is_sound and told.severity is Severity.NOTE
    assert "consumer groups were here" in told.finding.reason


def test_a_directory_in_the_place_of_a_small_table_is_set_aside(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    in_the_way = root / "config" / "orbitlogPops.json"
    in_the_way.mkdir()
    (told,) = [each for each in examine(root).diagnoses if each.finding.kind == "config"]
    assert told.finding.path == str(in_the_way)
    assert told.severity is Severity.ERROR and "is not a file" in told.finding.reason
    assert apply_repair(root).is_sound and not in_the_way.exists()


def test_offsets_of_a_broker_with_light_queues_are_not_missing(golden_497: GoldenStore, tmp_path: Path) -> None:
    config = golden_497.copy_to(tmp_path / "store").store / "config"
    (config / "consumerOffset.json").rename(config / "lmqConsumerOffset.json")
    (config / "consumerOffset.json.bak").unlink(missing_ok=True)
    assert not [each for each in examine(config.parent).diagnoses if each.finding.kind == "progress unknown"]


def test_file_that_a_killed_broker_was_replacing_is_a_note(golden_550_crash: GoldenStore, tmp_path: Path) -> None:
    root = golden_550_crash.copy_to(tmp_path / "store").store
    table = root / "config" / "topics.json"
    table.rename(table.with_name("topics.json.bak"))
    assert (root / "abort").exists() and examine(root).is_sound
    assert "config backup read" in {finding.kind for finding in examine(root).findings}
    (root / "abort").unlink()
    assert "config backup in use" in {one.finding.kind for one in examine(root).problems}


def test_unknown_directory_with_data_is_reported_as_unchecked(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    (root / "kvStore").mkdir()
    assert [one.kind for one in examine(root).findings] == ["layout"]
    (root / "kvStore" / "CURRENT").write_text("MANIFEST")
    (told,) = examine(root).diagnoses
    assert (told.finding.kind, told.severity) == ("unchecked", Severity.NOTE)
    assert "ignore" not in told.consequence


def write_topics(root: Path, *topics: TopicConfig) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = TopicTable({topic.topic: topic for topic in topics})
    (root / "config" / TOPICS.name).write_text(TOPICS.encode(table, COMPAT_5_5))


@pytest.fixture
def own_store(tmp_path: Path) -> Path:
    """One topic with two queues, closed."""
    clock = count(1_790_000_000_000, 5)
    config = StoreConfig(StoreGeometry(32 * 1024, 1220, index_layout=IndexLayout(307, 905)))
    with MessageStore.open(tmp_path / "store", config, lambda: next(clock)) as store:
        for number, message in enumerate(islice(sample_messages(1_790_000_000_000), 12)):
            store.append(message._replace(topic="Batched", queue_id=number % 2))
    return tmp_path / "store"


@pytest.mark.parametrize("has_files", [True, False])
def test_batch_queue_topic_has_no_missing_queue(own_store: Path, has_files: bool) -> None:
    """A record of a batch counts for several offsets, and its units are in batchconsumequeue/."""
    shutil.rmtree(own_store / "consumequeue" / "Batched")
    write_topics(own_store, TopicConfig("Batched"))
    assert {one.finding.kind for one in examine(own_store).problems} == {"queue file"}
    attributes = {} if has_files else {"queue.type": "BatchCQ"}
    write_topics(own_store, TopicConfig("Batched", attributes=attributes))
    if has_files:
        (own_store / "batchconsumequeue" / "Batched" / "0").mkdir(parents=True)
        (own_store / "batchconsumequeue" / "Batched" / "0" / f"{0:020d}").write_bytes(bytes(460))
    last = records(own_store)[-1]
    patch(own_store, last.physical_offset + 20, (20).to_bytes(8, "big"))
    found = examine(own_store)
    assert found.is_sound, found.diagnoses
    assert [one.kind for one in found.findings] == (["unchecked"] if has_files else [])


def test_queues_taken_away_after_they_were_consumed_are_a_note(own_store: Path) -> None:
    write_topics(own_store, TopicConfig("Batched", 1, 1))
    assert {one.finding.kind for one in examine(own_store).problems} == {"queue count"}
    offsets = ConsumerOffsets({TopicGroup("Batched", "readers"): {0: 2, 1: 6}})
    (own_store / "config" / CONSUMER_OFFSET.name).write_text(CONSUMER_OFFSET.encode(offsets, COMPAT_5_5))
    found = examine(own_store)
    assert found.is_sound and [one.kind for one in found.findings] == ["queue count consumed"]
