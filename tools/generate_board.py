"""Write the Grafana dashboard: deploy/grafana/orbitlog.json, from the tables below.

Panels of `rocketmq_` families also show Apache's broker 5.5. `Need` states where a panel must have data under load: the
tests evaluate every query against a real Prometheus.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

TARGET = Path(__file__).parents[1] / "deploy" / "grafana" / "orbitlog.json"
NODE = 'cluster=~"$cluster",node_id=~"$node_id"'
TOPIC = f'{NODE},topic=~"$topic"'
GROUP = f'{TOPIC},consumer_group=~"$group"'
SENDS = 'request_code=~"send_message.*|send_batch_message"'
WIDTH, HEIGHT = 24, 8

Need = Literal["always", "orbitlog", "maybe"]
"""`always`: data under any load; `orbitlog`: the same, from Orbitlog alone; `maybe`: only after rare events."""


@dataclass(frozen=True)
class Query:
    """One expression, and the legend of its series."""

    expr: str
    legend: str = ""
    need: Need = "always"


@dataclass(frozen=True)
class Panel:
    """One panel."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    description: str = ""
    width: int = 8


def _rate(family: str, labels: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate({family}{{{labels}}}[$__rate_interval]))"


def _quantile(share: float, family: str, labels: str, *by: str) -> str:
    return f"histogram_quantile({share}, {_rate(f'{family}_bucket', labels, 'le', *by)})"


def _sums(family: str, labels: str, *by: str, function: str = "sum") -> str:
    return f"{function} by ({', '.join(by)}) ({family}{{{labels}}})"


def _top(count: int, expr: str) -> str:
    return f"topk({count}, {expr})"


BY_GROUP, LEGEND = ("consumer_group", "topic"), "{{consumer_group}} {{topic}}"
CODES = ("request_code", "response_code")
OWN = "Brokers of Orbitlog only."

ROWS: dict[str, tuple[Panel, ...]] = {
    "Health": (
        Panel("Brokers up", (Query('count(up{job="rocketmq"} == 1)'),), kind="stat", width=4),
        Panel(
            "Messages in",
            (Query(f"sum(rate(rocketmq_messages_in_total{{{NODE}}}[$__rate_interval]))"),),
            "cps",
            "stat",
            width=4,
        ),
        Panel(
            "Messages out",
            (Query(f"sum(rate(rocketmq_messages_out_total{{{NODE}}}[$__rate_interval]))"),),
            "cps",
            "stat",
            width=4,
        ),
        Panel("Lag", (Query(f"sum(rocketmq_consumer_lag_messages{{{NODE}}})"),), "short", "stat", width=4),
        Panel(
            "Refusing sends",
            (
                Query(
                    f"sum(orbitlog_disk_refuses_sends{{{NODE}}} + orbitlog_store_read_only{{{NODE}}})", need="orbitlog"
                ),
            ),
            kind="stat",
            description="Brokers of Orbitlog with a full disk or a read-only store.",
            width=4,
        ),
        Panel(
            "Disk used",
            (Query(f"max(orbitlog_disk_used_ratio{{{NODE}}})", need="orbitlog"),),
            "percentunit",
            "stat",
            width=4,
        ),
    ),
    "Traffic": (
        Panel(
            "Messages in by topic",
            (Query(_top(10, _rate("rocketmq_messages_in_total", TOPIC, "topic")), "{{topic}}"),),
            "cps",
        ),
        Panel(
            "Messages out by group",
            (Query(_top(10, _rate("rocketmq_messages_out_total", GROUP, *BY_GROUP)), LEGEND),),
            "cps",
        ),
        Panel(
            "Messages in by type",
            (Query(_rate("rocketmq_messages_in_total", TOPIC, "message_type"), "{{message_type}}"),),
            "cps",
        ),
        Panel(
            "Bytes in by topic",
            (Query(_top(10, _rate("rocketmq_throughput_in_total", TOPIC, "topic")), "{{topic}}"),),
            "Bps",
        ),
        Panel(
            "Bytes out by topic",
            (Query(_top(10, _rate("rocketmq_throughput_out_total", TOPIC, "topic")), "{{topic}}"),),
            "Bps",
        ),
        Panel(
            "Message size", (Query(_rate("rocketmq_message_size_bucket", TOPIC, "le"), "{{le}}"),), "bytes", "heatmap"
        ),
    ),
    "Groups": (
        Panel("Lag by group", (Query(_top(20, _sums("rocketmq_consumer_lag_messages", GROUP, *BY_GROUP)), LEGEND),)),
        Panel(
            "Age of the first unread message",
            (
                Query(
                    _top(20, _sums("rocketmq_consumer_lag_latency_milliseconds", GROUP, *BY_GROUP, function="max")),
                    LEGEND,
                ),
            ),
            "ms",
        ),
        Panel(
            "Lag of groups without members",
            (
                Query(
                    _top(20, _sums("orbitlog_group_lag_messages", f'{GROUP},online="false"', *BY_GROUP)),
                    LEGEND,
                    "maybe",
                ),
            ),
            description=OWN,
        ),
        Panel("In flight", (Query(_top(20, _sums("rocketmq_consumer_inflight_messages", GROUP, *BY_GROUP)), LEGEND),)),
        Panel("Ready", (Query(_top(20, _sums("rocketmq_consumer_ready_messages", GROUP, *BY_GROUP)), LEGEND),)),
        Panel(
            "Dead letters",
            (
                Query(
                    _rate("rocketmq_send_to_dlq_messages_total", GROUP, "consumer_group"), "{{consumer_group}}", "maybe"
                ),
            ),
        ),
    ),
    "Latency": (
        Panel(
            "Sends",
            (
                Query(_quantile(0.5, "rocketmq_rpc_latency_milliseconds", f"{NODE},{SENDS}"), "p50"),
                Query(_quantile(0.99, "rocketmq_rpc_latency_milliseconds", f"{NODE},{SENDS}"), "p99"),
            ),
            "ms",
        ),
        Panel(
            "Sends, finer",
            (
                Query(_quantile(0.5, "orbitlog_send_seconds", NODE), "p50", "orbitlog"),
                Query(_quantile(0.99, "orbitlog_send_seconds", NODE), "p99", "orbitlog"),
            ),
            "s",
            description="Brokers of Orbitlog only: buckets start at 0.5 ms.",
        ),
        Panel(
            "Requests by code, p99",
            (
                Query(
                    _top(10, _quantile(0.99, "rocketmq_rpc_latency_milliseconds", NODE, "request_code")),
                    "{{request_code}}",
                ),
            ),
            "ms",
        ),
        Panel(
            "Requests by code",
            (
                Query(
                    _top(10, _rate("rocketmq_rpc_latency_milliseconds_count", NODE, "request_code")), "{{request_code}}"
                ),
            ),
            "reqps",
        ),
        Panel(
            "Errors by response code",
            (
                Query(
                    _rate("rocketmq_rpc_latency_milliseconds_count", f'{NODE},response_code!="success"', *CODES),
                    "{{request_code}} {{response_code}}",
                    "maybe",
                ),
            ),
            "reqps",
        ),
        Panel(
            "Sends refused",
            (Query(_rate("orbitlog_sends_refused_total", NODE, "reason"), "{{reason}}", "maybe"),),
            "reqps",
            description=OWN,
        ),
    ),
    "Store": (
        Panel("Not flushed", (Query(f"rocketmq_storage_flush_behind_bytes{{{NODE}}}", "{{node_id}}"),), "bytes"),
        Panel("Not dispatched", (Query(f"rocketmq_storage_dispatch_behind_bytes{{{NODE}}}", "{{node_id}}"),), "bytes"),
        Panel(
            "Flush time",
            (Query(_quantile(0.99, "orbitlog_flush_seconds", NODE, "node_id"), "{{node_id}} p99", "orbitlog"),),
            "s",
            description=OWN,
        ),
        Panel(
            "Log span",
            (
                Query(
                    f"orbitlog_log_max_offset{{{NODE}}} - orbitlog_log_min_offset{{{NODE}}}", "{{node_id}}", "orbitlog"
                ),
            ),
            "bytes",
            description=OWN,
        ),
        Panel(
            "Age of the oldest message",
            (Query(f"rocketmq_storage_message_reserve_time_milliseconds{{{NODE}}}", "{{node_id}}"),),
            "ms",
        ),
        Panel(
            "Disk",
            (Query(f"rocketmq_storage_size_bytes{{{NODE}}}", "{{node_id}}"),),
            "bytes",
            description="Used bytes of the file system.",
        ),
    ),
    "Delayed messages and transactions": (
        Panel(
            "Timer messages by time left",
            (Query(f"sum by (timer_bound_s) (rocketmq_timer_message_snapshot{{{NODE}}})", "{{timer_bound_s}} s"),),
        ),
        Panel(
            "Timer messages delivered",
            (Query(_rate("rocketmq_timer_dequeue_total", TOPIC, "topic"), "{{topic}}", "maybe"),),
            "cps",
        ),
        Panel(
            "Lateness of timer messages",
            (Query(f"max by (node_id) (rocketmq_timer_dequeue_latency_milliseconds{{{NODE}}})", "{{node_id}}"),),
            "ms",
        ),
        Panel("Half messages", (Query(f"sum by (topic) (rocketmq_half_messages{{{TOPIC}}})", "{{topic}}", "maybe"),)),
        Panel(
            "Transactions committed",
            (Query(_rate("rocketmq_commit_messages_total", TOPIC, "topic"), "{{topic}}", "maybe"),),
            "cps",
        ),
        Panel(
            "Transactions rolled back",
            (Query(_rate("rocketmq_rollback_messages_total", TOPIC, "topic"), "{{topic}}", "maybe"),),
            "cps",
        ),
    ),
    "Clients": (
        Panel(
            "Producers",
            (
                Query(
                    f"sum by (language, version) (rocketmq_producer_connections{{{NODE}}})", "{{language}} {{version}}"
                ),
            ),
        ),
        Panel(
            "Consumers",
            (
                Query(
                    _sums(
                        "rocketmq_consumer_connections",
                        f'{NODE},consumer_group=~"$group"',
                        "consumer_group",
                        "language",
                        "version",
                    ),
                    "{{consumer_group}} {{language}} {{version}}",
                ),
            ),
        ),
        Panel(
            "Connections and long polls",
            (
                Query(f"orbitlog_connections{{{NODE}}}", "connections", "orbitlog"),
                Query(f"sum by (kind) (orbitlog_held_requests{{{NODE}}})", "held {{kind}}", "orbitlog"),
            ),
            description=OWN,
        ),
        Panel(
            "Limits reached",
            (Query(_rate("orbitlog_limit_reached_total", NODE, "setting"), "{{setting}}", "maybe"),),
            description=OWN,
        ),
        Panel(
            "Topics and groups",
            (
                Query(f"rocketmq_topic_number{{{NODE}}}", "topics"),
                Query(f"rocketmq_consumer_group_number{{{NODE}}}", "groups"),
            ),
        ),
        Panel(
            "Slaves",
            (
                Query(f"orbitlog_replicas{{{NODE}}}", "slaves", "orbitlog"),
                Query(f"orbitlog_replica_lag_bytes{{{NODE}}}", "lag in bytes", "maybe"),
            ),
            description=OWN,
        ),
    ),
    "Process": (
        Panel(
            "CPU",
            (Query(f"rate(process_cpu_seconds_total{{{NODE}}}[$__rate_interval])", "{{node_id}}", "orbitlog"),),
            "percentunit",
        ),
        Panel("Memory", (Query(f"process_resident_memory_bytes{{{NODE}}}", "{{node_id}}", "orbitlog"),), "bytes"),
        Panel("Open files", (Query(f"process_open_fds{{{NODE}}}", "{{node_id}}", "orbitlog"),)),
        Panel(
            "Lateness of the event loop",
            (Query(_quantile(0.99, "orbitlog_loop_lag_seconds", NODE, "node_id"), "{{node_id}} p99", "orbitlog"),),
            "s",
        ),
        Panel("Restarts", (Query(f"changes(process_start_time_seconds{{{NODE}}}[1h])", "{{node_id}}", "orbitlog"),)),
        Panel(
            "Series left out",
            (Query(_rate("orbitlog_series_dropped_total", NODE, "metric"), "{{metric}}", "maybe"),),
            description="Families past metricsOtelCardinalityLimit.",
        ),
    ),
}
VARIABLES = {
    "cluster": "label_values(rocketmq_topic_number, cluster)",
    "node_id": 'label_values(rocketmq_topic_number{cluster=~"$cluster"}, node_id)',
    "topic": f"label_values(rocketmq_messages_in_total{{{NODE}}}, topic)",
    "group": f"label_values(rocketmq_consumer_lag_messages{{{NODE}}}, consumer_group)",
}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def queries() -> Iterable[Query]:
    """Return every query of the dashboard."""
    return (query for panels in ROWS.values() for panel in panels for query in panel.queries)


def board() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, members in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row,
                "collapsed": False,
                "gridPos": _place(0, y, WIDTH, 1),
                "panels": [],
            }
        )
        x, y = 0, y + 1
        for panel in members:
            if x + panel.width > WIDTH:
                x, y = 0, y + HEIGHT
            panels.append(_panel(panel, len(panels) + 1, _place(x, y, panel.width, HEIGHT)))
            x += panel.width
        y += HEIGHT
    return {
        "uid": "orbitlog",
        "title": "Orbitlog and RocketMQ 5",
        "tags": ["rocketmq", "orbitlog"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), *(_variable(name, text) for name, text in VARIABLES.items())]},
        "panels": panels,
    }


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
        }
        for index, query in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"calculate": False} if panel.kind == "heatmap" else {},
        "targets": targets,
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, text: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": text, "refId": name},
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def text() -> str:
    """Return the file."""
    return json.dumps(board(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
    sys.stdout.write(f"wrote {TARGET.name}\n")
