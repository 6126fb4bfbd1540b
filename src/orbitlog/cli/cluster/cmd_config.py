"""`orbitlog config`: shows and changes settings of running brokers, and checks broker.conf files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration

_SETTING_COLUMNS = (Column("brokerName"), Column("key"), Column("value", width_max=80))


@click.group("config", help="Show and change settings of running brokers; check a broker.conf.")
def command() -> None:
    """The group."""


def _selected(brokers: dict[str, str], wanted: str | None) -> dict[str, str]:
    """Return the broker with this name or address, or all brokers without `wanted`."""
    if wanted is None:
        return brokers
    selected = {name: address for name, address in brokers.items() if wanted in (name, address)}
    if not selected:
        raise WrongUse(f"unknown broker {wanted}; available: {', '.join(sorted(brokers)) or 'none'}")
    return selected


@command.command("show", help="Show the current settings of running brokers: all, or those with these KEYs.")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@click.option("--broker", help="Only this broker, by name or address.")
@cluster_options
def show_settings(*, keys: tuple[str, ...], broker: str | None, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> list[dict[str, Any]]:
        from orbitlog.client.admin.broker_admin import BrokerAdmin

        rows = []
        for name, address in _selected(await admin.brokers(), broker).items():
            settings = await BrokerAdmin(admin.link).settings(address)
            _refuse_unknown(keys, settings, name)
            rows += [
                {"brokerName": name, "key": key, "value": value}
                for key, value in sorted(settings.items())
                if not keys or key in keys
            ]
        return rows

    show_rows(_SETTING_COLUMNS, run_with_admin(cluster, work), output)


def _refuse_unknown(keys: tuple[str, ...], settings: dict[str, str], broker_name: str) -> None:
    import difflib

    for key in keys:
        if key not in settings:
            near = difflib.get_close_matches(key, settings, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise Problem(f"broker {broker_name} has no setting {key}{hint}")


@command.command(
    "set",
    help="""Change settings of running brokers, KEY=VALUE each.

    A broker refuses the whole change if one setting cannot be changed while it runs. The broker's settings file is not
    changed: its values apply again after a restart.""",
)
@click.argument("assignments", metavar="KEY=VALUE...", nargs=-1, required=True)
@click.option("--broker", help="Only this broker, by name or address.")
@cluster_options
def change_settings(*, assignments: tuple[str, ...], broker: str | None, cluster: Cluster, output: Output) -> None:
    wanted: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise WrongUse(f"{assignment!r} is not KEY=VALUE")
        wanted[key.strip()] = value.strip()

    async def work(admin: Administration) -> list[dict[str, Any]]:
        from orbitlog.client.admin.broker_admin import BrokerAdmin

        broker_admin = BrokerAdmin(admin.link)
        rows = []
        for name, address in _selected(await admin.brokers(), broker).items():
            await broker_admin.change_settings(address, wanted)
            settings = await broker_admin.settings(address)
            rows += [{"brokerName": name, "key": key, "value": settings.get(key)} for key in wanted]
        return rows

    show_rows(_SETTING_COLUMNS, run_with_admin(cluster, work), output)


@command.command(
    "check",
    help="""Check a broker.conf without starting a broker.

    Prints for each key whether it is set, without effect, changes behaviour, refused, unknown or wrong, and the
    consequence.
    Exit 1 if the broker would not start, or if a key is unknown.""",
)
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_options
@click.pass_context
def check_file(context: click.Context, *, path: Path, output: Output) -> None:
    from orbitlog.broker.runtime.setting_verdicts import judge_settings
    from orbitlog.settings.properties_file import read_properties
    from orbitlog.settings.secret_settings import shown_value

    pairs = read_properties(path)
    rows: list[dict[str, Any]] = [
        {"key": key, "value": shown_value(key, pairs[key]), "finding": finding, "sentence": sentence}
        for key, finding, sentence in judge_settings(pairs)
    ]
    columns = (Column("key"), Column("value", width_max=60), Column("finding"), Column("sentence", width_max=160))
    show_rows(columns, rows, output)
    if any(row["finding"] in ("unknown", "refused", "wrong") for row in rows):
        context.exit(1)
