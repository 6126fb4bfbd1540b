"""`orbitlog cluster`: brokers and name servers, and whether they answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster_command import ask_cluster, cluster_options, show_rows
from orbitlog.cli.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.rocketmq import RocketMQ


@click.group("cluster", help="Show the brokers of a running cluster, and whether they answer.")
def command() -> None:
    """The group."""


@command.command("list", help="List the brokers that the name server knows.")
@cluster_options
def list_brokers(*, address: str, as_json: bool) -> None:
    info = ask_cluster(address, lambda mq: mq.admin.cluster())
    rows = [
        {"cluster": data.cluster, "brokerName": name, "brokerId": broker_id, "address": where}
        for name, data in sorted(info.brokers.items())
        for broker_id, where in sorted(data.addresses.items())
    ]
    columns = [Column("cluster"), Column("brokerName"), Column("brokerId", right=True), Column("address")]
    show_rows(columns, rows, as_json=as_json)


@command.command("health", help="Ask every broker something, and show how long it took. Exit 1 if one does not answer.")
@cluster_options
@click.pass_context
def health(context: click.Context, *, address: str, as_json: bool) -> None:
    from orbitlog.errors import OrbitlogError

    async def work(mq: RocketMQ) -> list[dict[str, Any]]:
        rows = []
        for name, where in (await mq.admin.brokers()).items():
            started = time.perf_counter()
            try:
                topics = len(await mq.admin.topic_configs(where))
                problem = None
            except OrbitlogError as error:
                topics, problem = None, str(error)
            milliseconds = round((time.perf_counter() - started) * 1000, 1)
            rows.append(
                {"brokerName": name, "address": where, "topics": topics, "ms": milliseconds, "problem": problem}
            )
        return rows

    rows = ask_cluster(address, work)
    columns = [Column("brokerName"), Column("address"), Column("topics", right=True), Column("ms", right=True)]
    show_rows([*columns, Column("problem")], rows, as_json=as_json)
    if not rows or any(row["problem"] for row in rows):
        context.exit(1)
