"""`orbitlog doctor move`: what a change of brokers would refuse, change or keep, before the first start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.job_options import JobProgress
from orbitlog.cli.main import WrongUse
from orbitlog.cli.output.display_text import counted, printable
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import store_argument

if TYPE_CHECKING:
    from orbitlog.doctor.move.move_rows import MoveRow

_FIELDS = ("severity", "kind", "path", "setting", "sentence", "next")


@click.command("move")
@store_argument
@click.option(
    "--to", "target", type=click.Choice(("java", "orbitlog")), required=True, help="Broker that the store moves to."
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The broker.conf that the new broker starts with.",
)
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="One setting; overrides --config.")
@click.option(
    "--java-version",
    type=click.Choice(("4.9", "5.5")),
    help="With --to java: version of that broker. Default: the version that wrote the store.",
)
@click.option(
    "--quick", "is_quick", is_flag=True, help="Do not read the log: damage and missing segments may be missed."
)
@output_options
def command(
    *,
    store: Path,
    target: str,
    config_path: Path | None,
    assignments: tuple[str, ...],
    java_version: str | None,
    is_quick: bool,
    output: Output,
) -> None:
    """Report what would be refused, lost or changed if a store changed hands.

    Run it while no broker uses the store. `refused`: that broker does not start. `changes`: something would be lost,
    hidden, delivered twice or done in another way. `note`: it continues. Nothing is written. Exit code 0: nothing
    stands against the move, 1: something would be refused, lost or changed, 2: wrong use. With --json one object for
    each row, then one with the counts."""
    if java_version is not None and target != "java":
        raise click.UsageError("--java-version needs --to java")
    output.check(_FIELDS)
    rows = _survey(store, target, config_path, assignments, java_version, is_quick=is_quick)
    counts = {name: sum(row.severity.value == name for row in rows) for name in ("refused", "changes", "note")}
    is_free = not counts["refused"] and not counts["changes"]
    if output.is_table:
        for row in rows:
            click.echo(printable(str(row)))
        verdict = "nothing stands against it" if is_free else "something would be refused, lost or changed"
        shown = f"{counts['refused']} refused, {counts['changes']} changes, {counted(counts['note'], 'note')}"
        click.echo(f"{store}: move to {target}: {verdict} ({shown})")
    else:
        with output.writer(_FIELDS) as writer:
            for row in rows:
                writer.line(json.dumps(row.as_object(), separators=(",", ":")))
            if output.as_json:
                summary = {"store": str(store), "to": target, "free": is_free, **counts}
                writer.line(json.dumps(summary, separators=(",", ":")))
    if not is_free:
        click.get_current_context().exit(1)


def _survey(
    store: Path,
    target: str,
    config_path: Path | None,
    assignments: tuple[str, ...],
    java_version: str | None,
    *,
    is_quick: bool,
) -> list[MoveRow]:
    from orbitlog.cli.doctor.move_settings import GivenSettings, offset_rows, orbitlog_setting_rows, root_rows
    from orbitlog.doctor.move.store_move import ORBITLOG, MoveWish, sort_rows, survey_move
    from orbitlog.settings.setting import SettingError

    try:
        given = GivenSettings.read(config_path, assignments)
    except SettingError as error:
        raise WrongUse(str(error)) from error
    if target == ORBITLOG:
        rows = [*orbitlog_setting_rows(store, given), *offset_rows(store, given)]
    else:
        rows = list(root_rows(store, given.texts, "Java's broker"))
    wish = MoveWish(target, given.texts, java_version, is_quick)
    with JobProgress() as progress:
        rows += survey_move(store, wish, given.store, progress=progress)
    return sort_rows(rows)
