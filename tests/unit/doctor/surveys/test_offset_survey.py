"""Invalid offsets: reset so that no pending message is passed over."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats import names
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET, LMQ_CONSUMER_OFFSET, TopicGroup
from orbitlog.testing.golden import GoldenStore
from tests.support import damage_zoo


@pytest.fixture
def root(golden_550_crash: GoldenStore, tmp_path: Path) -> Path:
    shutil.copytree(golden_550_crash.store, tmp_path / "store", ignore=shutil.ignore_patterns("timerwheel"))
    return tmp_path / "store"


def test_transaction_checks_restart(root: Path) -> None:
    damage_zoo.transaction_offsets_past_the_end(root)
    assert apply_repair(root).is_sound
    mended = CONSUMER_OFFSET.decode((root / "config" / "consumerOffset.json").read_text())
    for topic in (names.HALF_TOPIC, names.OP_HALF_TOPIC):
        assert mended.offsets[TopicGroup(topic, names.TRANSACTION_GROUP)] == {0: 0}


def test_delay_levels_continue_with_messages_not_yet_due(root: Path) -> None:
    right = DELAY_OFFSET.decode((root / "config" / "delayOffset.json").read_text()).offsets
    waiting = {level: 0 for level in (17, 18)}
    assert waiting.items() <= right.items()
    damage_zoo.delay_offsets_past_the_end(root)
    assert apply_repair(root).is_sound
    mended = DELAY_OFFSET.decode((root / "config" / "delayOffset.json").read_text()).offsets
    assert waiting.items() <= mended.items()
    assert all(mended[level] <= queue_offset for level, queue_offset in right.items())


def test_offsets_of_a_broker_with_light_queues_are_repaired_in_their_own_file(root: Path) -> None:
    damage_zoo.transaction_offsets_past_the_end(root)
    config = root / "config"
    text = (config / CONSUMER_OFFSET.name).read_text()
    for path in config.glob(f"{CONSUMER_OFFSET.name}*"):
        path.unlink()
    (config / LMQ_CONSUMER_OFFSET.name).write_text(text[:-1] + ',"lmqOffsetTable":{"%LMQ%a@%LMQ%g":3}}')
    assert apply_repair(root).is_sound
    repaired = LMQ_CONSUMER_OFFSET.decode((config / LMQ_CONSUMER_OFFSET.name).read_text())
    assert repaired.offsets[TopicGroup(names.HALF_TOPIC, names.TRANSACTION_GROUP)] == {0: 0}
    assert repaired.lmq_offsets == {TopicGroup("%LMQ%a", "%LMQ%g"): 3}
    assert not (config / CONSUMER_OFFSET.name).exists()
