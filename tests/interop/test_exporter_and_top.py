"""`orbitlog exporter` and `orbitlog top` at Apache's brokers of both versions, and at Orbitlog."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from orbitlog.client.connection.connect import connect
from orbitlog.observe.exporter_table import EXPORTER_METRICS
from tests.interop.harness.systems import APACHE_497, APACHE_550, ORBITLOG, System, wanted_kinds
from tests.support.exposition_parser import ParsedFamily, parse_exposition

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")
SENT, CONSUMED = 20, 5
# Families that rocketmq-exporter has for a cluster with this load, and their labels.
EXPECTED = {
    "rocketmq_broker_tps": {"cluster", "brokerIP", "broker"},
    "rocketmq_broker_qps": {"cluster", "brokerIP", "broker"},
    "rocketmq_producer_offset": {"cluster", "broker", "topic"},
    "rocketmq_group_diff": {"group", "topic", "countOfOnlineConsumers", "msgModel"},
    "rocketmq_group_consume_total_offset": {"cluster", "broker", "topic", "group"},
    "rocketmq_group_count": {"caddr", "localaddr", "group"},
    "rocketmq_brokeruntime_msg_put_total_today_now": {
        *("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"),
    },
    "rocketmq_brokeruntime_put_tps10": {"cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"},
    "rocketmq_brokeruntime_commitlog_disk_ratio": {
        *("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"),
    },
    "rocketmq_brokeruntime_send_threadpool_queue_size": {
        *("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version"),
    },
}


@contextmanager
def exporter(system: System, *words: str) -> Iterator[str]:
    """Run the exporter; yield the address of its metrics."""
    command = [str(PROGRAM), "exporter", "-n", system.name_server_address, "--port", "0", "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["metrics"]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def scraped(address: str) -> dict[str, ParsedFamily]:
    with urllib.request.urlopen(address, timeout=30) as response:
        return parse_exposition(response.read().decode())


def awaited(address: str, is_there: Callable[[dict[str, ParsedFamily]], bool]) -> dict[str, ParsedFamily]:
    """Scrape until a round has what is waited for."""
    deadline = time.monotonic() + 60
    while not is_there(families := scraped(address)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return families


@pytest.mark.parametrize("kind", wanted_kinds((APACHE_497, APACHE_550, ORBITLOG)))
def test_exporter_and_top_show_the_same_load(kind: str, system_of: Callable[[str], System]) -> None:
    system = system_of(kind)
    mark = uuid4().hex[:8]
    topic, group = f"Watched_{mark}", f"watchers_{mark}"
    with connect(f"rocketmq://{system.name_server_address}") as mq:
        mq.admin.create_topic(topic, queues=1)
        for number in range(SENT):
            mq.send(topic, b"x" * (number + 1))
        with mq.consume(topic, group=group, start_from="first") as consumer:
            for _ in range(CONSUMED):
                delivery = consumer.next(seconds=60)
                assert delivery is not None
                delivery.ack()
            check_exporter(system, topic, group)
            check_bounds(system)
            check_top(system, topic, group)


def check_exporter(system: System, topic: str, group: str) -> None:
    def has_members(found: dict[str, ParsedFamily]) -> bool:
        counts, diffs = found.get("rocketmq_group_count"), found.get("rocketmq_group_diff")
        return (
            counts is not None
            and counts.value(group=group) == 1
            and diffs is not None
            and diffs.value(group=group, topic=topic) == SENT - CONSUMED
            and EXPECTED.keys() <= found.keys()  # 4.9.7 reports no rates in its first ten seconds
        )

    with exporter(system, "--interval", "1") as address:
        families = awaited(address, has_members)
    known = {metric.name for metric in EXPORTER_METRICS}
    assert families.keys() - known <= {"orbitlog_series_dropped_total"}
    for name, labels in EXPECTED.items():
        assert labels <= set(families[name].label_names), (name, families[name].label_names)
        assert families[name].kind == "gauge"
    assert families["rocketmq_producer_offset"].value(topic=topic) == SENT
    assert families["rocketmq_group_diff"].value(group=group, topic=topic) == SENT - CONSUMED
    assert families["rocketmq_group_count"].value(group=group) == 1
    assert families["rocketmq_brokeruntime_msg_put_total_today_now"].value() >= SENT
    assert families["orbitlog_exporter_requests_failed_total"].value() == 0


def check_bounds(system: System) -> None:
    """Few requests a round, and few series a family: both state what they left out."""
    with exporter(system, "--interval", "600", "--max-requests", "3", "--max-series", "2") as address:
        families = scraped(address)
    assert families["orbitlog_exporter_requests_total"].value() <= 3 + 7
    assert families["orbitlog_exporter_postponed"].value() > 0
    assert all(len(family.samples) <= 2 for name, family in families.items() if name != "orbitlog_series_dropped_total")


def check_top(system: System, topic: str, group: str) -> None:
    command = [str(PROGRAM), "top", "-n", system.name_server_address, "--count", "2", "--interval", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    view = [json.loads(line) for line in done.stdout.splitlines()][-1]
    [broker] = view["brokers"]
    assert broker["diskPercent"] > 0 and broker["inPerSecond"] is not None
    # The retry topic of the group has a row of its own.
    [row] = [row for row in view["groups"] if (row["group"], row["topic"]) == (group, topic)]
    assert row["lag"] == SENT - CONSUMED
