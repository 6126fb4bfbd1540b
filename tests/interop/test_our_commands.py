"""Everyday commands at Apache's brokers of both versions, and at Orbitlog: the same words, the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.matrix import JAVA_497, JAVA_550
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import APACHE_497, APACHE_550, ORBITLOG, System, make_system, wanted_kinds

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")
SECONDS_MAX = 120


class Orbitlog:
    """The command line at one system."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.mark = uuid4().hex[:8]

    def run(self, *words: str, text: str | None = None, exit_code: int = 0) -> list[dict[str, Any]]:
        command = [str(PROGRAM), *words, "-n", self.system.name_server_address, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, input=text, timeout=SECONDS_MAX)
        assert done.returncode == exit_code, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(params=wanted_kinds((APACHE_497, APACHE_550, ORBITLOG)))
def orbitlog(request: pytest.FixtureRequest, system_of: Callable[[str], System]) -> Orbitlog:
    return Orbitlog(system_of(request.param))


def test_topics_are_made_changed_and_shown(orbitlog: Orbitlog) -> None:
    topic = f"Commanded_{orbitlog.mark}"
    orbitlog.run("topic", "create", topic, "--queues", "3")
    (row,) = orbitlog.run("topic", "update", topic, "--write-queues", "2")
    assert (row["readQueues"], row["writeQueues"], row["permission"]) == (3, 2, "read and write")
    # Brokers differ in which of the two counts they list queues by.
    assert len(orbitlog.run("topic", "show", topic)) in (2, 3)
    orbitlog.run("topic", "delete", topic, "--yes")
    assert topic not in {row["topic"] for row in orbitlog.run("topic", "list")}


def test_lines_go_in_and_messages_come_out(orbitlog: Orbitlog) -> None:
    topic = f"Piped_{orbitlog.mark}"
    orbitlog.run("topic", "create", topic, "--queues", "2")
    lines = "".join(
        json.dumps({"body": f"b{number}", "keys": [f"k{number}"], "tags": "T"}) + "\n" for number in range(9)
    )
    sent = orbitlog.run("send", topic, "-", "--input", "json", text=lines)
    seen = orbitlog.run("tail", topic, "--from", "earliest", "--no-follow")
    assert sorted(row["body"] for row in seen) == sorted(f"b{number}" for number in range(9))
    (found,) = [row for row in orbitlog.run("message", "find", topic, "k4")]
    assert (found["body"], found["msgId"]) == ("b4", sent[4]["msgId"])
    (same,) = orbitlog.run("message", "get", found["offsetMsgId"])
    assert same["msgId"] == found["msgId"]


def test_a_group_without_members_goes_exactly_where_it_is_sent(orbitlog: Orbitlog) -> None:
    topic, group = f"Moved_{orbitlog.mark}", f"moved_{orbitlog.mark}"
    orbitlog.run("topic", "create", topic, "--queues", "2")
    orbitlog.run("group", "create", group)
    orbitlog.run("send", topic, *map(str, range(20)))
    ends = {row["queueId"]: row["maxOffset"] for row in orbitlog.run("topic", "show", topic)}

    def reset(to: str, *words: str) -> dict[int, int]:
        rows = orbitlog.run("offsets", "reset", group, topic, "--to", to, *words)
        return {row["queueId"]: row["offset"] for row in rows}

    def committed() -> dict[int, int]:
        rows = orbitlog.run("offsets", "show", group, "--topic", topic)
        return {row["queueId"]: row["committed"] for row in rows}

    assert reset("3", "--dry-run") == {0: 3, 1: 3}
    assert reset("3") == {0: 3, 1: 3} == committed()
    assert reset("5", "--queue", "1") == {1: 5}
    assert committed() == {0: 3, 1: 5}
    assert reset("latest") == ends == committed()
    assert reset("earliest") == {0: 0, 1: 0} == committed()
    assert reset("100000") == ends == committed()
    assert reset("-1h") == {0: 0, 1: 0} == committed()


def test_a_running_java_consumer_is_moved(
    orbitlog: Orbitlog, driver_of: Callable[[str], Driver], request: pytest.FixtureRequest
) -> None:
    is_old = orbitlog.system.kind == APACHE_497
    client = Client(driver_of(JAVA_497 if is_old else JAVA_550), orbitlog.system)
    request.addfinalizer(client.close)
    topic, group = client.topic("MovedLive", queues=1), client.group("moved_live")
    orbitlog.run("send", topic, *map(str, range(6)))
    push = client.push(topic, group)
    push.wait_for(6)
    # Members commit every five seconds, and 4.x refuses to move a group that never did.
    client.eventually(lambda: _committed(orbitlog, group, topic) == 6, "its offset")
    # 4.x moves running members by a time alone; the others to an offset as well.
    refused = orbitlog.run("offsets", "reset", group, topic, "--to", "4", exit_code=1 if is_old else 0)
    assert bool(refused) is not is_old
    if is_old:
        orbitlog.run("offsets", "reset", group, topic, "--to", "-1h")
    wanted = 12 if is_old else 8
    push.wait(lambda: len(push.messages) >= wanted, SECONDS_MAX, f"{wanted} messages in all")
    assert sorted(one["queueOffset"] for one in push.messages[6:]) == (list(range(6)) if is_old else [4, 5])


def test_verbs_of_mqadmin_at_every_broker(orbitlog: Orbitlog) -> None:
    """What they print is compared elsewhere; here each is understood by brokers of every version."""
    topic, group = f"Verbs_{orbitlog.mark}", f"verbs_{orbitlog.mark}"
    broker, name, cluster = orbitlog.system.broker_address, orbitlog.system.broker_name, orbitlog.system.cluster_name

    def verb(line: str) -> str:
        command = [str(PROGRAM), "mqadmin", "--strict", *line.split(), "-n", orbitlog.system.name_server_address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
        assert (done.returncode, done.stderr) == (0, ""), line
        return done.stdout

    assert "success." in verb(f"updateTopic -c {cluster} -t {topic} -r 2 -w 2")
    assert "success." in verb(f"updateSubGroup -c {cluster} -g {group} -r 5")
    assert "SEND_OK" in verb(f"sendMessage -t {topic} -p hello -k key -c tag -b {name} -i 1")
    assert verb(f"topicStatus -t {topic}").count(name) == 2
    assert f'"brokerName":"{name}"' in verb(f"topicRoute -t {topic}")
    assert "BODY: hello" in verb(f"printMsg -t {topic}")
    assert "key" in verb(f"queryMsgByOffset -t {topic} -b {name} -i 1 -o 0")
    assert len(verb(f"queryMsgByKey -t {topic} -k key").splitlines()) == 2
    assert cluster in verb("clusterList") and cluster in verb("clusterList -m")
    assert "brokerVersionDesc" in verb(f"brokerStatus -b {broker}")
    assert "brokerName" in verb(f"getBrokerConfig -b {broker}")
    assert "=====" in verb("getNamesrvConfig")
    assert "retryMaxTimes                           =  5" in verb(f"getConsumerConfig -g {group}")
    assert "Diff Total" in verb(f"brokerConsumeStats -b {broker}")
    assert topic in verb(f"statsAll -t {topic}")
    assert "#queueId" in verb(f"resetOffsetByTimeOld -g {group} -t {topic} -s 0")
    assert verb(f"cleanExpiredCQ -b {broker}") == "success"
    assert "success." in verb(f"deleteSubGroup -b {broker} -g {group}")
    assert "NameServer success." in verb(f"deleteTopic -c {cluster} -t {topic}")


ACCOUNTS = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: warehouse
  secretKey: 12345678
  admin: true
"""


def test_a_context_signs_what_a_guarded_broker_is_asked(
    packages_of: Callable[[str], ApachePackages], tmp_path: Path
) -> None:
    system = make_system(APACHE_497, tmp_path, packages_of, {"aclEnable": "true"})
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    system.start()
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}

    def run(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(PROGRAM), *words]
        return subprocess.run(command, capture_output=True, text=True, input=text, timeout=SECONDS_MAX, env=environment)

    try:
        address = system.name_server_address
        words = ("context", "add", "guarded", "-n", address, "--access-key", "warehouse", "--secret-key", "-")
        assert run(*words, text="12345678\n").returncode == 0
        assert run("topic", "create", "Guarded", "--queues", "1").returncode == 0
        assert run("send", "Guarded", "one").returncode == 0
        assert run("mqadmin", "topicStatus", "-t", "Guarded").stdout.count("interop-broker") == 1
        for words in (("send", "Guarded", "two", "-n", address), ("topic", "show", "Guarded", "-n", address)):
            refused = run(*words)
            assert refused.returncode == 1
            assert "set credentials with" in refused.stderr and len(refused.stderr.splitlines()) == 1
    finally:
        system.kill()


def _committed(orbitlog: Orbitlog, group: str, topic: str) -> int | None:
    rows = orbitlog.run("offsets", "show", group, "--topic", topic)
    return int(rows[0]["committed"]) if rows else None


def test_health_settings_and_load(orbitlog: Orbitlog) -> None:
    rows = orbitlog.run("cluster", "health", "--disk-max", "1", "--stuck-after", "1000000")
    assert {"name server", "broker", "disk", "dispatch lag", "flush lag"} <= {row["check"] for row in rows}
    assert {row["state"] for row in rows if row["check"] in ("name server", "broker", "flush lag")} == {"ok"}
    key = "maxTransferCountOnMessageInMemory"
    (before,) = orbitlog.run("config", "show", key)
    (row,) = orbitlog.run("config", "set", f"{key}=24")
    assert row["value"] == "24"
    orbitlog.run("config", "set", f"{key}={before['value']}")
    topic = f"Loaded_{orbitlog.mark}"
    load = ("--topic", topic, "--count", "200", "--threads", "2")
    (row,) = orbitlog.run("bench", "send", *load, "--size", "100", "--queues", "2")
    assert (row["messages"], row["failures"]) == (200, 0)
    (row,) = orbitlog.run("bench", "consume", *load)
    assert row["messages"] == 200
