"""OTLP senders: carry metrics to a collector over HTTP or gRPC, or into a log file. They run in a thread of their own.

HTTP needs no library besides Python's own; gRPC needs the extra `grpc`, which is imported with the first export.
"""

from __future__ import annotations

import gzip
import http.client
import logging
import ssl
from collections.abc import Callable, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

import orjson

from orbitlog.observe.otlp_metrics import Json
from orbitlog.observe.otlp_protobuf import encode_request

_RETRY_STATUSES = frozenset((429, 502, 503, 504))
_ATTEMPTS = 3
_PAUSE_SECONDS = 1.0
_PAUSE_SECONDS_MAX = 10.0
_ANSWER_BYTES_MAX = 64 * 1024
_METRICS_PATH = "/v1/metrics"
_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_LOG_BYTES_MAX = 64 * 1024 * 1024
_LOG_FILES_KEPT = 5
_PORTS = {"http": 80, "https": 443}


class ExportFailed(Exception):
    """An export that no collector accepted; the text is for the log."""


class Sender(Protocol):
    """Carries one request; called in one thread at a time."""

    def send(self, request: Json) -> None:
        """Send a request; raise `ExportFailed`."""
        ...

    def close(self) -> None: ...


def split_target(text: str) -> SplitResult:
    """Parse the address of a collector; raise a `ValueError` if it is not a URL of HTTP with a host."""
    parts = urlsplit(text)
    if parts.scheme not in _PORTS or not parts.hostname or parts.username is not None:
        raise ValueError("is not an address such as http://127.0.0.1:4318")
    _ = parts.port  # raises a ValueError if it is not a port
    return parts


class HttpSender:
    """Posts requests as JSON to `<target>/v1/metrics`; retries when the collector asks for it."""

    def __init__(
        self,
        target: str,
        headers: Sequence[tuple[str, str]],
        timeout_s: float,
        sleep: Callable[[float], object],
    ) -> None:
        self._target = split_target(target)
        path = self._target.path.rstrip("/")
        self._path = path if path.endswith(_METRICS_PATH) else f"{path}{_METRICS_PATH}"
        self._headers = {**dict(headers), "Content-Type": "application/json", "Content-Encoding": "gzip"}
        self._timeout_s = timeout_s
        self._sleep = sleep

    def send(self, request: Json) -> None:
        body = gzip.compress(orjson.dumps(request), 1)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                status, retry_after = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                raise ExportFailed(f"{self._target.netloc} did not accept metrics: {error}") from error
            if 200 <= status < 300:
                return
            if status not in _RETRY_STATUSES or attempt == _ATTEMPTS:
                raise ExportFailed(f"{self._target.netloc} refused metrics with status {status}")
            self._sleep(min(retry_after, _PAUSE_SECONDS_MAX))

    def _post(self, body: bytes) -> tuple[int, float]:
        target = self._target
        host, port = target.hostname or "", target.port or _PORTS[target.scheme]
        connection: http.client.HTTPConnection
        if target.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        try:
            connection.request("POST", self._path, body, self._headers)
            answer = connection.getresponse()
            answer.read(_ANSWER_BYTES_MAX)
            after = answer.getheader("Retry-After", "")
            return answer.status, float(after) if after.isdecimal() and len(after) < 6 else _PAUSE_SECONDS
        finally:
            connection.close()

    def close(self) -> None:
        """Each request has a connection of its own."""


class GrpcSender:
    """Calls the metrics service of a collector; a target with `http://` has no TLS."""

    def __init__(self, target: str, headers: Sequence[tuple[str, str]], timeout_s: float) -> None:
        self._target = split_target(target if target.startswith("http") else f"https://{target}")
        self._headers = [(name.lower(), value) for name, value in headers]
        self._timeout_s = timeout_s
        self._channel: Any = None

    def send(self, request: Json) -> None:
        import grpc  # the extra `grpc`; checked at the start of the server

        if self._channel is None:
            address = f"{self._target.hostname}:{self._target.port or _PORTS[self._target.scheme]}"
            is_secured = self._target.scheme == "https"
            self._channel = (
                grpc.secure_channel(address, grpc.ssl_channel_credentials())
                if is_secured
                else grpc.insecure_channel(address)
            )
        export = self._channel.unary_unary(_EXPORT)  # bytes in, bytes out
        try:
            export(encode_request(request), timeout=self._timeout_s, metadata=self._headers)
        except grpc.RpcError as error:
            code = error.code().name if hasattr(error, "code") else "UNKNOWN"
            raise ExportFailed(f"{self._target.netloc} did not accept metrics: {code}") from error

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()


class LogSender:
    """Writes each request as one line of JSON to a file that is rotated by size."""

    def __init__(self, path: Path) -> None:
        self._handler = RotatingFileHandler(
            path, maxBytes=_LOG_BYTES_MAX, backupCount=_LOG_FILES_KEPT, encoding="utf-8", delay=True
        )
        self._error: BaseException | None = None
        self._handler.handleError = self._fail  # type: ignore[method-assign] # else it prints a traceback

    def send(self, request: Json) -> None:
        self._error = None
        self._handler.emit(logging.LogRecord("metrics", logging.INFO, "", 0, orjson.dumps(request).decode(), (), None))
        if self._error is not None:
            raise ExportFailed(f"could not write metrics to {self._handler.baseFilename}: {self._error}")

    def _fail(self, record: logging.LogRecord) -> None:
        import sys

        self._error = sys.exc_info()[1]

    def close(self) -> None:
        """Close the file."""
        self._handler.close()
