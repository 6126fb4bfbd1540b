"""Settings of metrics, under Java's names where Java has one; brokers and name servers share them."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from orbitlog.settings.setting import Setting, number_between

DISABLE, PROM = "DISABLE", "PROM"
_TYPES = {"0": DISABLE, DISABLE: DISABLE, "2": PROM, PROM: PROM}
_UNSUPPORTED = {"1": "OTLP_GRPC", "OTLP_GRPC": "OTLP_GRPC", "3": "LOG", "LOG": "LOG"}
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_LABELS_MAX = 32


def _exporter(text: str) -> str:
    """Parse the type by its name or by its number, as Java does."""
    if text in _UNSUPPORTED:
        raise ValueError(f"asks for {_UNSUPPORTED[text]}, which is not supported; set PROM and scrape the broker")
    if text not in _TYPES:
        raise ValueError("is not one of DISABLE, PROM")
    return _TYPES[text]


def _host(text: str) -> str:
    if text:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise ValueError("is not an IP address") from None
    return text


def label_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `name:value,name:value`; raise a `ValueError` if it is invalid."""
    pairs = [part.strip().partition(":") for part in text.split(",") if part.strip()]
    if len(pairs) > _LABELS_MAX:
        raise ValueError(f"has more than {_LABELS_MAX} labels")
    for name, separator, value in pairs:
        if not separator or not value or not _LABEL_NAME.fullmatch(name):
            raise ValueError(f"contains {name!r}, which is not name:value")
    return tuple((name, value) for name, _, value in pairs)


def _labels(text: str) -> str:
    label_pairs(text)
    return text


def _not_delta(text: str) -> bool:
    if text.lower() != "false":
        raise ValueError("is not false: counters of the Prometheus endpoint only grow")
    return False


EXPORTER: Setting[str] = Setting(
    "metricsExporterType", _exporter, DISABLE, "`PROM` serves metrics over HTTP ([metrics](../metrics.md)); `DISABLE`"
)
PROM_PORT = Setting(
    "metricsPromExporterPort", number_between(0, 65535), 5557, "port of metrics and health; 0 takes a free one"
)
PROM_HOST = Setting(
    "metricsPromExporterHost", _host, "", "address that metrics and health listen on; without it, 127.0.0.1"
)
LABELS = Setting("metricsLabel", _labels, "", "labels of all series, `name:value,name:value`")
IN_DELTA = Setting("metricsInDelta", _not_delta, False, "only false is supported")
CARDINALITY = Setting(
    "metricsOtelCardinalityLimit",
    number_between(1, 1_000_000),
    50_000,
    "maximum series of one family; more are counted in orbitlog_series_dropped_total",
)

METRICS_SETTINGS: tuple[Setting[Any], ...] = (EXPORTER, PROM_PORT, PROM_HOST, LABELS, IN_DELTA, CARDINALITY)
LOOPBACK = "127.0.0.1"
