"""`orbitlog pipeline dispatch`: queues and index of a running broker's store, kept up to date by a streaming query."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.job_options import master_option, spark_session
from orbitlog.cli.output.display_text import byte_count
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import store_argument

if TYPE_CHECKING:
    from orbitlog.pipeline.dispatch.dispatch_query import DispatchProgress

_INTERVAL_S = 1.0
_FIELDS = ("event", "epoch", "dispatchedTo", "confirmedTo", "messages", "batches", "waitsFor")


@click.command("dispatch")
@store_argument
@click.option("--once", is_flag=True, help="Dispatch what is there now, hand back, and end.")
@master_option
@output_options
def command(*, store: Path, once: bool, master: str, output: Output) -> None:
    """Dispatch a running broker's store: queues and index from its log.

    The broker must let others dispatch (orbitlog up --dispatch spark); it serves what is dispatched here. One process
    at a time has the lease. It is handed back when the broker asks for it and when this command is interrupted or
    terminated; if it is killed, the next owner goes on at the last mark. It ends when the broker is gone."""
    output.check(_FIELDS)
    from orbitlog.pipeline.dispatch.dispatch_query import DispatchQuery, require_broker

    require_broker(store)
    shown = _Shown(store, output)
    stop = threading.Event()
    with spark_session(master, "dispatch") as spark:
        # After Spark has started: it has handlers of its own, which cancel jobs.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        query = DispatchQuery(spark, store, on_progress=shown.tell)
        if once:
            shown.tell(query.run_once())
        else:
            query.run(stop)
    shown.end()


class _Shown:
    """Says who dispatches now, and once a second how far it is."""

    def __init__(self, store: Path, output: Output) -> None:
        self._store = store
        self._output = output
        self._last: DispatchProgress | None = None
        self._told_s = 0.0

    def tell(self, progress: DispatchProgress) -> None:
        before, self._last = self._last, progress
        if before is None or (before.epoch, before.waits_for) != (progress.epoch, progress.waits_for):
            self._event(progress)
        elif time.monotonic() - self._told_s >= _INTERVAL_S:
            self._line(progress)

    def _event(self, progress: DispatchProgress) -> None:
        self._told_s = time.monotonic()
        if not self._output.is_table:
            self._row("waiting" if progress.waits_for else "taken", progress)
        elif progress.waits_for:
            click.echo(f"waiting: {progress.waits_for}")
        else:
            click.echo(f"dispatching {self._store} from {progress.dispatched_to}, epoch {progress.epoch}")
        sys.stdout.flush()

    def _line(self, progress: DispatchProgress) -> None:
        self._told_s = time.monotonic()
        if not self._output.is_table:
            self._row("progress", progress)
            sys.stdout.flush()
        elif sys.stderr.isatty():
            behind = byte_count(max(progress.confirmed_to - progress.dispatched_to, 0))
            text = f"{progress.messages:,} messages in {progress.batches:,} batches, {behind} behind"
            click.echo(f"\r{text:<70}", nl=False, err=True)

    def end(self) -> None:
        """Say what was done in all."""
        last = self._last
        if last is None:
            return
        if not self._output.is_table:
            self._row("done", last)
        else:
            click.echo(f"dispatched {last.messages:,} messages in {last.batches:,} batches, up to {last.dispatched_to}")

    def _row(self, event: str, progress: DispatchProgress) -> None:
        fields: dict[str, Any] = {
            "event": event,
            "epoch": progress.epoch,
            "dispatchedTo": progress.dispatched_to,
            "confirmedTo": progress.confirmed_to,
            "messages": progress.messages,
            "batches": progress.batches,
        }
        if progress.waits_for:
            fields["waitsFor"] = progress.waits_for
        self._output.write(_FIELDS, fields)
