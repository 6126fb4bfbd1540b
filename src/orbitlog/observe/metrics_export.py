"""Periodic export of metrics: collects on the event loop in steps, encodes and sends in a thread.

A failure is a condition of the server until the next success; metrics are never kept for later.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orbitlog.observe import metrics_settings as keys
from orbitlog.observe.conditions import EXPORT_FAILING, Conditions
from orbitlog.observe.exposition import Exposition
from orbitlog.observe.metric import Family, Row
from orbitlog.observe.metric_table import EXPORTS
from orbitlog.observe.otlp_metrics import MetricPoints, OtlpEncoder
from orbitlog.observe.otlp_senders import ExportFailed, GrpcSender, HttpSender, LogSender, Sender
from orbitlog.settings.atomic_file import create_directory
from orbitlog.settings.setting import Setting

log = logging.getLogger(__name__)

_STOP_SECONDS = 5.0


class MetricsExport:
    """Exports the metrics of one server at an interval, and the last values when it stops."""

    def __init__(
        self,
        exposition: Exposition,
        encoder: OtlpEncoder,
        sender: Sender,
        *,
        interval_s: float,
        points_max: int,
        conditions: Conditions | None = None,
    ) -> None:
        self._exposition = exposition
        self._encoder = encoder
        self._sender = sender
        self._interval_s = interval_s
        self._points_max = points_max
        self._task: asyncio.Task[None] | None = None
        self._conditions = conditions or Conditions()
        self.counts = {"success": 0, "failure": 0}
        exposition.readers.append(self._read)

    def _read(self, _: int) -> Any:
        yield Family(EXPORTS, [Row(EXPORTS.text(result), count) for result, count in self.counts.items()])

    async def start(self) -> None:
        """Export from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="orbitlog metrics export")

    async def stop(self) -> None:
        """Export the last values, for at most some seconds, and close."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self.export()
        except TimeoutError:
            log.warning("could not export the last metrics within %g s", _STOP_SECONDS)
        await asyncio.to_thread(self._sender.close)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.export()

    async def export(self) -> None:
        """Collect and send all metrics once."""
        collected = await self._exposition.collected()
        try:
            await asyncio.to_thread(self._send, collected, time.time_ns())
        except ExportFailed as error:
            self.counts["failure"] += 1
            self._conditions.set(EXPORT_FAILING, str(error))
            return
        self.counts["success"] += 1
        self._conditions.set(EXPORT_FAILING, "")

    def _send(self, collected: Sequence[MetricPoints], now_ns: int) -> None:
        for request in self._encoder.requests(collected, now_ns, self._points_max):
            self._sender.send(request)


def make_export(
    exposition: Exposition,
    read: Callable[[Setting[Any]], Any],
    *,
    shared: str,
    instance: str,
    log_path: Path,
    conditions: Conditions,
) -> MetricsExport:
    """Return the export that settings ask for; `read` returns the value of a setting, `instance` names this server."""
    kind = read(keys.EXPORTER)
    encoder = OtlpEncoder(
        shared,
        (("service.name", "orbitlog"), ("service.instance.id", instance)),
        in_delta=read(keys.IN_DELTA),
        started_ns=time.time_ns(),
    )
    headers = keys.label_pairs(read(keys.GRPC_HEADERS), keys.HEADER_NAME)
    timeout_s = read(keys.GRPC_TIMEOUT_MS) / 1000
    interval_ms = read(keys.GRPC_INTERVAL_MS)
    sender: Sender
    if kind == keys.LOG:
        interval_ms = read(keys.LOG_INTERVAL_MS)
        create_directory(log_path.parent)
        sender = LogSender(log_path)
    elif kind == keys.OTLP_HTTP:
        # A pause between retries ends with the process: the thread must not outlive a stop by much.
        sender = HttpSender(read(keys.HTTP_TARGET), headers, timeout_s, partial(threading.Event().wait))
    else:
        sender = GrpcSender(read(keys.GRPC_TARGET), headers, timeout_s)
    points_max = read(keys.BATCH_POINTS_MAX)
    return MetricsExport(
        exposition, encoder, sender, interval_s=interval_ms / 1000, points_max=points_max, conditions=conditions
    )
