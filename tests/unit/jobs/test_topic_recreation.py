"""Topics that are deleted and recreated are common: reported as notes, and rebuilt as brokers have them."""

from __future__ import annotations

import shutil
import struct
from itertools import count
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW
from orbitlog.formats.records.message import make_message
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, ConsumerOffsets, TopicGroup
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings, load_settings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.sample_messages import sample_messages
from tests.support.damage_zoo import patch, records
from tests.support.repaired_stores import fingerprint

CONFIG = StoreConfig(StoreGeometry(32 * 1024, 1220, index_layout=IndexLayout(307, 905)))
START_MS = 1_790_000_000_000


def write_table(root: Path, topics: set[str]) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = TopicTable({topic: TopicConfig(topic) for topic in topics})
    (root / "config" / TOPICS.name).write_text(TOPICS.encode(table, COMPAT_5_5))


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of which one topic was recreated."""
    root = tmp_path_factory.mktemp("lives") / "store"
    clock = count(START_MS, 5)
    with MessageStore.open(root, CONFIG, lambda: next(clock)) as store:
        topics = {message.topic for message in sample_messages(START_MS) if store.append(message)}
    with MessageStore.open(root, CONFIG, lambda: next(clock)) as store:
        assert store.delete_topics(lambda topic: topic == "Notes")
    with MessageStore.open(root, CONFIG, lambda: next(clock)) as store:
        for message in sample_messages(START_MS):
            store.append(message)
    write_table(root, topics)
    return root


@pytest.fixture
def root(lived_in: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(lived_in, tmp_path / "store"))


def test_a_topic_that_was_made_again_is_a_note(root: Path) -> None:
    found = examine(root, split_bytes=64 * 1024)
    assert found.is_sound
    assert [(one.kind, one.topic) for one in found.findings] == [("topic life", "Notes")]
    assert found.check.ends["Notes", 0].first == 0


def test_its_queues_are_rebuilt_as_the_broker_has_them(root: Path) -> None:
    before = fingerprint(root / "consumequeue")
    shutil.rmtree(root / "consumequeue" / "Notes" / "0")
    found = examine(root)
    assert {one.kind for one in found.findings} == {"topic life", "queue file"}
    assert apply_repair(root).is_sound
    assert fingerprint(root / "consumequeue") == before


def test_a_deleted_topic_is_a_note(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Orders")
    assert not examine(root).is_sound, "the table knows it"
    write_table(root, {"Notes", "Telemetry", "SCHEDULE_TOPIC_XXXX"})
    found = examine(root)
    assert found.is_sound
    assert [one.topic for one in found.findings if one.kind == "topic life"] == ["Notes", "Orders"]


def test_messages_dispatched_after_their_topic_was_deleted_are_a_note(root: Path) -> None:
    for path in (root / "consumequeue" / "Orders").rglob(f"{0:020d}"):
        path.write_bytes(PRE_BLANK_RAW * 2 + path.read_bytes()[2 * ENTRY_BYTES :])
    assert not examine(root).is_sound, "the table knows the topic"
    write_table(root, {"Notes", "Telemetry", "SCHEDULE_TOPIC_XXXX"})
    found = examine(root)
    assert found.is_sound
    assert [one.topic for one in found.findings if one.kind == "topic life"] == ["Notes", "Orders"]


def test_one_message_that_begins_again_is_damage(root: Path) -> None:
    last = [one for one in records(root) if one.topic == "Telemetry" and one.queue_id == 0][-1]
    patch(root, last.physical_offset + 20, struct.pack(">q", 0))
    assert "queue order" in {one.kind for one in examine(root).findings}
    assert apply_repair(root).is_sound


def test_rebuild_leaves_deleted_topics_out_and_the_next_start_keeps_it(root: Path) -> None:
    write_table(root, {"Orders", "Notes", "Telemetry", "SCHEDULE_TOPIC_XXXX"})
    shutil.rmtree(root / "consumequeue" / "Orders")
    write_table(root, {"Notes", "Telemetry", "SCHEDULE_TOPIC_XXXX"})
    before = fingerprint(root / "consumequeue")
    assert rebuild_in_place(root, RebuildWish(), StoreSettings()).is_published
    assert fingerprint(root / "consumequeue") == before
    assert not (root / "orbitlog.state").exists()
    MessageStore.open(root, CONFIG, lambda: START_MS + 10_000_000).close()
    assert fingerprint(root / "consumequeue") == before
    assert examine(root).is_sound


def test_rebuild_of_lost_queues_is_what_the_next_start_makes(root: Path, tmp_path: Path) -> None:
    """One copy is rebuilt by the doctor, one by the store when it is opened."""
    before = fingerprint(root / "consumequeue")
    shutil.rmtree(root / "consumequeue")
    (root / "orbitlog.state").unlink()
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    sizes = load_settings(None, ["mappedFileSizeConsumeQueue=1220"])  # no file is left that shows it
    assert rebuild_in_place(copy, RebuildWish(), sizes).is_published
    assert fingerprint(copy / "consumequeue") == before
    MessageStore.open(root, CONFIG, lambda: START_MS + 10_000_000).close()
    assert fingerprint(root / "consumequeue") == before


def test_queue_left_empty_by_a_recreation_is_no_finding(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", count(START_MS, 5)
    with MessageStore.open(root, CONFIG, lambda: next(clock)) as store:
        for queue_id in (0, 1, 2, 3, 0, 1):
            store.append(make_message("T", b"old", properties={"KEYS": "k"}, queue_id=queue_id))
            store.dispatch_once()
        store.delete_topics(lambda topic: topic == "T")
        for _ in range(2):
            store.append(make_message("T", b"new", properties={"KEYS": "k"}, queue_id=1))
    write_table(root, {"T"})
    before = fingerprint(root / "consumequeue")
    assert [(one.kind, one.topic) for one in examine(root).findings] == [("topic life", "T")]
    assert rebuild_in_place(root, RebuildWish(), StoreSettings()).is_published
    assert fingerprint(root / "consumequeue") == before


def made_again(root: Path, lives: tuple[int, ...]) -> Path:
    """Write a store whose only topic had these numbers of messages in each of its lives."""
    clock, topics = count(START_MS, 5), {"Notes"}
    messages = [message for message in sample_messages(START_MS) if message.topic == "Notes" and not message.queue_id]
    for number, sent in enumerate(lives):
        with MessageStore.open(root, CONFIG, lambda: next(clock)) as store:
            for message in messages[:sent]:
                store.append(message)
        if number < len(lives) - 1:
            with MessageStore.open(root, CONFIG, lambda: next(clock)) as store:
                store.delete_topics(lambda topic: topic == "Notes")
    write_table(root, topics)
    return root


@pytest.mark.parametrize("lives", [(5, 1), (1, 1, 1), (1, 4), (4, 1, 2)])
def test_life_of_one_message_is_confirmed_by_the_queue(lives: tuple[int, ...], tmp_path: Path) -> None:
    root = made_again(tmp_path / "store", lives)
    found = examine(root)
    assert found.is_sound, found.diagnoses
    assert [one.kind for one in found.findings] == ["topic life"]
    assert found.check.ends["Notes", 0].next_offset == lives[-1]


def test_only_topic_deleted_is_a_note(tmp_path: Path) -> None:
    root = made_again(tmp_path / "store", (5, 0))
    assert "created again" in " ".join(one.reason for one in examine(root).findings), "the table knows it"
    write_table(root, {"SCHEDULE_TOPIC_XXXX"})
    assert [one.kind for one in examine(root).findings] == ["topic life"]
    shutil.rmtree(root / "consumequeue")
    assert not examine(root).is_sound, "queues are missing, whatever the table contains"


def test_offset_of_the_earlier_life_is_a_note(tmp_path: Path) -> None:
    root = made_again(tmp_path / "store", (5, 2))
    offsets = ConsumerOffsets({TopicGroup("Notes", "readers"): {0: 5}})
    (root / "config" / CONSUMER_OFFSET.name).write_text(CONSUMER_OFFSET.encode(offsets, COMPAT_5_5))
    found = examine(root)
    assert found.is_sound
    assert {one.kind for one in found.findings} == {"topic life", "earlier life"}
