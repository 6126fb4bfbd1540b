"""Settings that change behaviour: the consequence that Orbitlog reports at its start, tried at both brokers.

A key of this class is one that Apache's broker honours and Orbitlog does not. So the two must behave differently with
it, and Orbitlog must do what its sentence states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitlog.settings.setting_classes import BEHAVIOUR
from tests.interop.handover import SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.raw_pops import PoppedMessage, RawPops
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

VERSION = "5.5.0"
IN_AN_HOUR_MS = int(time.time() * 1000) + 3_600_000
SETTLE_SECONDS = 8
TIMER_MS = 3_000
POPPED_MAX = 8
POP_INVISIBLE_MS = 10_000
CROWD = 6


@dataclass(frozen=True)
class Case:
    """What is seen with a setting: a number or whether something succeeds."""

    settings: Mapping[str, object]
    see: Callable[[Client], object]
    java: object
    orbitlog: object


def _sends(client: Client, **words: object) -> bool:
    try:
        client.send(client.producer(), client.topic("Sent", queues=1), body="some", **words)
    except Refused:
        return False
    return True


def _found_by_key(client: Client) -> bool:
    topic = client.topic("Keys", queues=1)
    (sent,) = client.send(client.producer(), topic, body="some", keys="wanted")
    time.sleep(SETTLE_SECONDS)
    return str(sent["msgId"]) in client.mqadmin(f"queryMsgByKey -t {topic} -k wanted")


def _timers_delivered(client: Client) -> int:
    topic = client.topic("Timed", queues=1)
    at_ms = int(time.time() * 1000) + TIMER_MS
    client.send(client.producer(), topic, body="timed", **{"system.TIMER_DELIVER_MS": at_ms})
    push = client.push(topic, client.group("timed"))
    time.sleep(TIMER_MS / 1000 + SETTLE_SECONDS)
    return len(push.messages)


def _pulls(client: Client) -> bool:
    topic = client.topic("Pulled", queues=1)
    client.send(client.producer(), topic, body="some")
    reader = client.pull_consumer(client.group("pulled"))
    try:
        answer = client.call("pull", name=reader, broker=client.system.broker_name, queue=0, topic=topic, position=0)
    except Refused:
        return False
    return len(answer["messages"]) == 1  # type: ignore[arg-type]


def _has_topic(topic: str) -> Callable[[Client], bool]:
    return lambda client: topic in client.mqadmin("topicList").split()


def _updates_topic(words: str) -> Callable[[Client], bool]:
    options = f"-r 1 -w 1 {words}"
    return lambda client: "success" in client.mqadmin(f"updateTopic -b {client.system.broker_address} {options}")


def _new_pops(client: Client) -> RawPops:
    topic, group = client.topic("Popped", queues=1), client.group("popped")
    assert "success" in client.mqadmin(f"updateSubGroup -b {client.system.broker_address} -g {group}")
    client.send(client.producer(), topic, count=2 * POPPED_MAX, body="some")
    return RawPops(client.system.broker_address, client.system.broker_name, topic, group)


def _popped(client: Client) -> bool:
    """Return whether more messages can be in flight than the threshold allows."""
    pops = _new_pops(client)
    deadline, found = time.monotonic() + 2 * SETTLE_SECONDS, 0
    while found < 2 * POPPED_MAX and time.monotonic() < deadline:
        found += len(pops.pop(1, 300_000))
        time.sleep(0.2)
    return found == 2 * POPPED_MAX


def _popped_by_a_group_that_starts_at_the_end(client: Client) -> int:
    pops = _new_pops(client)
    time.sleep(SETTLE_SECONDS / 2)
    deadline, found = time.monotonic() + 2 * SETTLE_SECONDS, 0
    while time.monotonic() < deadline:
        found += len(pops.pop(32, 300_000, from_end=True))
        time.sleep(0.5)
    return found


def _popped_a_second_time(client: Client) -> int:
    """Return how many messages come back that were popped and not acknowledged."""
    pops = _new_pops(client)
    _pop_all(pops, POP_INVISIBLE_MS)
    return len(_pop_all(pops, POP_INVISIBLE_MS, 2 * POP_INVISIBLE_MS / 1000 + SETTLE_SECONDS))


def _names_retry_topic(client: Client) -> bool:
    """Return whether a message that is popped a second time names its retry topic."""
    pops = _new_pops(client)
    _pop_all(pops, POP_INVISIBLE_MS)
    found = _pop_all(pops, POP_INVISIBLE_MS, 2 * POP_INVISIBLE_MS / 1000 + SETTLE_SECONDS)
    assert found, "no message came back"
    return {one.stated_topic for one in found} != {pops.topic}


def _pop_all(pops: RawPops, invisible_ms: int, seconds_max: float = SETTLE_SECONDS) -> list[PoppedMessage]:
    deadline, found = time.monotonic() + seconds_max, []
    while len(found) < 2 * POPPED_MAX and time.monotonic() < deadline:
        found += pops.pop(32, invisible_ms)
        time.sleep(0.2)
    return found


def _timers_of_one_second(client: Client) -> int:
    """Return how many of some timer messages for one second are accepted, each after the one before is counted."""
    topic, producer = client.topic("Crowded", queues=1), client.producer()
    at_ms = int(time.time() * 1000) + 600_000
    count = 0
    for _ in range(CROWD):
        try:
            client.send(producer, topic, body="timed", **{"system.TIMER_DELIVER_MS": at_ms})
        except Refused:
            continue
        count += 1
        time.sleep(2)
    return count


def _writes_extension_units(client: Client) -> bool:
    topic = client.topic("Extended", queues=1)
    client.send(client.producer(), topic, body="some", tags="A")
    time.sleep(2)
    return (client.system.store / "consumequeue_ext" / topic).is_dir()


def _light_queues(client: Client) -> int:
    topic, producer = client.topic("Light", queues=1), client.producer()
    count = 0
    for name in ("a", "b", "c", "d"):
        try:
            client.send(producer, topic, body="some", **{"system.INNER_MULTI_DISPATCH": f"%LMQ%{name}"})
        except Refused:
            continue
        count += 1
        time.sleep(1)  # Java counts the queue when it has dispatched the message
    return count


CASES = {
    "messageIndexEnable": Case({"messageIndexEnable": "false"}, _found_by_key, java=False, orbitlog=True),
    "startAcceptSendRequestTimeStamp": Case(
        {"startAcceptSendRequestTimeStamp": IN_AN_HOUR_MS}, _sends, java=False, orbitlog=True
    ),
    "timerStopEnqueue": Case({"timerStopEnqueue": "true"}, _timers_delivered, java=0, orbitlog=1),
    "rejectPullConsumerEnable": Case({"rejectPullConsumerEnable": "true"}, _pulls, java=False, orbitlog=True),
    "msgTraceTopicName": Case(
        {"msgTraceTopicName": "Other_Traces", "traceTopicEnable": "true"},
        _has_topic("Other_Traces"),
        java=True,
        orbitlog=False,
    ),
    "validateSystemTopicWhenUpdateTopic": Case(
        {"validateSystemTopicWhenUpdateTopic": "false"},
        _updates_topic("-t OFFSET_MOVED_EVENT"),
        java=True,
        orbitlog=False,
    ),
    "enablePopMessageThreshold": Case(
        {"enablePopMessageThreshold": "true", "popInflightMessageThreshold": POPPED_MAX},
        _popped,
        java=False,
        orbitlog=True,
    ),
    "initPopOffsetByCheckMsgInMem": Case(
        {"initPopOffsetByCheckMsgInMem": "false"},
        _popped_by_a_group_that_starts_at_the_end,
        java=1,
        orbitlog=2 * POPPED_MAX,
    ),
    "indexFileWriteEnable": Case({"indexFileWriteEnable": "false"}, _found_by_key, java=False, orbitlog=True),
    "indexFileReadEnable": Case({"indexFileReadEnable": "false"}, _found_by_key, java=False, orbitlog=True),
    "enableConsumeQueueExt": Case(
        {"enableConsumeQueueExt": "true"}, _writes_extension_units, java=True, orbitlog=False
    ),
    "timerCongestNumEachSlot": Case({"timerCongestNumEachSlot": 1}, _timers_of_one_second, java=2, orbitlog=CROWD),
    "popConsumerFSServiceInit": Case(
        {"popConsumerFSServiceInit": "false"}, _popped_a_second_time, java=0, orbitlog=2 * POPPED_MAX
    ),
    "popResponseReturnActualRetryTopic": Case(
        {"popResponseReturnActualRetryTopic": "true"}, _names_retry_topic, java=True, orbitlog=False
    ),
    "enableLmqQuota": Case(
        {"enableLmqQuota": "true", "enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": 2},
        _light_queues,
        java=2,
        orbitlog=4,
    ),
}


def _seen(system: System, driver: Driver, case: Case) -> object:
    try:
        system.start()
        client = Client(driver, system)
        try:
            return case.see(client)
        finally:
            client.close()
    finally:
        system.kill()


@pytest.mark.parametrize("key", CASES)
def test_setting_has_the_consequence_that_its_sentence_states(
    key: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    assert key in BEHAVIOUR
    case, driver = CASES[key], driver_of(f"java-{VERSION}")
    settings = {**SMALL, **case.settings}
    java = _seen(ApacheSystem(packages_of(VERSION), tmp_path / "java", tmp_path / "java/store", settings), driver, case)
    orbitlog = _seen(OrbitlogSystem(tmp_path / "ours", tmp_path / "ours/store", settings), driver, case)
    assert (java, orbitlog) == (case.java, case.orbitlog), BEHAVIOUR[key]
    stated = (tmp_path / "ours/orbitlog-up.log").read_text()
    assert BEHAVIOUR[key] in stated
