"""`orbitlog group`: consumer groups of a running cluster, their progress and members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster.cmd_offsets import reset_offsets, show_progress
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.cluster_names import all_groups
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.name_completion import group_argument
from orbitlog.cli.output.display_text import printable
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.formats.tables.group_config import GroupConfig

_CONFIG_COLUMNS = (
    Column("group"),
    Column("brokerName"),
    Column("consume"),
    Column("broadcast"),
    Column("orderly"),
    Column("retryQueues", right=True),
    Column("retryTimesMax", right=True),
)
_MEMBER_COLUMNS = (
    Column("clientId"),
    Column("address"),
    Column("language"),
    Column("brokerName"),
    Column("consumeType"),
    Column("messageModel"),
    Column("subscriptions"),
)
_NO_MEMBER = 206


@click.group(
    "group", help="List, show, create, change and delete consumer groups of a running cluster; reset their offsets."
)
def command() -> None:
    """The group."""


# `offsets reset` and `group reset` are the same command: users look for it under both.
command.add_command(reset_offsets)


@command.command("list", help="List consumer groups. System groups are hidden unless --all.")
@click.option("--all", "with_system", is_flag=True, help="Also list system groups.")
@cluster_options
def list_groups(*, with_system: bool, cluster: Cluster, output: Output) -> None:
    from orbitlog.cli.user_names import user_groups

    groups = run_with_admin(cluster, all_groups)
    shown = groups if with_system else user_groups(groups)
    show_rows([Column("group")], [{"group": group} for group in shown], output)


@command.command("show", help="Show the offsets and lag of a group by queue, its configuration or its members.")
@group_argument()
@click.option("--topic", help="Only this topic.")
@click.option("--config", "with_config", is_flag=True, help="Show its configuration at each broker.")
@click.option("--members", "with_members", is_flag=True, help="Show its connected members.")
@cluster_options
def show_group(
    *, group: str, topic: str | None, with_config: bool, with_members: bool, cluster: Cluster, output: Output
) -> None:
    if with_config:
        rows = run_with_admin(cluster, lambda admin: _configs(admin, group))
        if not rows:
            raise Problem(f"unknown group {group}; list groups with `orbitlog group list`")
        show_rows(_CONFIG_COLUMNS, rows, output)
    elif with_members:
        show_rows(_MEMBER_COLUMNS, run_with_admin(cluster, lambda admin: _members(admin, group)), output)
    else:
        show_progress(group, topic, cluster, output)


async def _configs(admin: Administration, group: str) -> list[dict[str, Any]]:
    from orbitlog.client.admin.broker_admin import BrokerAdmin

    rows = []
    for name, address in (await admin.brokers()).items():
        config = await BrokerAdmin(admin.link).group(address, group)
        if config is not None:
            rows.append(_config_row(name, config))
    return rows


def _config_row(broker_name: str, config: GroupConfig) -> dict[str, Any]:
    return {
        "group": config.group,
        "brokerName": broker_name,
        "consume": config.consume_enabled,
        "broadcast": config.consume_broadcast_enabled,
        "orderly": config.consume_orderly,
        "retryQueues": config.retry_queue_count,
        "retryTimesMax": config.retry_times_max,
    }


async def _members(admin: Administration, group: str) -> list[dict[str, Any]]:
    from orbitlog.client.admin.group_admin import GroupAdmin
    from orbitlog.errors import BrokerRefused

    rows: list[dict[str, Any]] = []
    for name, address in (await admin.brokers()).items():
        try:
            connected = await GroupAdmin(admin.link).connections(group, address)
        except BrokerRefused as error:
            if error.code != _NO_MEMBER:
                raise
            continue
        subscriptions = [
            f"{subscription.topic}: {subscription.expression}" for subscription in connected.subscriptions.values()
        ]
        for connection in connected.connections:
            rows.append(
                {
                    "clientId": printable(connection.client_id),
                    "address": connection.client_address,
                    "language": connection.language,
                    "brokerName": name,
                    "consumeType": connected.consume_type,
                    "messageModel": connected.message_model,
                    "subscriptions": subscriptions,
                }
            )
    return rows


@command.command(
    "create", help="Create a consumer group at every broker; needed if brokers do not create groups automatically."
)
@group_argument()
@click.option(
    "--retry-times",
    type=click.IntRange(0),
    default=16,
    show_default=True,
    help="Retries before a message becomes a dead letter.",
)
@click.option("--retry-queues", type=click.IntRange(1), default=1, show_default=True, help="Number of retry queues.")
@click.option("--orderly", is_flag=True, help="Consume in order (5.x).")
@click.option("--broadcast/--no-broadcast", default=True, show_default=True, help="Allow broadcast consumption.")
@cluster_options
def create_group(
    *,
    group: str,
    retry_times: int,
    retry_queues: int,
    orderly: bool,
    broadcast: bool,
    cluster: Cluster,
    output: Output,
) -> None:
    async def work(admin: Administration) -> list[dict[str, Any]]:
        from orbitlog.formats.names import check_group
        from orbitlog.formats.tables.group_config import GroupConfig

        config = GroupConfig(
            check_group(group),
            retry_times_max=retry_times,
            retry_queue_count=retry_queues,
            consume_orderly=orderly,
            consume_broadcast_enabled=broadcast,
        )
        await admin.create_group(config)
        return await _configs(admin, group)

    show_rows(_CONFIG_COLUMNS, run_with_admin(cluster, work), output)


@command.command("update", help="Change a consumer group at every broker; options that are not given stay unchanged.")
@group_argument()
@click.option("--retry-times", type=click.IntRange(0), help="Retries before a message becomes a dead letter.")
@click.option("--retry-queues", type=click.IntRange(1), help="Number of retry queues.")
@click.option("--orderly/--no-orderly", default=None, help="Consume in order (5.x).")
@click.option("--broadcast/--no-broadcast", default=None, help="Allow broadcast consumption.")
@click.option("--consume/--no-consume", default=None, help="Allow the group to consume.")
@cluster_options
def update_group(*, group: str, cluster: Cluster, output: Output, **given: Any) -> None:
    names = {
        "retry_times": "retry_times_max",
        "retry_queues": "retry_queue_count",
        "orderly": "consume_orderly",
        "broadcast": "consume_broadcast_enabled",
        "consume": "consume_enabled",
    }
    changes = {names[name]: value for name, value in given.items() if value is not None}
    if not changes:
        raise WrongUse("nothing to change; give --retry-times, --consume or another of the options")

    async def work(admin: Administration) -> list[dict[str, Any]]:
        from dataclasses import replace

        from orbitlog.client.admin.broker_admin import BrokerAdmin

        brokers = BrokerAdmin(admin.link)
        for address in (await admin.brokers()).values():
            config = await brokers.group(address, group)
            if config is not None:
                await brokers.put_group(address, replace(config, **changes))
        return await _configs(admin, group)

    rows = run_with_admin(cluster, work)
    if not rows:
        raise Problem(f"unknown group {group}; create it with `orbitlog group create {group}`")
    show_rows(_CONFIG_COLUMNS, rows, output)


@command.command("delete", help="Delete a consumer group and its offsets at every broker.")
@group_argument()
@click.option("--keep-offsets", is_flag=True, help="Keep its offsets, for a group of the same name.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_options
def delete_group(*, group: str, keep_offsets: bool, yes: bool, cluster: Cluster, output: Output) -> None:
    if not yes:
        click.confirm(f"Delete group {group}?", abort=True, err=True)
    run_with_admin(cluster, lambda admin: admin.delete_group(group, forget_offsets=not keep_offsets))
    show_rows([Column("group"), Column("deleted")], [{"group": group, "deleted": True}], output)
