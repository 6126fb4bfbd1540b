"""`orbitlog replica`: shows replica groups with automatic failover, hands them over, and forces elections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.admin.replica_groups import GroupView, MemberView

_STATUS = (
    Column("brokerName"),
    Column("memberId", right=True),
    Column("role"),
    Column("epoch", right=True),
    Column("inSync"),
    Column("logEnd", right=True),
    Column("confirmedTo", right=True),
    Column("lagBytes", right=True),
    Column("keptMessages", right=True),
    Column("problem"),
)
_MEMBERS = (Column("brokerName"), Column("memberId", right=True), Column("address"), Column("alive"), Column("inSync"))


@click.group("replica", help="Show replica groups with automatic failover, hand a group over, and force an election.")
def command() -> None:
    """The group."""


@command.command(
    "status",
    help="""Show the members of replica groups: role, epoch, end of the log, lag, and messages that they gave up.

    Exit 1 if a group has no master that serves, or a member that is alive is not in sync.""",
)
@click.argument("broker_name", required=False)
@cluster_options
def status(*, broker_name: str | None, cluster: Cluster, output: Output) -> None:
    groups = _groups(cluster, broker_name)
    rows = [_status_row(group, member) for group in groups for member in group.members]
    show_rows(_STATUS, rows, output)
    for group in groups:
        if group.master is None:
            raise Problem(f"replica group {group.name} has no master that is alive")
        role = next((member.role for member in group.members if member.member_id == group.master), "unknown")
        if role != "master":
            raise Problem(f"replica group {group.name}: member {group.master} is elected but no master yet: {role}")
        behind = [member.member_id for member in group.members if member.is_alive and not member.is_in_sync]
        if behind:
            raise Problem(
                f"replica group {group.name}: members {', '.join(map(str, behind))} are alive but not in sync"
            )


@command.command("members", help="List the members of replica groups that the coordinator knows, and their addresses.")
@click.argument("broker_name", required=False)
@cluster_options
def members(*, broker_name: str | None, cluster: Cluster, output: Output) -> None:
    rows = [
        {
            "brokerName": group.name,
            "memberId": member.member_id,
            "address": member.address,
            "alive": member.is_alive,
            "inSync": member.is_in_sync,
        }
        for group in _groups(cluster, broker_name)
        for member in group.members
    ]
    show_rows(_MEMBERS, rows, output)


@command.command(
    "handover",
    help="""Make another in-sync member the master of BROKER_NAME, without loss.

    The master refuses sends, waits until the member has everything, and names it. Producers retry for about a
    second.""",
)
@click.argument("broker_name")
@click.option("--to", "member_id", type=click.IntRange(1), required=True, help="Member that becomes the master.")
@click.option("--timeout", "seconds", type=click.FloatRange(1), default=30, show_default=True, help="Seconds to wait.")
@cluster_options
def handover(*, broker_name: str, member_id: int, seconds: float, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> GroupView:
        from orbitlog.client.admin.replica_groups import ReplicaGroups

        return await ReplicaGroups(admin).hand_over(broker_name, member_id, seconds)

    _show_elected(run_with_admin(cluster, work), output)


@command.command(
    "elect",
    help="""Elect a member that is not in sync, although acknowledged messages of other members may be lost.

    Only if all in-sync members are lost for good: members elect a master from the in-sync set by themselves. Needs
    --force and --accept-loss. Start the other members with empty stores afterwards.""",
)
@click.argument("broker_name")
@click.option("--member", "member_id", type=click.IntRange(1), required=True, help="Member to elect.")
@click.option("--force", is_flag=True, help="Elect it although it is not in sync.")
@click.option("--accept-loss", is_flag=True, help="Accept that acknowledged messages are lost.")
@click.option("--address", "at", metavar="HOST:PORT", help="Address of the member, if no name server knows it.")
@click.option("--timeout", "seconds", type=click.FloatRange(1), default=30, show_default=True, help="Seconds to wait.")
@cluster_options
def elect(
    *,
    broker_name: str,
    member_id: int,
    force: bool,
    accept_loss: bool,
    at: str | None,
    seconds: float,
    cluster: Cluster,
    output: Output,
) -> None:
    if not (force and accept_loss):
        raise WrongUse(
            "a forced election can lose acknowledged messages: add --force --accept-loss, or use `orbitlog replica"
            " handover`, which loses none"
        )

    async def work(admin: Administration) -> GroupView:
        from orbitlog.client.admin.replica_groups import ReplicaGroups

        return await ReplicaGroups(admin).force(broker_name, member_id, at, seconds)

    _show_elected(run_with_admin(cluster, work), output)


def _groups(cluster: Cluster, broker_name: str | None) -> list[GroupView]:
    async def work(admin: Administration) -> list[GroupView]:
        from orbitlog.client.admin.replica_groups import ReplicaGroups

        return await ReplicaGroups(admin).groups(broker_name)

    groups = run_with_admin(cluster, work)
    if not groups:
        what = f"{broker_name} is not a replica group" if broker_name else "no broker is a member of a replica group"
        raise Problem(f"{what}: set replicaCoordinator and replicaMemberId (docs/replication.md)")
    return groups


def _status_row(group: GroupView, member: MemberView) -> dict[str, Any]:
    return {
        "brokerName": group.name,
        "memberId": member.member_id,
        "role": member.role,
        "epoch": member.epoch,
        "inSync": member.is_in_sync,
        "logEnd": member.log_end,
        "confirmedTo": member.confirmed_to,
        "lagBytes": group.lag_bytes(member),
        "keptMessages": member.kept_messages,
        "problem": member.problem,
    }


def _show_elected(group: GroupView, output: Output) -> None:
    rows = [{"brokerName": group.name, "memberId": group.master, "epoch": group.epoch}]
    show_rows((Column("brokerName"), Column("memberId", right=True), Column("epoch", right=True)), rows, output)
