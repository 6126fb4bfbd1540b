"""Rules and dashboard evaluated by a real Prometheus that scrapes a broker under load."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from orbitlog.testing.running_broker import RunningBroker
from tests.support.free_ports import free_port
from tests.support.prometheus_server import PrometheusServer, prometheus_directory
from tools.generate_board import queries

RULES = Path(__file__).parents[3] / "deploy" / "prometheus"


def filled(expression: str) -> str:
    """Return a query of the dashboard with its variables replaced."""
    return re.sub(r"\$(?:cluster|node_id|topic|group)\b", ".*", expression).replace("$__rate_interval", "1m")


def rule_expressions() -> list[str]:
    groups = [
        group
        for name in ("orbitlog-alerts.yml", "orbitlog-rules.yml")
        for group in yaml.safe_load((RULES / name).read_text())["groups"]
    ]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def put_load(broker: RunningBroker) -> None:
    """Send and consume a little of everything, so that counters exist."""
    for number in range(20):
        broker.client.send("T", b"x" * (number + 1))


def test_queries_of_dashboard_and_rules_have_results(tmp_path: Path) -> None:
    prometheus_directory()  # skips without it, before a broker is started
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0", "defaultTopicQueueNums": "1"}
    with RunningBroker(tmp_path / "store", settings) as broker:
        assert broker._broker is not None and broker._broker.meters is not None
        address = broker._broker.meters.address
        assert address is not None
        put_load(broker)
        rules = RULES / "orbitlog-rules.yml", RULES / "orbitlog-alerts.yml"
        server = PrometheusServer(tmp_path, free_port(), f"{address[0]}:{address[1]}", rules)
        with server, broker.client.consume("T", group="g", start_from="first") as consumer:
            for _ in range(5):
                delivery = consumer.next(seconds=30)
                assert delivery is not None
                delivery.ack()
            server.wait_for("rocketmq_consumer_lag_messages")
            # Rates need two scrapes with different values; the log is flushed now and then.
            for counter in (
                "rocketmq_messages_in_total",
                "rocketmq_messages_out_total",
                "orbitlog_flush_seconds_count",
            ):
                server.wait_for(f"rate({counter}[1m]) >= 0", lambda: put_load(broker))
            empty = [
                query.expr for query in queries() if not server.query(filled(query.expr)) and query.need != "maybe"
            ]
            for expression in rule_expressions():
                server.query(expression)
            server.wait_for("topic:rocketmq_messages_in:rate1m")
    assert not empty, "\n".join(empty)
