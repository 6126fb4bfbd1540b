"""`orbitlog doctor explain`: one screen about what a store is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.output.display_text import byte_count, local_time, printable
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, settings_options, store_argument

if TYPE_CHECKING:
    from orbitlog.doctor.explanation import Explanation

_FIELDS = (
    *("store", "compat", "signs", "segmentBytes", "segments", "logStart", "logEnd", "firstMs", "lastMs", "storeHosts"),
    *("wasClosed", "bytesPerDay", "retentionHours", "indexFiles", "groups", "pendingDelays", "pendingTransactions"),
    *("pendingTimers", "dledger", "notInQueues", "topics"),
)
_TOPICS_SHOWN = 10
_HOSTS_SHOWN = 4


@click.command("explain")
@store_argument
@output_options
@settings_options
def command(*, store: Path, output: Output, config_path: Path | None, assignments: tuple[str, ...]) -> None:
    """Show versions, topics, times and pending messages of a store.

    It reads queues, config and a few records, so the size of the log does not matter. Of the log it reads only what
    follows the last message that a queue has."""
    output.check(_FIELDS)
    settings = read_settings(config_path, assignments)
    from orbitlog.doctor.explanation import explain

    found = explain(store, settings)
    if not output.is_table:
        output.write(_FIELDS, found.as_object())
        return
    for name, value in _lines(found):
        click.echo(f"{name:<14}{value}")


def _lines(found: Explanation) -> list[tuple[str, str]]:
    signs = f", for it has {', '.join(found.signs)}" if found.signs else ""
    times = "no message"
    if found.first_ms is not None and found.last_ms is not None:
        times = f"{local_time(found.first_ms)} to {local_time(found.last_ms)}"
    growth = "unknown" if found.bytes_per_day is None else f"{byte_count(found.bytes_per_day)} a day"
    hours = ", ".join(f"{hour:02d}" for hour in found.retention.delete_hours)
    lines = [
        ("store", found.store),
        ("written by", f"a broker of {found.compat}{signs}"),
        ("brokers", ", ".join(found.store_hosts[:_HOSTS_SHOWN]) or "unknown"),
        ("closed", "yes" if found.was_closed else "no: a broker uses it, or was killed"),
        ("messages", times),
        (
            "log",
            f"{byte_count(found.log_bytes)} in {found.segments} segments of {byte_count(found.segment_bytes)},"
            f" physical offset {found.log_start} to {found.log_end}",
        ),
        *([("DLedger", found.dledger)] if found.dledger else []),
        *([("not queued", _not_in_queues(found))] if found.not_in_queues else []),
        ("growth", growth),
        (
            "retention",
            f"{found.retention.reserved_hours} hours, deleted at {hours} o'clock (as configured, or Java's default)",
        ),
        ("index", f"{found.index_files} files"),
        ("groups", f"{found.groups} with committed offsets"),
        ("delays", _delays(found)),
        ("transactions", f"{found.pending_transactions} half messages not checked yet"),
        ("timers", f"{found.pending_timers} messages not on the timer wheel yet"),
    ]
    for one in found.topics[:_TOPICS_SHOWN]:
        name = printable(one.topic)
        lines.append(
            ("topic", f"{byte_count(one.stored_bytes):>10} {one.messages:>10} messages  {one.queues:>3} queues  {name}")
        )
    more = len(found.topics) - _TOPICS_SHOWN
    if more > 0:
        lines.append(("", f"and {more} more topics"))
    return lines


def _not_in_queues(found: Explanation) -> str:
    return f"the last {found.not_in_queues} messages; counted below; `orbitlog doctor check` states what to do"


def _delays(found: Explanation) -> str:
    if not found.pending_delays:
        return "none pending"
    return ", ".join(f"{count} at level {level}" for level, count in found.pending_delays.items())
