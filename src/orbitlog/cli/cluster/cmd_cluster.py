"""`orbitlog cluster`: lists brokers and checks the health of brokers and name servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration

_HEALTH_COLUMNS = (
    Column("check"),
    Column("name"),
    Column("address"),
    Column("state"),
    Column("value"),
    Column("ms", right=True),
    Column("problem"),
)


@click.group("cluster", help="List the brokers of a running cluster and check their health.")
def command() -> None:
    """The group."""


@command.command("list", help="List the brokers that are registered with the name server.")
@cluster_options
def list_brokers(*, cluster: Cluster, output: Output) -> None:
    info = run_with_admin(cluster, lambda admin: admin.cluster())
    rows = [
        {"cluster": data.cluster, "brokerName": name, "brokerId": broker_id, "address": address}
        for name, data in sorted(info.brokers.items())
        for broker_id, address in sorted(data.addresses.items())
    ]
    columns = [Column("cluster"), Column("brokerName"), Column("brokerId", right=True), Column("address")]
    show_rows(columns, rows, output)


@command.command(
    "health",
    help="""Check name servers, brokers, disks, flush and dispatch lag, and stuck consumer groups.

    Prints one row per check. Exit 1 if a check is a problem, with --strict also for a warning. A group with members is
    stuck if its next message has waited longer than --stuck-after; a group without members that lags is a warning.""",
)
@click.option(
    "--disk-max", type=click.FloatRange(0, 1), default=0.85, show_default=True, help="Maximum used fraction of a disk."
)
@click.option(
    "--lag-max", type=click.IntRange(0), default=256, show_default=True, help="Maximum flush or dispatch lag in MiB."
)
@click.option(
    "--stuck-after",
    type=click.FloatRange(0),
    default=600,
    show_default=True,
    help="Maximum wait of a group's next message in seconds.",
)
@click.option("--strict", is_flag=True, help="Also exit with 1 for warnings.")
@cluster_options
@click.pass_context
def health(
    context: click.Context,
    *,
    disk_max: float,
    lag_max: int,
    stuck_after: float,
    strict: bool,
    cluster: Cluster,
    output: Output,
) -> None:
    async def work(admin: Administration) -> list[dict[str, Any]]:
        from orbitlog.cli.cluster.health_checks import Limits, all_checks

        limits = Limits(disk_ratio=disk_max, lag_bytes=lag_max << 20, stuck_seconds=stuck_after)
        return [result.row() async for result in all_checks(admin, limits)]

    rows = run_with_admin(cluster, work)
    show_rows(_HEALTH_COLUMNS, rows, output)
    bad = ("problem", "warning") if strict else ("problem",)
    if any(row["state"] in bad for row in rows):
        context.exit(1)
