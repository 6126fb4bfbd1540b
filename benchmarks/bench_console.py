"""Web console: start to first page, memory, pages over very many names, tail under load, CPU of a watched broker.

Console and broker are processes of their own; requests come from this process over loopback.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import orbitlog
from benchmarks.measure import Reading, Report, cpu_seconds, median_of
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.group_config import GroupConfig, GroupTable, encode_groups
from orbitlog.formats.tables.offset_tables import ConsumerOffsets, TopicGroup, encode_consumer_offsets
from orbitlog.formats.tables.topic_config import TopicConfig, TopicTable, encode_topics

_GROUP = "web console"
_START_LIMIT_S, _MEMORY_LIMIT_MIB = 0.6, 60.0
_PAGE_LIMIT_S, _LARGE_PAGE_LIMIT_S = 1.0, 3.0
_BROKER_CORE_LIMIT = 0.01
_TAIL_RATE = 5_000
_SHARE_SECONDS = 30.0
_PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")


def run(report: Report, *, topics: int, groups: int, many_groups: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        root = Path(directory)
        with _broker(root / "few", topics, groups) as broker:
            _start(report, broker["name-server"], root / "data")
            _pages(report, broker, root / "data", f"{topics:,} topics, {groups:,} groups", _PAGE_LIMIT_S)
            _share(report, broker, root / "data", min(seconds, _SHARE_SECONDS))
            _tail(report, broker, root / "data", seconds)
        with _broker(root / "many", topics, many_groups) as broker:
            _pages(report, broker, root / "data", f"{topics:,} topics, {many_groups:,} groups", _LARGE_PAGE_LIMIT_S)


@contextmanager
def _process(*words: str) -> Iterator[dict[str, str]]:
    """Run a command until the block ends; yield the fields of its ready line and its pid."""
    process = subprocess.Popen([*_PROGRAM, *words, "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield {**json.loads(process.stdout.readline()), "pid": str(process.pid)}
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _broker(store: Path, topics: int, groups: int) -> Iterator[dict[str, str]]:
    """A broker with this many topics and groups; each group has an offset in one topic."""
    config = store / "config"
    config.mkdir(parents=True)
    names = [f"topic-{number:05d}" for number in range(topics)]
    members = [f"group-{number:05d}" for number in range(groups)]
    offsets = {TopicGroup(names[at % topics], name): {0: 0} for at, name in enumerate(members)}
    tables = {
        "topics.json": encode_topics(TopicTable({name: TopicConfig(name, 1, 1) for name in names}), COMPAT_5_5),
        "subscriptionGroup.json": encode_groups(GroupTable({name: GroupConfig(name) for name in members}), COMPAT_5_5),
        "consumerOffset.json": encode_consumer_offsets(ConsumerOffsets(offsets), COMPAT_5_5),
    }
    for name, text in tables.items():
        (config / name).write_text(text)
    with _process("up", "--store", str(store), "--name-server-port", "0", "--broker-port", "0") as facts:
        yield facts


@contextmanager
def _console(name_server: str, data: Path) -> Iterator[dict[str, str]]:
    with _process("console", "--port", "0", "-n", name_server, "--data", str(data)) as facts:
        yield facts


def _get(facts: dict[str, str], path: str) -> bytes:
    parts = urlsplit(facts["console"])
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, (path, response.status)
        return body
    finally:
        connection.close()


def _start(report: Report, name_server: str, data: Path) -> None:
    readings = []
    for _ in range(5):
        began = time.monotonic()
        with _console(name_server, data) as facts:
            _get(facts, "/clusters/cluster/topics")
            readings.append(time.monotonic() - began)
    report.read(Reading(_GROUP, "process start to first page", sorted(readings)[2], "s", _START_LIMIT_S))


def _pages(report: Report, broker: dict[str, str], data: Path, what: str, limit_s: float) -> None:
    with _console(broker["name-server"], data) as facts:
        began = time.monotonic()
        _get(facts, "/clusters/cluster/overview")
        report.read(Reading(_GROUP, f"overview, {what}, first", time.monotonic() - began, "s", limit_s))
        for page in ("overview", "topics", "groups"):
            seconds = median_of(lambda page=page: _get(facts, f"/clusters/cluster/{page}"))  # type: ignore[misc]
            report.read(Reading(_GROUP, f"{page}, {what}", seconds, "s", limit_s))
        report.read(Reading(_GROUP, f"memory, {what}", _resident_mib(facts["pid"]), "MiB", _MEMORY_LIMIT_MIB))


def _share(report: Report, broker: dict[str, str], data: Path, seconds: float) -> None:
    """CPU time of an otherwise idle broker while an overview is open, less that without one."""
    alone = _core_share(broker["pid"], seconds)
    with _console(broker["name-server"], data) as facts:
        ended = threading.Event()

        def refresh() -> None:
            while not ended.wait(5):
                _get(facts, "/clusters/cluster/overview")

        _get(facts, "/clusters/cluster/overview")
        thread = threading.Thread(target=refresh)
        thread.start()
        watched = _core_share(broker["pid"], seconds)
        ended.set()
        thread.join()
    share = max(0.0, watched - alone)
    report.read(Reading(_GROUP, "broker's share of a core, overview open", share, "cores", _BROKER_CORE_LIMIT))


def _tail(report: Report, broker: dict[str, str], data: Path, seconds: float) -> None:
    """Events of a tail while many messages a second arrive: the longest pause, and how many messages were counted."""
    with _console(broker["name-server"], data) as facts, orbitlog.connect(broker["name-server"]) as mq:
        parts = urlsplit(facts["console"])
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        connection.request("GET", "/api/v1/clusters/cluster/topics/topic-00000/tail")
        stream = connection.getresponse()
        events: list[tuple[float, int]] = []
        stream.readline()  # the stream has begun
        sent, began = 0, time.monotonic()
        reader = threading.Thread(target=_read_events, args=(stream, events, began + seconds + 5))
        reader.start()
        while time.monotonic() < began + seconds:
            mq.send_batch("topic-00000", ["x" * 100] * 50)
            sent += 50
            time.sleep(max(0.0, began + sent / _TAIL_RATE - time.monotonic()))
        rate = sent / (time.monotonic() - began)
        reader.join()
        connection.close()
    pauses = [later[0] - earlier[0] for earlier, later in pairwise(events)]
    report.read(Reading(_GROUP, "tail: messages sent a second", rate, "msg/s"))
    report.read(Reading(_GROUP, "tail: share of messages shown or counted as dropped", events[-1][1] / sent, ""))
    report.read(Reading(_GROUP, "tail: longest pause between events", max(pauses, default=0.0), "s", 1.0))


def _read_events(stream: http.client.HTTPResponse, events: list[tuple[float, int]], until: float) -> None:
    """Read events until a time; a heartbeat every 15 seconds ends the wait for a line."""
    while time.monotonic() < until:
        line = stream.readline()
        assert line, "the tail ended"
        if line.startswith(b"data:"):
            events.append((time.monotonic(), json.loads(line[5:])["seen"]))


def _resident_mib(pid: str) -> float:
    text = Path("/proc", pid, "status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def _core_share(pid: str, seconds: float) -> float:
    began = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - began) / seconds
