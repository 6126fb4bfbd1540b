"""Settings of metrics and logs, under Java's names where Java has one; brokers and name servers share them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from orbitlog.settings.setting import Setting, SettingError, number_between, one_of, parse_truth

DISABLE, PROM, LOG, OTLP_GRPC, OTLP_HTTP = "DISABLE", "PROM", "LOG", "OTLP_GRPC", "OTLP_HTTP"
_TYPES = {"0": DISABLE, "1": OTLP_GRPC, "2": PROM, "3": LOG}
_NAMES = (DISABLE, OTLP_GRPC, PROM, LOG, OTLP_HTTP)
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
HEADER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_LABELS_MAX = 32
LOG_TEXT, LOG_JSON = "text", "json"
LOG_FILE, LOG_STDERR, LOG_BOTH = "file", "stderr", "both"


def _exporter(text: str) -> str:
    """Parse the type by its name or by its number, as Java does."""
    kind = _TYPES.get(text, text)
    if kind not in _NAMES:
        raise ValueError(f"is not one of {', '.join(_NAMES)}")
    return kind


def _host(text: str) -> str:
    if text:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise ValueError("is not an IP address") from None
    return text


def label_pairs(text: str, valid: re.Pattern[str] = LABEL_NAME) -> tuple[tuple[str, str], ...]:
    """Parse `name:value,name:value` with names that match `valid`; raise a `ValueError` if it is invalid."""
    pairs = [part.strip().partition(":") for part in text.split(",") if part.strip()]
    if len(pairs) > _LABELS_MAX:
        raise ValueError(f"has more than {_LABELS_MAX} labels")
    for name, separator, value in pairs:
        if not separator or not value or not valid.fullmatch(name):
            raise ValueError(f"contains {name!r}, which is not name:value")
    return tuple((name, value) for name, _, value in pairs)


def _labels(text: str) -> str:
    label_pairs(text)
    return text


def _headers(text: str) -> str:
    if not text.isprintable() or not text.isascii():
        raise ValueError("has characters that no header may contain")
    label_pairs(text, HEADER_NAME)
    return text


def _target(text: str) -> str:
    """Check the address of a collector; the host may stand alone, as in Java's settings."""
    if text:
        from urllib.parse import urlsplit

        parts = urlsplit(text if "://" in text else f"https://{text}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("is not an address such as http://127.0.0.1:4317")
        _ = parts.port  # raises a ValueError if it is not a port
    return text


EXPORTER: Setting[str] = Setting(
    "metricsExporterType",
    _exporter,
    DISABLE,
    "`PROM`, `OTLP_GRPC`, `OTLP_HTTP`, `LOG` or `DISABLE`: [metrics](../metrics.md)",
)
PROM_PORT = Setting(
    "metricsPromExporterPort", number_between(0, 65535), 5557, "port of metrics and health; 0 takes a free one"
)
PROM_HOST = Setting(
    "metricsPromExporterHost", _host, "", "address that metrics and health listen on; without it, 127.0.0.1"
)
LABELS = Setting("metricsLabel", _labels, "", "labels of all series, `name:value,name:value`")
IN_DELTA = Setting(
    "metricsInDelta", parse_truth, False, "whether OTLP and `LOG` state changes since the last export instead of totals"
)
CARDINALITY = Setting(
    "metricsOtelCardinalityLimit",
    number_between(1, 1_000_000),
    50_000,
    "maximum series of one family; more are counted in orbitlog_series_dropped_total",
)
QUEUE_LAG = Setting(
    "metricsQueueLag", parse_truth, False, "whether the lag of each queue is exported (Orbitlog's own key)"
)
GRPC_TARGET = Setting(
    "metricsGrpcExporterTarget", _target, "", "collector of `OTLP_GRPC`; `http://HOST:4317` is without TLS"
)
HTTP_TARGET = Setting(
    "metricsHttpExporterTarget",
    _target,
    "",
    "collector of `OTLP_HTTP`, such as `http://HOST:4318` (Orbitlog's own key)",
)
GRPC_HEADERS = Setting("metricsGrpcExporterHeader", _headers, "", "headers for the collector, `name:value,name:value`")
GRPC_TIMEOUT_MS = Setting(
    "metricGrpcExporterTimeOutInMills", number_between(1, 600_000), 3_000, "timeout of one request to the collector"
)
GRPC_INTERVAL_MS = Setting(
    "metricGrpcExporterIntervalInMills", number_between(100, 86_400_000), 60_000, "interval of exports to a collector"
)
LOG_INTERVAL_MS = Setting(
    "metricLoggingExporterIntervalInMills", number_between(100, 86_400_000), 10_000, "interval of exports with `LOG`"
)
BATCH_POINTS_MAX = Setting(
    "metricsExportBatchMaxDataPoints", number_between(1, 1_000_000), 1_000, "maximum data points of one request"
)
LOG_FORMAT = Setting(
    "logFormat", one_of(LOG_TEXT, LOG_JSON), LOG_TEXT, "format of log lines: `text`, or `json` (Orbitlog's own key)"
)
LOG_TO = Setting(
    "logTo",
    one_of(LOG_FILE, LOG_STDERR, LOG_BOTH),
    LOG_FILE,
    "where the log is written: `file` (warnings also on stderr), `stderr` or `both` (Orbitlog's own key)",
)
SLOW_REQUEST_MS = Setting(
    "slowRequestMs",
    number_between(0, 3_600_000),
    500,
    "requests that take longer are logged with their phases; 0 logs none (Orbitlog's own key)",
)

METRICS_SETTINGS: tuple[Setting[Any], ...] = (
    *(EXPORTER, PROM_PORT, PROM_HOST, LABELS, IN_DELTA, CARDINALITY, QUEUE_LAG, GRPC_TARGET, HTTP_TARGET, GRPC_HEADERS),
    *(GRPC_TIMEOUT_MS, GRPC_INTERVAL_MS, LOG_INTERVAL_MS, BATCH_POINTS_MAX, LOG_FORMAT, LOG_TO, SLOW_REQUEST_MS),
)
LOOPBACK = "127.0.0.1"


def check_export(read: Callable[[Setting[Any]], Any]) -> None:
    """Raise a `SettingError` if the chosen export lacks its address or its package; `read` returns a value."""
    kind = read(EXPORTER)
    target: Setting[Any] | None = {OTLP_GRPC: GRPC_TARGET, OTLP_HTTP: HTTP_TARGET}.get(kind)
    if target is not None and not read(target):
        sentence = f"{EXPORTER.key}={kind} needs the address of a collector in {target.key}"
        raise SettingError(sentence, key=EXPORTER.key)
    if kind == OTLP_GRPC:
        from importlib.util import find_spec

        if find_spec("grpc") is None:
            raise SettingError(
                f"{EXPORTER.key}={kind} needs the package grpcio: pip install 'orbitlog[grpc]', or use {OTLP_HTTP} with"
                f" {HTTP_TARGET.key}",
                key=EXPORTER.key,
            )
