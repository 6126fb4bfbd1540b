"""Commands of every day at a running cluster, run in this process: topics, groups, offsets, pipes, formats, health."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.client.connection.connect import connect

SECONDS_MAX = 60


@dataclass(frozen=True)
class Ran:
    exit_code: int
    stdout: str
    stderr: str
    raw: bytes

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


Orbitlog = Callable[..., Ran]


@pytest.fixture
def orbitlog(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Orbitlog:
    """Run a command at the cluster; whatever contexts there are outside the test do not count."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("ORBITLOG_CONTEXT", raising=False)
    monkeypatch.setenv("ORBITLOG_NAME_SERVER", cluster)

    def run(*words: str, text: str | bytes | None = None, exit_code: int = 0) -> Ran:
        result = CliRunner(env={"COLUMNS": "160"}).invoke(cli, list(words), input=text, prog_name="orbitlog")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == exit_code, result.output
        assert "Traceback" not in result.stderr
        return Ran(result.exit_code, result.stdout, result.stderr, result.stdout_bytes)

    return run


def rows(orbitlog: Orbitlog, *words: str, **options: Any) -> list[dict[str, Any]]:
    return orbitlog(*words, "--json", **options).rows


def test_a_topic_is_changed_in_part(orbitlog: Orbitlog) -> None:
    orbitlog("topic", "create", "Changed", "--queues", "3")
    (row,) = rows(orbitlog, "topic", "update", "Changed", "--permission", "4")
    assert (row["readQueues"], row["writeQueues"], row["permission"]) == (3, 3, "read")
    (row,) = rows(orbitlog, "topic", "update", "Changed", "--write-queues", "2", "--permission", "6")
    assert (row["readQueues"], row["writeQueues"], row["permission"]) == (3, 2, "read and write")
    assert rows(orbitlog, "topic", "show", "Changed", "--config") == [row]
    assert "nothing to change" in orbitlog("topic", "update", "Changed", exit_code=2).stderr


def test_the_order_of_an_ordered_topic_is_kept(orbitlog: Orbitlog, cluster: str) -> None:
    orbitlog("topic", "create", "InOrder", "--queues", "3", "--ordered")
    told = orbitlog(
        "mqadmin", "updateOrderConf", "-t", "InOrder", "-m", "get", "-n", cluster.removeprefix("rocketmq://")
    )
    assert "orderConf=[broker-a:3]" in told.stdout


def test_misspelled_name_gets_a_suggestion(orbitlog: Orbitlog) -> None:
    orbitlog("topic", "create", "Suggested", "--queues", "1")
    for words in (["topic", "show"], ["topic", "update", "--queues", "2"], ["tail"], ["message", "find"]):
        word = ["key"] if words == ["message", "find"] else []
        ran = orbitlog(*words[:2], "Sugested", *word, *words[2:], exit_code=1)
        assert ran.stderr == "orbitlog: no broker serves topic Sugested; did you mean Suggested?\n"
    ran = orbitlog("offsets", "reset", "g", "Zzzz", "--to", "latest", exit_code=1)
    assert "list topics with `orbitlog topic list`" in ran.stderr


def test_a_group_is_made_changed_and_deleted(orbitlog: Orbitlog) -> None:
    (row,) = rows(orbitlog, "group", "create", "made-group", "--retry-times", "3")
    assert (row["retryTimesMax"], row["consume"]) == (3, True)
    (row,) = rows(orbitlog, "group", "update", "made-group", "--no-consume")
    assert (row["retryTimesMax"], row["consume"]) == (3, False)
    assert rows(orbitlog, "group", "show", "made-group", "--config") == [row]
    assert rows(orbitlog, "group", "show", "made-group", "--members") == []
    assert "made-group" in orbitlog("group", "list", "-f", "{group}").stdout.splitlines()
    orbitlog("group", "delete", "made-group", "--yes")
    assert "unknown group" in orbitlog("group", "show", "made-group", "--config", exit_code=1).stderr
    assert "unknown group" in orbitlog("group", "update", "made-group", "--consume", exit_code=1).stderr


def test_offset_reset_of_a_group_without_members_is_exact(orbitlog: Orbitlog) -> None:
    orbitlog("topic", "create", "Moved", "--queues", "1")
    orbitlog("group", "create", "moved-group")
    orbitlog("send", "Moved", *"0123")
    (middle,) = rows(orbitlog, "tail", "Moved", "--from", "2", "--limit", "1")
    orbitlog("send", "Moved", *"4567")

    def reset(to: str, *words: str) -> tuple[int | None, int, bool]:
        (row,) = rows(orbitlog, "offsets", "reset", "moved-group", "Moved", "--to", to, *words)
        assert row["lag"] == 8 - row["offset"]
        return row["before"], row["offset"], row["done"]

    def committed() -> list[int]:
        return [row["committed"] for row in rows(orbitlog, "offsets", "show", "moved-group", "--topic", "Moved")]

    assert reset("3", "--dry-run") == (None, 3, False)
    assert committed() in ([], [0])
    assert reset("3") == (None, 3, True)
    assert committed() == [3]
    assert reset("earliest") == (3, 0, True)
    assert committed() == [0]
    assert reset("latest", "--queue", "0") == (0, 8, True)
    assert committed() == [8]
    assert reset("1000") == (8, 8, True)
    assert reset(str(middle["storeTimestamp"]))[1] <= 2
    moment = datetime.fromtimestamp(middle["storeTimestamp"] / 1000 + 0.001, UTC).isoformat()
    assert reset(moment)[1] >= 3
    assert (
        "has no readable queue 7"
        in orbitlog("offsets", "reset", "moved-group", "Moved", "--to", "0", "--queue", "7", exit_code=1).stderr
    )
    assert (
        "no-such-group does not exist"
        in orbitlog("offsets", "reset", "no-such-group", "Moved", "--to", "0", exit_code=1).stderr
    )


def test_offset_reset_notifies_a_running_group(orbitlog: Orbitlog, cluster: str) -> None:
    orbitlog("topic", "create", "MovedLive", "--queues", "1")

    async def live() -> tuple[list[str], list[str]]:
        first, again = [], []
        async with connect(cluster) as mq:
            for number in range(6):
                await mq.send("MovedLive", str(number))
            async with mq.consume("MovedLive", group="live-group", start_from="first") as consumer:
                while len(first) < 6:
                    message = await consumer.next(SECONDS_MAX)
                    assert message is not None
                    first.append(message.text)
                    await message.ack()
                await asyncio.to_thread(orbitlog, "offsets", "reset", "live-group", "MovedLive", "--to", "4")
                while len(again) < 2:
                    message = await consumer.next(SECONDS_MAX)
                    assert message is not None
                    again.append(message.text)
                    await message.ack()
        return first, again

    first, again = asyncio.run(asyncio.wait_for(live(), 2 * SECONDS_MAX))
    assert first == list("012345")
    assert again == ["4", "5"]


def test_lines_and_objects_are_sent_from_standard_input(orbitlog: Orbitlog) -> None:
    orbitlog("topic", "create", "Piped", "--queues", "1")
    lines = [
        {"body": "a", "keys": ["k1", "k2"], "tags": "t", "properties": {"colour": "green"}},
        {"body": "b", "keys": "k3"},
        {"body": "c"},
    ]
    text = "\n".join(map(json.dumps, lines)) + "\n\n"
    ran = orbitlog("send", "Piped", "-", "--input", "json", "--property", "from=pipe", "--in-flight", "1", text=text)
    assert len(ran.stdout.splitlines()) == 3
    seen = rows(orbitlog, "message", "tail", "Piped", "--from", "earliest", "--no-follow")
    assert [each["body"] for each in seen] == ["a", "b", "c"]
    assert (seen[0]["keys"], seen[0]["tags"], seen[1]["keys"], seen[2]["keys"]) == ("k1 k2", "t", "k3", None)
    assert seen[0]["properties"]["colour"] == "green" and seen[2]["properties"]["from"] == "pipe"
    assert orbitlog("send", "Piped", "-", "-q", "--in-flight", "16", text="x\n" * 50).stdout == "50 sent\n"
    orbitlog("message", "send", "Piped", "-", "--input", "raw", text=b"\xff\x00\nwhole\n")
    ran = orbitlog("tail", "Piped", "--from", "53", "--no-follow", "-f", "{body}\\0")
    assert ran.raw == b"\xff\x00\nwhole\n\0"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 1 of the input is not valid JSON"),
        ("[]", "not a JSON object with a body"),
        ('{"body": "x", "colour": 1}', "unknown field 'colour'; available: body, tags, keys"),
        ('{"body": 1}', "invalid body: 1"),
    ],
)
def test_invalid_input_line_is_reported_by_number(orbitlog: Orbitlog, line: str, sentence: str) -> None:
    assert sentence in orbitlog("send", "Piped", "-", "--input", "json", text=line, exit_code=2).stderr


def test_tail_without_follow_ends_at_the_end_of_the_topic(orbitlog: Orbitlog) -> None:
    orbitlog("topic", "create", "Tailed", "--queues", "3")
    assert orbitlog("tail", "Tailed", "--from", "earliest", "--no-follow").stdout == ""
    orbitlog("send", "Tailed", *map(str, range(30)), "--tags", "odd")
    orbitlog("send", "Tailed", *map(str, range(30, 60)), "--tags", "even")
    seen = orbitlog("tail", "Tailed", "--from", "earliest", "--no-follow", "--tags", "odd", "-f", "{body}").stdout
    assert sorted(map(int, seen.splitlines())) == list(range(30))
    assert len(orbitlog("tail", "Tailed", "--from", "-1h", "--no-follow").stdout.splitlines()) == 60
    one = rows(orbitlog, "tail", "Tailed", "--from", "earliest", "--no-follow", "--queue", "1")
    assert {each["queueId"] for each in one} == {1} and len(one) == 20


def test_formats_and_their_mistakes(orbitlog: Orbitlog) -> None:
    orbitlog("topic", "create", "Formatted", "--queues", "1")
    sent = orbitlog("send", "Formatted", "one", "two", "-f", r"{topic}\t{queue_offset}").stdout
    assert sent == "Formatted\t0\nFormatted\t1\n"
    shown = orbitlog("topic", "show", "Formatted", "-f", "{queue_id}:{max_offset}").stdout
    assert shown == "0:2\n"
    for words in (["tail", "Formatted"], ["send", "Formatted", "x"], ["topic", "list"], ["message", "get", "x"]):
        ran = orbitlog(*words, "-f", "{nonsense}", exit_code=2)
        assert "unknown field 'nonsense'; available: " in ran.stderr
    assert "\x1b" not in orbitlog("tail", "Formatted", "--from", "earliest", "--no-follow").stdout


def test_health_reports_each_part_and_a_stuck_group(orbitlog: Orbitlog, cluster: str) -> None:
    found = rows(orbitlog, "cluster", "health", "--disk-max", "1")
    checks = [row["check"] for row in found]
    assert checks[:5] == ["name server", "broker", "disk", "dispatch lag", "flush lag"]
    assert all(row["problem"] is None for row in found[:2])
    orbitlog("cluster", "health", "--disk-max", "0", "--strict", exit_code=1)

    orbitlog("topic", "create", "Stuck", "--queues", "1")

    async def stuck() -> Ran:
        async with connect(cluster) as mq:
            await mq.send("Stuck", "never done with")
            async with mq.consume("Stuck", group="stuck-group", start_from="first") as consumer:
                assert await consumer.next(SECONDS_MAX) is not None
                while True:  # the group is behind as soon as the broker knows it
                    ran = await asyncio.to_thread(
                        orbitlog_any, "cluster", "health", "--disk-max", "1", "--stuck-after", "0", "--json"
                    )
                    if any(row["name"] == "stuck-group" for row in ran.rows):
                        return ran
                    await asyncio.sleep(0.2)

    def orbitlog_any(*words: str) -> Ran:
        try:
            return orbitlog(*words)
        except AssertionError:
            return orbitlog(*words, exit_code=1)

    ran = asyncio.run(asyncio.wait_for(stuck(), SECONDS_MAX))
    (row,) = [row for row in ran.rows if row["name"] == "stuck-group"]
    assert row["state"] == "problem" and "1 message behind" in row["value"] and "1 member" in row["problem"]
    assert ran.exit_code == 1


def test_health_reports_an_unreachable_name_server(orbitlog: Orbitlog, cluster: str) -> None:
    address = cluster.removeprefix("rocketmq://")
    found = rows(orbitlog, "cluster", "health", "-n", f"{address},127.0.0.1:1", exit_code=1)
    servers = [row for row in found if row["check"] == "name server"]
    assert sorted(row["state"] for row in servers) == ["ok", "problem"]


def test_settings_of_a_running_broker(orbitlog: Orbitlog) -> None:
    (row,) = rows(orbitlog, "config", "show", "brokerName")
    assert row == {"brokerName": "broker-a", "key": "brokerName", "value": "broker-a"}
    assert len(rows(orbitlog, "config", "show", "--broker", "broker-a")) > 50
    key = "maxTransferCountOnMessageInMemory"
    (before,) = rows(orbitlog, "config", "show", key)
    (row,) = rows(orbitlog, "config", "set", f"{key}=24")
    assert row["value"] == "24"
    orbitlog("config", "set", f"{key}={before['value']}")
    assert "cannot be changed while" in orbitlog("config", "set", "brokerName=other", exit_code=1).stderr
    assert "did you mean brokerName" in orbitlog("config", "show", "brokerNam", exit_code=1).stderr
    assert "unknown broker nobody" in orbitlog("config", "show", "--broker", "nobody", exit_code=2).stderr
    assert "is not KEY=VALUE" in orbitlog("config", "set", "x", exit_code=2).stderr


def test_a_small_load_is_measured(orbitlog: Orbitlog) -> None:
    load = ("--topic", "Loaded", "--count", "200", "--threads", "2")
    (row,) = rows(orbitlog, "bench", "send", *load, "--size", "100", "--in-flight", "4", "--queues", "2")
    assert (row["messages"], row["bytes"], row["failures"]) == (200, 20_000, 0)
    assert 0 < row["p50Ms"] <= row["p99Ms"] <= row["maxMs"]
    (row,) = rows(orbitlog, "bench", "send", *load, "--size", "100", "--batch", "25")
    assert row["messages"] == 200
    (row,) = rows(orbitlog, "bench", "consume", *load)
    assert (row["messages"], row["bytes"]) == (200, 20_000)
    told = orbitlog("bench", "send", *load, "--size", "100").stdout.splitlines()
    assert [line.split()[0] for line in told] == ["messages", "rate", "latency", "client", "failures"]


def test_a_namespace_is_kept_to(orbitlog: Orbitlog, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORBITLOG_NAME_SERVER")
    orbitlog("context", "add", "spaced", "-n", cluster, "--namespace", "space")
    orbitlog("topic", "create", "space%Short", "--queues", "2")
    assert rows(orbitlog, "send", "Short", "one", "two")[0]["topic"] == "space%Short"
    seen = rows(orbitlog, "tail", "Short", "--from", "earliest", "--no-follow")
    assert sorted(each["body"] for each in seen) == ["one", "two"]
    assert len(rows(orbitlog, "tail", "Short", "--from", "earliest", "--no-follow", "--queue", "1")) == 1
    assert "has no queue 7" in orbitlog("tail", "Short", "--queue", "7", exit_code=1).stderr
    (row,) = rows(orbitlog, "bench", "send", "--topic", "Spaced", "--count", "10", "--queues", "3")
    assert row["messages"] == 10
    assert len(rows(orbitlog, "topic", "show", "space%Spaced")) == 3
    assert rows(orbitlog, "bench", "consume", "--topic", "Spaced", "--count", "10")[0]["messages"] == 10


def test_a_context_is_asked(orbitlog: Orbitlog, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORBITLOG_NAME_SERVER")
    orbitlog("context", "add", "here", "-n", cluster)
    orbitlog("context", "add", "nowhere", "-n", "127.0.0.1:1")
    assert orbitlog("cluster", "list").stdout
    assert "could not connect to" in orbitlog("cluster", "list", "--context", "nowhere", exit_code=1).stderr
    monkeypatch.setenv("ORBITLOG_CONTEXT", "nowhere")
    orbitlog("cluster", "list", exit_code=1)
    assert orbitlog("cluster", "list", "--context", "here").stdout
