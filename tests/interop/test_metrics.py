"""Metrics of Apache's broker 5.5.0 and of Orbitlog under the same load, family by family."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.client.blocking import BlockingRocketMQ
from orbitlog.client.connection.connect import connect
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import APACHE_550, ORBITLOG, System, make_system
from tests.support.apache_metrics import ABSENT, ABSENT_PREFIXES
from tests.support.exposition_parser import ParsedFamily, parse_exposition
from tests.support.free_ports import free_port

pytestmark = pytest.mark.interop

TOPIC, GROUP, SENT = "MetricsLoad", "metrics_readers", 20
# Labels whose values depend on the load alone: the number of messages is the same for both brokers.
EQUAL = (
    ("rocketmq_messages_in_total", {"topic": TOPIC, "message_type": "normal"}),
    ("rocketmq_messages_in_total", {"topic": TOPIC, "message_type": "fifo"}),
    ("rocketmq_message_size", {"topic": TOPIC, "message_type": "normal", "le": "+Inf"}),
    ("rocketmq_broker_permission", {}),
    ("rocketmq_commit_messages_total", {"topic": TOPIC}),
    ("rocketmq_rollback_messages_total", {"topic": TOPIC}),
    ("rocketmq_send_to_dlq_messages_total", {"topic": TOPIC, "consumer_group": GROUP}),
    ("rocketmq_producer_connections", {"protocol_type": "remoting"}),
    ("rocketmq_consumer_connections", {"consumer_group": GROUP, "consume_mode": "push", "is_system": "false"}),
    ("rocketmq_rpc_latency_milliseconds", {"request_code": "end_transaction", "le": "+Inf"}),
    ("rocketmq_timing_messages", {"topic": TOPIC}),
)
# Values that depend on time or on the number of requests: they must be of the same order.
PLAUSIBLE = (
    "rocketmq_throughput_in_total",
    "rocketmq_throughput_out_total",
    "rocketmq_messages_out_total",
    "rocketmq_topic_number",
    "rocketmq_consumer_group_number",
    "rocketmq_storage_size_bytes",
)

AWAITED = {
    *("rocketmq_consumer_lag_messages", "rocketmq_messages_out_total", "rocketmq_send_to_dlq_messages_total"),
    *("rocketmq_commit_messages_total", "rocketmq_rollback_messages_total", "rocketmq_timing_messages"),
}


def load(mq: BlockingRocketMQ) -> None:
    """Send messages of every kind, and consume some of them."""
    for number in range(SENT):
        mq.send(TOPIC, b"x" * (number + 1))
    mq.send(TOPIC, b"in order", ordered_by="k")
    mq.send(TOPIC, b"later", delay=3600)
    mq.send_in_transaction(TOPIC, b"committed", lambda _: True)
    mq.send_in_transaction(TOPIC, b"rolled back", lambda _: False)


def scraped(port: int) -> dict[str, ParsedFamily]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as response:
        return parse_exposition(response.read().decode(), needs_help=False)


def measured(system: System, port: int) -> dict[str, ParsedFamily]:
    """Return the families of a system after the load, while a consumer is connected."""
    system.start()
    try:
        with connect(f"rocketmq://{system.name_server_address}") as mq:
            load(mq)
            with mq.consume(TOPIC, group=GROUP, start_from="first", max_attempts=0) as consumer:
                for number in range(6):
                    delivery = consumer.next(seconds=60)
                    assert delivery is not None
                    if number:
                        delivery.ack()
                    else:
                        delivery.retry()  # becomes a dead letter
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    families = scraped(port)
                    if AWAITED <= families.keys():
                        break
                    time.sleep(1)
                return families
    finally:
        system.kill()


def test_families_have_apaches_names_types_labels_and_buckets(
    tmp_path: Path, packages_of: Callable[[str], ApachePackages]
) -> None:
    found = {}
    for kind in (APACHE_550, ORBITLOG):
        port = free_port()
        settings = {
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": port,
            "metricsPromExporterHost": "127.0.0.1",
        }
        found[kind] = measured(make_system(kind, tmp_path / kind, packages_of, settings), port)
    theirs, ours = found[APACHE_550], found[ORBITLOG]
    differences = []
    for name, family in theirs.items():
        if name in ABSENT or name.startswith(ABSENT_PREFIXES) or not name.startswith("rocketmq_"):
            continue
        own = ours.get(name)
        if own is None:
            differences.append(f"{name}: absent")
            continue
        if (own.kind, own.label_names, own.bounds) != (family.kind, family.label_names, family.bounds):
            differences.append(f"{name}: {own.kind} {own.label_names} {own.bounds}, Apache's {family}"[:400])
    for name, labels in EQUAL:
        if ours[name].value(**labels) != theirs[name].value(**labels):
            differences.append(f"{name} {labels}: {ours[name].value(**labels)}, {theirs[name].value(**labels)}")
    for name in PLAUSIBLE:
        own, other = ours[name].value(), theirs[name].value()
        if not (own > 0 and other > 0 and 0.2 <= own / other <= 5):
            differences.append(f"{name}: {own} is not of the order of {other}")
    assert not differences, "\n".join(differences)
