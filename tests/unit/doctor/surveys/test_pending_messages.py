"""Pending messages of a stopped store: POP check points in the revive topic and the timer topic, timers that wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.doctor.surveys import pending_messages
from orbitlog.doctor.surveys.pending_messages import PendingMessages, find_pending
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.records.message import make_message
from orbitlog.formats.records.pop_checkpoint import (
    ACK_TAG,
    CHECK_POINT_TAG,
    PopCheckPoint,
    encode_ack,
    encode_check_point,
)
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.golden import GoldenStore
from tests.support.store_kinds import CONFIG, STORED_MS, put

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
TIMER = "rmq_sys_wheel_timer"
POINT = PopCheckPoint("T", "g", 0, 10, STORED_MS, 60_000, 3, (0, 1, 2), "broker-a")
OTHER = PopCheckPoint("T", "h", 0, 0, STORED_MS, 60_000, 2, (0, 1), "broker-a")


class Builder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.messages: list[tuple[str, bytes, dict[str, str]]] = []

    def add(self, tag: str, body: bytes, *, in_timer_until_ms: int | None = None) -> None:
        if in_timer_until_ms is None:
            self.messages.append((REVIVE, body, {"TAGS": tag}))
        else:
            out = {"TIMER_OUT_MS": str(in_timer_until_ms), "REAL_TOPIC": REVIVE}
            self.messages.append((TIMER, body, {"TAGS": tag, **out}))

    def found(self, offsets: str = "") -> PendingMessages:
        with MessageStore.open(self.root, CONFIG, lambda: STORED_MS) as store:
            for topic, body, properties in self.messages:
                store.append(make_message(topic, body, properties=properties))
        put(self.root / "config/consumerOffset.json", f'{{"offsetTable":{{{offsets}}}}}'.encode())
        return find_pending(find_store_files(self.root))


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def test_check_points_that_are_not_settled_count_without_what_is_acknowledged(builder: Builder) -> None:
    builder.add(CHECK_POINT_TAG, encode_check_point(POINT, COMPAT_5_5))
    builder.add(CHECK_POINT_TAG, encode_check_point(OTHER, COMPAT_5_5))
    builder.add(ACK_TAG, encode_ack(POINT.key, 11, "broker-a", COMPAT_5_5))
    assert builder.found('"T@g":{0:20},"T@h":{0:20}').popped == {"g": 2, "h": 2}


def test_check_point_before_the_revive_offset_is_settled(builder: Builder) -> None:
    builder.add(CHECK_POINT_TAG, encode_check_point(POINT, COMPAT_5_5))
    builder.add(CHECK_POINT_TAG, encode_check_point(OTHER, COMPAT_5_5))
    assert builder.found(f'"{REVIVE}@CID_RMQ_SYS_REVIVE_GROUP":{{0:0}},"T@h":{{0:20}}').popped == {"h": 2}


def test_check_point_that_waits_in_the_timer_topic_counts(builder: Builder) -> None:
    builder.add(CHECK_POINT_TAG, encode_check_point(POINT, COMPAT_5_5), in_timer_until_ms=STORED_MS + 59_000)
    found = builder.found('"T@g":{0:20}')
    assert (found.popped, found.timers) == ({"g": 3}, 0)


def test_message_after_the_committed_offset_is_not_in_flight(builder: Builder) -> None:
    builder.add(CHECK_POINT_TAG, encode_check_point(POINT, COMPAT_5_5))
    assert builder.found('"T@g":{0:11}').popped == {"g": 1}


def test_body_that_is_not_a_check_point_is_left_out(builder: Builder) -> None:
    builder.add(CHECK_POINT_TAG, b"garbage")
    assert not builder.found().popped


def test_own_pops_count_once(builder: Builder) -> None:
    builder.add(CHECK_POINT_TAG, encode_check_point(POINT, COMPAT_5_5))
    queue = '{"topic":"T","group":"g","queueId":0,"committed":10,"nextToPop":14,"queueOffsets":[12,13]}'
    put(builder.root / "config/orbitlogPops.json", f'{{"queues":[{queue}]}}'.encode())
    assert builder.found('"T@g":{0:20}').popped == {"g": 4}


def test_busy_queue_is_counted_from_its_newest_messages(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_messages, "_MESSAGES_MAX", 1)
    builder.add(CHECK_POINT_TAG, encode_check_point(POINT, COMPAT_5_5))
    builder.add(CHECK_POINT_TAG, encode_check_point(OTHER, COMPAT_5_5))
    found = builder.found('"T@g":{0:20},"T@h":{0:20}')
    assert (found.popped, found.is_complete) == ({"h": 2}, False)


def test_golden_store_has_the_timers_that_its_manifest_lists(golden_550_crash: GoldenStore) -> None:
    assert find_pending(find_store_files(golden_550_crash.store)).timers == 4
