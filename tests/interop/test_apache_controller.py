"""Orbitlog as a member of a group of Apache's controller 5.5.0, beside two Java brokers: as slave, as master, and back.

Every acknowledged message is in a ledger: after each failover it must be in its queue, at its offset.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitlog.formats.derived.epoch_file import decode_epoch_file
from tests.interop.harness.clients import Client
from tests.interop.harness.cluster import BROKER_NAME, CLUSTER_NAME
from tests.interop.harness.controller_group import OURS, ControllerGroup, controller_name
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.ledger import message_id
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import JsonObject
from tests.interop.harness.queue_reads import messages_of
from tests.interop.harness.refusals import refused_sentence
from tests.interop.harness.replicas import table_of
from tests.interop.harness.store_copies import CATCH_UP_SECONDS, assert_sound_files, has_same_log, queue_files

pytestmark = pytest.mark.interop

JAVA_A, JAVA_B = "java-a", "java-b"
ALL = {JAVA_A, JAVA_B, OURS}
OK = "SEND_OK"
BURST_COUNT = 200

Started = Callable[..., tuple[ControllerGroup, Client]]


@pytest.fixture
def started(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> Iterator[Started]:
    """Starts a group with members in an order: the first one becomes its first master."""
    groups: list[tuple[ControllerGroup, Client]] = []

    def start(*members: str, controllers: int = 1) -> tuple[ControllerGroup, Client]:
        group = ControllerGroup(packages_of("5.5.0"), tmp_path / "group", {}, controllers)
        client = Client(driver_of("java-5.5.0"), group)
        groups.append((group, client))
        group.start()
        for member in members:
            group.start_member(member)
            group.wait(lambda: group.master == members[0], f"{members[0]} is the first master")
        await_in_sync(group, *members)
        await_serving(group, client, members[0])
        return group, client

    yield start
    for group, client in groups:
        client.close()
        group.kill()


def await_in_sync(group: ControllerGroup, *members: str) -> None:
    group.wait(lambda: group.in_sync() == set(members), f"{members} are in sync", CATCH_UP_SECONDS)


def await_serving(group: ControllerGroup, client: Client, member: str) -> None:
    """Wait until the name server knows a member as master: its broker is rebuilt for the role."""
    row = re.compile(rf"^\S+ +\S+ +0 +{re.escape(group.address_of(member))} ", re.MULTILINE)
    group.wait(lambda: bool(row.search(client.mqadmin("clusterList"))), f"{member} serves as master")


def await_equal_logs(group: ControllerGroup, *members: str) -> None:
    """Wait until the logs and the epochs of all members are those of the first one."""
    first, *others = members
    group.wait(
        lambda: all(has_same_log(group.store_of(first), group.store_of(other)) for other in others),
        "equal logs",
        CATCH_UP_SECONDS,
    )


def epochs_of(group: ControllerGroup, member: str) -> list[tuple[int, int]]:
    text = (group.store_of(member) / "epochFileCheckpoint").read_text()
    return [(entry.epoch, entry.start_physical_offset) for entry in decode_epoch_file(text)]


def send(client: Client, topic: str, acknowledged: dict[str, JsonObject], **words: object) -> None:
    """Send by a new producer, which asks for the route; enter what was acknowledged, which must be all."""
    producer = client.producer(timeoutMs=10_000, retries=5)
    sent = client.send(producer, topic, **words)
    assert {one["status"] for one in sent} == {OK}
    acknowledged |= {message_id(one): one for one in sent}


def send_until_killed(
    group: ControllerGroup, client: Client, topic: str, acknowledged: dict[str, JsonObject], seed: int
) -> None:
    """Kill the master amid sends; enter what was acknowledged."""
    producer = client.producer(retries=0, timeoutMs=4000)
    words = {"count": 100_000, "bytesMax": 2000, "seed": seed, "events": True}
    sending = client.driver.begin("send", producer=producer, topic=topic, **words)
    client.driver.wait(lambda: len(client.driver.events(producer)) > BURST_COUNT, 120, "sends under way")
    group.kill_server(group.master)
    with pytest.raises(Refused):
        sending(60)
    sent = [event["message"] for event in client.driver.events(producer)]
    acknowledged |= {message_id(one): one for one in sent if one["status"] == OK}


def await_accepted(group: ControllerGroup, client: Client, topic: str, acknowledged: dict[str, JsonObject]) -> float:
    """Send until a message is acknowledged; return after how many seconds."""
    began_s = time.monotonic()

    def is_accepted() -> bool:
        try:
            sent = client.send(client.producer(timeoutMs=3000, retries=0), topic, count=1, body="after the failover")
        except Refused:
            return False
        if sent[0]["status"] == OK:
            acknowledged[message_id(sent[0])] = sent[0]
        return bool(sent[0]["status"] == OK)

    group.wait(is_accepted, "a send is acknowledged")
    return time.monotonic() - began_s


def assert_nothing_lost(client: Client, topic: str, acknowledged: dict[str, JsonObject]) -> None:
    stored = {(one["queueId"], one["queueOffset"]): one for one in messages_of(client, topic)}
    for identity, one in acknowledged.items():
        found = stored.get((one["queueId"], one["queueOffset"]))
        assert found is not None, f"{identity} was acknowledged at {one['queueId']}:{one['queueOffset']} and is lost"
        assert (message_id(found), found["bodySha256"]) == (identity, one["bodySha256"])


def test_slave_of_a_java_master_copies_its_log_and_stays_in_sync_over_its_own_kills(started: Started) -> None:
    group, client = started(JAVA_A, JAVA_B, OURS)
    ours, java = group.store_of(OURS), group.store_of(JAVA_A)
    acknowledged: dict[str, JsonObject] = {}
    topic = client.topic("Copied")
    for seed in (1, 2):
        send(client, topic, acknowledged, count=500, bytesMax=8000, seed=seed)
        group.kill_server(OURS)
        await_in_sync(group, JAVA_A, JAVA_B)
        send(client, topic, acknowledged, count=200, bytesMax=8000, seed=10 + seed)
        group.start_member(OURS)
        await_in_sync(group, *ALL)
    await_equal_logs(group, JAVA_A, JAVA_B, OURS)
    assert len(list((ours / "commitlog").iterdir())) >= 5
    assert epochs_of(group, OURS) == epochs_of(group, JAVA_A) == [(1, 0)]
    assert (ours / "brokerIdentity").read_text() == f"{CLUSTER_NAME}#{BROKER_NAME}#3"
    group.wait(lambda: queue_files(ours, topic) == queue_files(java, topic), "equal queues")
    group.wait(lambda: topic in table_of(ours, "topics.json", "topicConfigTable"), "the topic is copied")
    assert_tools_show_our_member(group, client)
    group.stop_server(OURS)
    assert_sound_files(ours)


def assert_tools_show_our_member(group: ControllerGroup, client: Client) -> None:
    address = group.address_of(OURS)
    shown = client.mqadmin(f"getSyncStateSet -a {group.controller_address} -b {BROKER_NAME}")
    assert f"brokerId=3, brokerAddress='{address}', alive=true" in shown and "#SyncStateSetNums\t3" in shown
    epochs = client.mqadmin(f"getBrokerEpoch -b {BROKER_NAME}")
    assert "#brokerId\t3" in epochs and epochs.count("#Epoch: EpochEntry{epoch=1, startOffset=0") == 3, epochs
    assert group.address_of(JAVA_A) in client.mqadmin(f"haStatus -b {address}")
    assert address in client.mqadmin("clusterList")
    # The same verbs of `orbitlog mqadmin` print what Apache's do.
    for words in (
        ["getSyncStateSet", "-a", group.controller_address, "-b", BROKER_NAME],
        ["getBrokerEpoch", "-b", BROKER_NAME],
        ["haStatus", "-b", group.address_of(JAVA_A)],
    ):
        theirs, own = client.mqadmin(" ".join(words)), orbitlog("mqadmin", *words, "-n", group.name_server_address)
        assert lines_of(own) == lines_of(theirs), words
    status = orbitlog("replica", "status", "-n", group.name_server_address)
    assert re.search(rf"^{BROKER_NAME} +3 +slave +1 +yes ", status, re.MULTILINE), status


def orbitlog(*words: str) -> str:
    program = Path(sys.executable).with_name("orbitlog")
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def lines_of(printed: str) -> list[str]:
    """The lines in any order; of slaves only the columns that do not move between two calls."""
    return sorted(line.split("  ")[0].rstrip() for line in printed.splitlines() if line.strip())


def test_slave_is_elected_when_its_java_master_is_killed_and_java_returns_as_its_slave(started: Started) -> None:
    group, client = started(JAVA_A, OURS)
    acknowledged: dict[str, JsonObject] = {}
    topic = client.topic("Taken")
    client.eventually(lambda: topic in table_of(group.store_of(OURS), "topics.json", "topicConfigTable"), "the topic")
    send_until_killed(group, client, topic, acknowledged, seed=3)
    group.wait(lambda: group.master == OURS, "our slave is elected")
    group.start_member(JAVA_A)
    await_in_sync(group, OURS, JAVA_A)
    await_accepted(group, client, topic, acknowledged)
    send(client, topic, acknowledged, count=300, bytesMax=2000, seed=4)
    await_equal_logs(group, OURS, JAVA_A)
    assert epochs_of(group, JAVA_A) == epochs_of(group, OURS)
    push = client.push(topic, client.group("readers"))
    push.wait(lambda: {message_id(one) for one in push.messages} >= set(acknowledged), 60, "all messages")
    assert_nothing_lost(client, topic, acknowledged)
    assert_sound_files_of_a_stopped_member(group)


def assert_sound_files_of_a_stopped_member(group: ControllerGroup) -> None:
    group.stop_server(OURS)
    assert_sound_files(group.store_of(OURS))


def test_java_takes_over_from_our_killed_master_which_returns_and_gives_up_its_tail(started: Started) -> None:
    group, client = started(OURS, JAVA_A, JAVA_B)
    acknowledged: dict[str, JsonObject] = {}
    topic = client.topic("Given")
    group.wait(
        lambda: all(topic in topics_of(group, name) for name in (JAVA_A, JAVA_B)), "the topic at all", CATCH_UP_SECONDS
    )
    send_until_killed(group, client, topic, acknowledged, seed=5)
    group.wait(lambda: group.master in (JAVA_A, JAVA_B), "a Java member is elected")
    taken_over_by = group.master
    await_accepted(group, client, topic, acknowledged)
    group.start_member(OURS)
    await_in_sync(group, *ALL)
    send(client, topic, acknowledged, count=100, bytesMax=2000, seed=6)
    await_equal_logs(group, taken_over_by, JAVA_A, JAVA_B, OURS)
    assert_nothing_lost(client, topic, acknowledged)
    kept = list((group.store_of(OURS) / "orbitlog.group" / "lost").glob("*"))
    log = group.log_of(OURS).read_text() + (group.store_of(OURS) / "logs" / "broker.log").read_text()
    assert bool(kept) == ("gave up" in log)
    # Back by the operator's command.
    elect(group, client, OURS)
    await_in_sync(group, *ALL)
    await_accepted(group, client, topic, acknowledged)
    send(client, topic, acknowledged, count=100, bytesMax=2000, seed=7)
    await_equal_logs(group, OURS, JAVA_A, JAVA_B)
    assert_nothing_lost(client, topic, acknowledged)
    assert_sound_files_of_a_stopped_member(group)


def topics_of(group: ControllerGroup, member: str) -> dict[str, object]:
    return table_of(group.store_of(member), "topics.json", "topicConfigTable")


def test_our_master_without_controller_serves_its_whole_set_and_acknowledges_nothing_alone(started: Started) -> None:
    group, client = started(OURS, JAVA_A)
    acknowledged: dict[str, JsonObject] = {}
    topic = client.topic("Alone")
    send(client, topic, acknowledged, count=50, body="with the controller")
    group.kill_server("controller")
    send(client, topic, acknowledged, count=50, body="without the controller")
    group.kill_server(JAVA_A)
    producer = client.producer(timeoutMs=10_000, retries=0)
    for _ in range(3):
        try:
            [sent] = client.send(producer, topic, count=1, body="alone")
        except Refused:
            continue
        assert sent["status"] == "FLUSH_SLAVE_TIMEOUT", sent
    group.start_controller()
    group.start_member(JAVA_A)
    await_in_sync(group, OURS, JAVA_A)
    await_accepted(group, client, topic, acknowledged)
    await_equal_logs(group, group.master, OURS, JAVA_A)
    assert_nothing_lost(client, topic, acknowledged)


def test_restarted_only_member_serves_in_a_new_epoch_and_its_store_opens_in_its_group_only(started: Started) -> None:
    group, client = started(OURS)
    topic = client.topic("Kept")
    send_alone = client.producer(timeoutMs=5000, retries=0)
    [sent] = client.send(send_alone, topic, count=1, body="the only known member")
    assert sent["status"] == OK
    group.kill_server(OURS)
    group.start_member(OURS)
    group.wait(lambda: group.master == OURS and len(epochs_of(group, OURS)) == 2, "a new epoch after the restart")
    await_serving(group, client, OURS)
    await_accepted(group, client, topic, {})
    group.stop_server(OURS)
    store = group.store_of(OURS)
    sentence = refused_sentence(store, ["broker", "--store", str(store), "--set", f"brokerName={BROKER_NAME}"])
    assert "set enableControllerMode=true" in sentence


def elect(group: ControllerGroup, client: Client, member: str) -> None:
    """Make a member the master, by command. Apache's tool does it too, but 5.5.0 cannot read the answer."""
    member_id = (group.store_of(member) / "brokerIdentity").read_text().rpartition("#")[2]
    words = ["-a", group.controller_address, "-b", member_id, "-bn", BROKER_NAME, "-c", CLUSTER_NAME]
    elected = orbitlog("mqadmin", "electMaster", *words, "-n", group.name_server_address)
    assert f"#BrokerMasterAddr\t{group.address_of(member)}" in elected, elected
    group.wait(lambda: group.master == member, f"{member} is elected by command")
    await_serving(group, client, member)


def test_our_slave_follows_a_java_master_that_dropped_the_entry_of_its_epoch(started: Started) -> None:
    """Two elections without a send in between: Java labels the bytes of the second epoch with the first."""
    group, client = started(JAVA_A, JAVA_B, OURS)
    acknowledged: dict[str, JsonObject] = {}
    topic = client.topic("Dropped")
    send(client, topic, acknowledged, count=100, bytesMax=2000, seed=8)
    for member in (JAVA_B, JAVA_A):
        elect(group, client, member)
        await_in_sync(group, *ALL)
    send(client, topic, acknowledged, count=100, bytesMax=2000, seed=9)
    await_equal_logs(group, JAVA_A, JAVA_B, OURS)
    java, ours = epochs_of(group, JAVA_A), epochs_of(group, OURS)
    assert [epoch for epoch, _ in java] == [1, 2]
    assert [epoch for epoch, _ in ours] == [1, 3]
    assert java[1][1] == ours[1][1]
    elect(group, client, OURS)
    await_in_sync(group, *ALL)
    await_accepted(group, client, topic, acknowledged)
    await_equal_logs(group, OURS, JAVA_A, JAVA_B)
    assert_nothing_lost(client, topic, acknowledged)


def test_paused_master_of_ours_confirms_nothing_after_another_was_elected_by_a_new_leader(started: Started) -> None:
    """Of three controllers the leader is killed; then our master is paused until a Java member is elected."""
    group, client = started(OURS, JAVA_A, controllers=3)
    acknowledged: dict[str, JsonObject] = {}
    topic = client.topic("Paused")
    send(client, topic, acknowledged, count=50, body="three controllers")
    group.wait(lambda: topic in topics_of(group, JAVA_A), "the topic at the slave", CATCH_UP_SECONDS)
    leader = group.leader()
    group.kill_server(controller_name(leader))
    send(client, topic, acknowledged, count=50, body="without the leader")
    group.wait(lambda: group.leader() not in (-1, leader), "another controller leads")
    ours = group.server(OURS)
    ours.send_signal(signal.SIGSTOP)
    try:
        group.wait(lambda: group.master == JAVA_A, "Java is elected")
    finally:
        ours.send_signal(signal.SIGCONT)
    await_in_sync(group, OURS, JAVA_A)
    await_accepted(group, client, topic, acknowledged)
    send(client, topic, acknowledged, count=50, body="after the pause")
    await_equal_logs(group, JAVA_A, OURS)
    assert_nothing_lost(client, topic, acknowledged)
