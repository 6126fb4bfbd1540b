"""`orbitlog doctor repair`: the plan by which a store would be mended, and with --apply the mending."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.cli.job_options import JobProgress
from orbitlog.cli.output.display_text import counted
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, settings_options, store_argument, warn

_FIELDS = ("applied", "sound", "resumed", "actions", "problems", "findings")


@click.command("repair")
@store_argument
@click.option("--apply", "is_applied", is_flag=True, help="Carry the plan out; without it nothing is changed.")
@click.option("--plan", "is_planned", is_flag=True, help="Only show the plan, as without --apply.")
@click.option(
    "--accept-lost-segments",
    is_flag=True,
    help="Give up the messages of segments of which no file exists; without it a missing segment stops the repair.",
)
@output_options
@settings_options
def command(
    *,
    store: Path,
    is_applied: bool,
    is_planned: bool,
    accept_lost_segments: bool,
    output: Output,
    config_path: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Mend a damaged store; shows the plan, --apply carries it out.

    A torn tail is cut. A damaged range inside the log becomes placeholders for the messages that are known to be lost,
    each empty and under its own queue offset, so that Java brokers and ours read past it. Queues, index and checkpoint
    are made again where they are wrong; config files come from their backups, or from what the queues tell. Every
    change is kept in a journal that `orbitlog doctor undo` takes back. Nothing is changed while a part of the log is
    behind a link, unreadable or missing. Exit code 1: something is left to be mended."""
    if is_applied and is_planned:
        raise click.UsageError("give either --plan or --apply")
    output.check(_FIELDS)
    settings = read_settings(config_path, assignments)
    from orbitlog.doctor.repair.store_repair import apply_repair, plan_repair

    with JobProgress() as progress:
        mend = apply_repair if is_applied else plan_repair
        result = mend(store, settings=settings, accept_lost_segments=accept_lost_segments, progress=progress)
    if not output.is_table:
        output.write(_FIELDS, result.as_object())
    else:
        for line in [*(f"taken up: {title}" for title in result.resumed), *result.actions]:
            click.echo(line)
        _echo_verdict(store, is_applied, len(result.actions), is_sound=result.is_sound)
    for problem in result.problems:
        warn(f"not mended: {problem}")
    if not result.is_sound:
        click.get_current_context().exit(1)


def _echo_verdict(store: Path, is_applied: bool, actions: int, *, is_sound: bool) -> None:
    if not actions:
        click.echo(f"{store}: nothing to mend" if is_sound else f"{store}: nothing that can be mended")
    elif not is_applied:
        click.echo(f"{store}: {counted(actions, 'thing')} to mend; nothing was changed, --apply does it")
    else:
        verdict = "nothing is left to mend" if is_sound else "something is left to mend, see orbitlog doctor check"
        click.echo(
            f"{store}: {counted(actions, 'change')} made, {verdict}; orbitlog doctor undo {store} takes them back"
        )
