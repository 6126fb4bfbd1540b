"""`orbitlog transactions`: lists half messages that are neither committed nor rolled back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.output.display_text import printable
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.admin.inspection import PendingTransaction

_COLUMNS = (
    Column("transactionId"),
    Column("topic"),
    Column("producerGroup"),
    Column("ageSeconds", right=True),
    Column("checks", right=True),
    Column("brokerName"),
    Column("queueOffset", right=True),
)


@click.command(
    "transactions",
    help="List pending transactions with their age and number of checks.",
)
@click.option("--topic", help="Only transactions of this topic.")
@click.option("--group", help="Only transactions of this producer group.")
@click.option(
    "--older-than", type=click.FloatRange(min=0), default=0, help="Only transactions older than this many seconds."
)
@cluster_options
def command(*, topic: str | None, group: str | None, older_than: float, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> list[dict[str, Any]]:
        from orbitlog.client.admin.inspection import Inspection

        now_ms = time.time_ns() // 1_000_000
        return [_row(each) async for each in Inspection(admin).pending_transactions(now_ms)]

    rows = [
        row
        for row in run_with_admin(cluster, work)
        if (topic is None or row["topic"] == topic)
        and (group is None or row["producerGroup"] == group)
        and row["ageSeconds"] >= older_than
    ]
    show_rows(_COLUMNS, rows, output)


def _row(pending: PendingTransaction) -> dict[str, Any]:
    properties = pending.half.properties
    return {
        "transactionId": printable(pending.half.message_id),
        "topic": printable(properties.get("REAL_TOPIC", "")),
        "producerGroup": printable(properties.get("PGROUP", "")),
        "ageSeconds": max(pending.age_ms, 0) // 1000,
        "checks": pending.check_count,
        "brokerName": pending.queue.broker_name,
        "queueOffset": pending.half.queue_offset,
    }
