"""Settings that change behaviour: the consequence that Orbitlog reports at its start, tried at both brokers.

A key of this class is one that Apache's broker honours and Orbitlog does not. So the two must behave differently with
it, and Orbitlog must do what its sentence states. Keys that concern name servers: `test_name_server_settings.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitlog.access.credentials import Credentials
from orbitlog.settings.setting_classes import BEHAVIOUR
from tests.interop.handover import SMALL
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.raw_pops import PoppedMessage, RawPops, ask_broker
from tests.interop.harness.secured_systems import PLAIN, ROLES
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

VERSION = "5.5.0"
IN_AN_HOUR_MS = int(time.time() * 1000) + 3_600_000
SETTLE_SECONDS = 8
TIMER_MS = 3_000
POPPED_MAX = 8
POP_INVISIBLE_MS = 10_000
CROWD = 6
COMES_SECONDS_MAX = 40  # a consumer's first message may take half a minute
PRIORITIES, MESSAGES_EACH = 4, 3
COLD_COUNT = 300
DISABLED_SECONDS_MAX = 240
DELETION_SECONDS_MAX = 100  # Java's broker deletes files from its second minute on
FILE_BYTES, LARGE_BYTES = 4 * 1024 * 1024, 1_000_000
ADMIN = ROLES["admin"]
FIRST = Credentials("first-user", "first-secret")
GET_MAX_OFFSET, GET_MIN_OFFSET, LOCK_BATCH, CREATE_USER = 30, 31, 41, 3001


@dataclass(frozen=True)
class Case:
    """What is seen with a setting: a number or whether something succeeds.

    `{home}` in a setting stands for the directory of `conf/plain_acl.yml`.
    """

    settings: Mapping[str, object]
    see: Callable[[Client], object]
    java: object
    orbitlog: object
    version: str = VERSION


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
    deadline = time.monotonic() + TIMER_MS / 1000 + COMES_SECONDS_MAX
    while not push.messages and time.monotonic() < deadline:
        time.sleep(1)
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


def _queues_locked(client: Client) -> int:
    topic = client.topic("Locked", queues=1)
    queue = {"topic": topic, "brokerName": client.system.broker_name, "queueId": 0}
    body = {"consumerGroup": client.group("locking"), "clientId": "client", "mqSet": [queue]}
    answer = ask_broker(client.system.broker_address, LOCK_BATCH, {}, json.dumps(body).encode())
    assert answer.code == 0, answer.remark
    return answer.body.count(b'"queueId":0')


def _is_served(client: Client, code: int, credentials: Credentials | None = None) -> bool:
    fields: dict[str, object] = {"topic": "TBW102", "queueId": 0}  # every broker has this topic
    return ask_broker(client.system.broker_address, code, fields, credentials=credentials).code == 0


def _serves_unsigned(client: Client) -> tuple[bool, bool]:
    """Return whether the request in the whitelist is served without a signature, and whether another one is."""
    return _is_served(client, GET_MAX_OFFSET), _is_served(client, GET_MIN_OFFSET)


def _serves_without_policy(client: Client) -> tuple[bool, bool]:
    """Return whether the request in the whitelist is served to a user without policies, and whether another one is."""
    user = Credentials("poor-user", "poor-secret")
    body = json.dumps({"password": user.secret_key, "userType": "Normal"}).encode()
    fields: dict[str, object] = {"username": user.access_key}
    answer = ask_broker(client.system.broker_address, CREATE_USER, fields, body, credentials=FIRST)
    assert answer.code == 0, answer.remark
    return _is_served(client, GET_MAX_OFFSET, user), _is_served(client, GET_MIN_OFFSET, user)


def _serves_users_of_plain_acl(client: Client) -> bool:
    assert _is_served(client, GET_MAX_OFFSET, FIRST) and not _is_served(client, GET_MAX_OFFSET)
    return _is_served(client, GET_MAX_OFFSET, ADMIN)


def _popped_by_ascending_priority(client: Client) -> bool:
    """Return whether messages whose sender gave them priorities come in the order that priorityOrderAsc asks for."""
    topic, group, address = (
        client.topic("Ranked", queues=PRIORITIES),
        client.group("ranked"),
        client.system.broker_address,
    )
    options = f"-b {address} -t {topic} -r {PRIORITIES} -w {PRIORITIES} -a +message.type=PRIORITY"
    assert "success" in client.mqadmin(f"updateTopic {options}")
    assert "success" in client.mqadmin(f"updateSubGroup -b {address} -g {group}")
    producer = client.producer()
    for priority in [*range(PRIORITIES)] * MESSAGES_EACH:
        client.send(producer, topic, body=str(priority), **{"system._SYS_MSG_PRIORITY_": priority})
    time.sleep(SETTLE_SECONDS / 2)
    pops = RawPops(address, client.system.broker_name, topic, group)
    deadline, found = time.monotonic() + COMES_SECONDS_MAX, []
    while len(found) < PRIORITIES * MESSAGES_EACH and time.monotonic() < deadline:
        found += [int(one.body) for one in pops.pop(1, 300_000)]
    assert len(found) == PRIORITIES * MESSAGES_EACH
    return found == sorted(found)


def _all_cold_messages_come_at_once(client: Client) -> bool:
    topic = client.topic("Cold", queues=1)
    client.send(client.producer(), topic, count=COLD_COUNT, body="some")
    push = client.push(topic, client.group("cold"))
    push.wait_for(1)
    time.sleep(SETTLE_SECONDS)
    return len(push.messages) == COLD_COUNT


def _keeps_old_files(client: Client) -> bool:
    """Return whether the first file of the log outlives a minute in which files are looked at for deletion."""
    topic, producer = client.topic("Large", queues=1), client.producer()
    client.send(producer, topic, count=3 * FILE_BYTES // LARGE_BYTES, bytes=LARGE_BYTES)
    first = client.system.store / "commitlog" / f"{0:020d}"
    assert first.is_file()
    deadline = time.monotonic() + DELETION_SECONDS_MAX
    while first.exists() and time.monotonic() < deadline:
        time.sleep(1)
    return first.exists()


def _retried_past_the_filter(client: Client) -> int:
    """Return how many messages come back that the subscription of the second consumer excludes."""
    topic, group = client.topic("Filtered", queues=1), client.group("filtered")
    push = client.push(topic, group, sql="a > 5", refuse=1, retryLevel=2)
    client.send(client.producer(), topic, body="some", **{"property.a": "10"})
    push.wait_for(1)
    time.sleep(1)
    push.close()
    second = client.push(topic, group, sql="a > 100")
    deadline = time.monotonic() + COMES_SECONDS_MAX
    while not second.messages and time.monotonic() < deadline:
        time.sleep(1)
    return len(second.messages)


def _logical_disks(count: int) -> dict[str, object]:
    """Settings under which three files fill the part of the disk that each of some brokers gets."""
    return {"replicasPerDiskPartition": count, "diskMaxUsedSpaceRatio": 95}


def _access(**more: str) -> dict[str, object]:
    provider = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
    user = {"username": FIRST.access_key, "password": FIRST.secret_key}
    inner = {"accessKey": FIRST.access_key, "secretKey": FIRST.secret_key}
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationMetadataProvider": provider.format("authentication", "Authentication"),
        "authorizationMetadataProvider": provider.format("authorization", "Authorization"),
        "initAuthenticationUser": json.dumps(user, separators=(",", ":")),
        "innerClientAuthenticationCredentials": json.dumps(inner, separators=(",", ":")),
        **more,
    }


CASES = {
    "totalReplicas": Case({"totalReplicas": 3, "lockInStrictMode": "true"}, _queues_locked, java=0, orbitlog=1),
    "authenticationWhitelist": Case(
        _access(authenticationWhitelist=str(GET_MAX_OFFSET), authorizationEnabled="false"),
        _serves_unsigned,
        java=(True, False),
        orbitlog=(False, False),
    ),
    "authorizationWhitelist": Case(
        _access(authorizationWhitelist=str(GET_MAX_OFFSET)),
        _serves_without_policy,
        java=(True, False),
        orbitlog=(False, False),
    ),
    "migrateAuthFromV1Enabled": Case(
        _access(migrateAuthFromV1Enabled="true", rocketmqHome="{home}"),
        _serves_users_of_plain_acl,
        java=True,
        orbitlog=False,
    ),
    "disappearTimeAfterStart": Case({"disappearTimeAfterStart": 3_600_000}, _timers_delivered, java=0, orbitlog=1),
    "priorityOrderAsc": Case({"priorityOrderAsc": "false"}, _popped_by_ascending_priority, java=True, orbitlog=False),
    "coldDataFlowControlEnable": Case(
        {"coldDataFlowControlEnable": "true", "cgColdReadThreshold": 1, "accessMessageInMemoryHotRatio": 0},
        _all_cold_messages_come_at_once,
        java=False,
        orbitlog=True,
    ),
    "replicasPerDiskPartition": Case(
        _logical_disks(shutil.disk_usage(tempfile.gettempdir()).total // (2 * FILE_BYTES)),
        _keeps_old_files,
        java=False,
        orbitlog=True,
    ),
    "logicalDiskSpaceCleanForciblyThreshold": Case(
        {**_logical_disks(2), "logicalDiskSpaceCleanForciblyThreshold": 0.000001},
        _keeps_old_files,
        java=False,
        orbitlog=True,
    ),
    "filterSupportRetry": Case(
        {"filterSupportRetry": "true", "enablePropertyFilter": "true"},
        _retried_past_the_filter,
        java=0,
        orbitlog=1,
        version="4.9.7",
    ),
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


# Keys that suggest an effect which Apache's broker of this version does not have either
WITHOUT_EFFECT = {
    "filterSupportRetry": Case(
        {"filterSupportRetry": "true", "enablePropertyFilter": "true"}, _retried_past_the_filter, java=1, orbitlog=1
    ),
    "enableSkipLongAwaitingAck": Case(
        {"enableSkipLongAwaitingAck": "true", "reviveAckWaitMs": 1000},
        _popped_a_second_time,
        java=2 * POPPED_MAX,
        orbitlog=2 * POPPED_MAX,
    ),
}
ELSEWHERE = {
    "fetchNamesrvAddrByAddressServer": "test_name_server_settings.py",
    "socksProxyConfig": "test_name_server_settings.py",
    "disableConsumeIfConsumerReadSlowly": "the test of slow groups below",
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
    case = CASES[key]
    driver = driver_of(f"java-{case.version}")
    home = tmp_path / "java" / "home" / "conf"  # there a Java process of the tests looks for it
    home.mkdir(parents=True)
    (home / "plain_acl.yml").write_text(PLAIN)
    settings = {
        **SMALL,
        **{name: str(value).replace("{home}", str(home.parent)) for name, value in case.settings.items()},
    }
    packages = packages_of(case.version)
    java = _seen(ApacheSystem(packages, tmp_path / "java", tmp_path / "java/store", settings), driver, case)
    orbitlog = _seen(OrbitlogSystem(tmp_path / "ours", tmp_path / "ours/store", settings), driver, case)
    assert (java, orbitlog) == (case.java, case.orbitlog), BEHAVIOUR[key]
    stated = (tmp_path / "ours/orbitlog-up.log").read_text()
    assert BEHAVIOUR[key] in stated


def test_every_key_that_changes_behaviour_is_tried() -> None:
    assert BEHAVIOUR.keys() == CASES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_key_without_effect_changes_nothing_at_either_broker(
    key: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    case, driver = WITHOUT_EFFECT[key], driver_of(f"java-{VERSION}")
    settings = {**SMALL, **case.settings}
    java = _seen(ApacheSystem(packages_of(VERSION), tmp_path / "java", tmp_path / "java/store", settings), driver, case)
    orbitlog = _seen(OrbitlogSystem(tmp_path / "ours", tmp_path / "ours/store", settings), driver, case)
    assert (java, orbitlog) == (case.java, case.orbitlog)
    assert (key in (tmp_path / "ours/orbitlog-up.log").read_text()) == (key in BEHAVIOUR)


@pytest.mark.parametrize("version", ["4.9.7", VERSION])
def test_no_class_of_java_reads_the_number_of_filter_servers(
    version: str, packages_of: Callable[[str], ApachePackages]
) -> None:
    readers = set()
    for jar in packages_of(version).class_path.split(os.pathsep):
        if Path(jar).name.startswith("rocketmq-"):
            with zipfile.ZipFile(jar) as archive:
                readers |= {name for name in archive.namelist() if b"FilterServerNums" in archive.read(name)}
    assert readers == ({"org/apache/rocketmq/common/BrokerConfig.class"} if version == "4.9.7" else set())


def test_slow_group_is_disabled_by_java_broker_alone(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    """Java's broker looks for slow groups every three minutes: both run in the same ones."""
    key, driver = "disableConsumeIfConsumerReadSlowly", driver_of(f"java-{VERSION}")
    settings = {**SMALL, key: "true", "consumerFallbehindThreshold": 1}
    java = ApacheSystem(packages_of(VERSION), tmp_path / "java", tmp_path / "java/store", settings)
    ours = OrbitlogSystem(tmp_path / "ours", tmp_path / "ours/store", settings)
    clients = [Client(driver, system) for system in (java, ours)]
    try:
        java.start()
        ours.start()
        at_java, at_ours = [_slow_reader(client) for client in clients]
        assert at_java() and at_ours()
        deadline = time.monotonic() + DISABLED_SECONDS_MAX
        while at_java() and time.monotonic() < deadline:
            time.sleep(5)
        assert (at_java(), at_ours()) == (False, True), BEHAVIOUR[key]
    finally:
        for client in clients:
            client.close()
            client.system.kill()
    assert BEHAVIOUR[key] in (tmp_path / "ours/orbitlog-up.log").read_text()


def _slow_reader(client: Client) -> Callable[[], bool]:
    """Return a function that reads the first message of ten, and returns whether the group may."""
    topic, group, address = client.topic("Slow", queues=1), client.group("slow"), client.system.broker_address
    assert "success" in client.mqadmin(f"updateSubGroup -b {address} -g {group}")
    client.send(client.producer(), topic, count=10, body="some")
    reader = client.pull_consumer(group)

    def reads() -> bool:
        try:
            client.call("pull", name=reader, broker=client.system.broker_name, queue=0, topic=topic, position=0)
        except Refused:
            return False
        return True

    return reads
