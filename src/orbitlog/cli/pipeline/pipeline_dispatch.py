"""`orbitlog pipeline dispatch`: builds queues and index of a running broker's store with a streaming query."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.job_options import master_option, spark_session
from orbitlog.cli.output.display_text import byte_count
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.pipeline.pipeline_options import stop_event
from orbitlog.cli.store_options import store_argument

if TYPE_CHECKING:
    from orbitlog.pipeline.dispatch.dispatch_query import DispatchProgress

_INTERVAL_S = 1.0
_FIELDS = ("event", "epoch", "dispatchedTo", "confirmedTo", "messages", "batches", "waitsFor")


@click.command("dispatch")
@store_argument
@click.option("--once", is_flag=True, help="Dispatch all current messages, hand the lease back, and exit.")
@master_option
@output_options
def command(*, store: Path, once: bool, master: str, output: Output) -> None:
    """Dispatch for a running broker: build its queues and index from its log.

    The broker must offer dispatch (orbitlog up --dispatch spark). One process at a time holds the lease. It is handed
    back when the broker recalls it and when this command is interrupted or terminated; after a kill, the next holder
    resumes at the last mark. The command exits when the broker does; beside a member of a replica group,
    when that is gone for half a minute."""
    output.check(_FIELDS)
    from orbitlog.pipeline.dispatch.dispatch_query import DispatchQuery, require_broker

    require_broker(store)
    printer = _ProgressPrinter(store, output)
    with spark_session(master, "dispatch") as spark:
        stop = stop_event()
        query = DispatchQuery(spark, store, on_progress=printer.show)
        if once:
            printer.show(query.run_once())
        else:
            query.run(stop)
    printer.end()


class _ProgressPrinter:
    """Prints changes of the lease at once, and progress once a second."""

    def __init__(self, store: Path, output: Output) -> None:
        self._store = store
        self._output = output
        self._last: DispatchProgress | None = None
        self._printed_s = 0.0

    def show(self, progress: DispatchProgress) -> None:
        before, self._last = self._last, progress
        if before is None or (before.epoch, before.waits_for) != (progress.epoch, progress.waits_for):
            self._event(progress)
        elif time.monotonic() - self._printed_s >= _INTERVAL_S:
            self._line(progress)

    def _event(self, progress: DispatchProgress) -> None:
        self._printed_s = time.monotonic()
        if not self._output.is_table:
            self._row("waiting" if progress.waits_for else "taken", progress)
        elif progress.waits_for:
            click.echo(f"waiting: {progress.waits_for}")
        else:
            click.echo(f"dispatching {self._store} from {progress.dispatched_to}, epoch {progress.epoch}")
        sys.stdout.flush()

    def _line(self, progress: DispatchProgress) -> None:
        self._printed_s = time.monotonic()
        if not self._output.is_table:
            self._row("progress", progress)
            sys.stdout.flush()
        elif sys.stderr.isatty():
            lag = byte_count(max(progress.confirmed_to - progress.dispatched_to, 0))
            text = f"{progress.messages:,} messages in {progress.batches:,} batches, lag {lag}"
            click.echo(f"\r{text:<70}", nl=False, err=True)

    def end(self) -> None:
        """Print the totals."""
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
