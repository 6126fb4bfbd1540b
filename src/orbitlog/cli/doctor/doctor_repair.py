"""`orbitlog doctor repair`: shows the steps that repair a store, and carries them out with --apply."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from orbitlog.cli.job_options import JobProgress
from orbitlog.cli.output.display_text import counted
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, settings_options, store_argument, warn

_FIELDS = ("applied", "sound", "resumed", "actions", "problems", "findings")


@click.command("repair")
@store_argument
@click.option("--apply", "is_applied", is_flag=True, help="Carry out the plan. Without it nothing is changed.")
@click.option("--plan", "is_planned", is_flag=True, help="Only show the plan, which is the default.")
@click.option(
    "--accept-lost-segments",
    is_flag=True,
    help="Give up the messages of segments without a file. Without it a missing segment stops the repair.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="With --apply, also finish an interrupted repair whose journal another user or machine wrote.",
)
@output_options
@settings_options
def command(
    *,
    store: Path,
    is_applied: bool,
    is_planned: bool,
    accept_lost_segments: bool,
    resume: bool,
    output: Output,
    config_path: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Repair a damaged store: show the plan, or carry it out with --apply.

    A torn tail is cut. A damaged range inside the log is replaced by placeholders for the messages that are known to be
    lost, each empty and with its queue offset, so that brokers read past it. Wrong queues, index and checkpoint are
    rebuilt; config files are restored from backups, or from the queues. The plan has the steps up to the end of the
    first round; each further round is planned from the result of the one before. `orbitlog doctor undo` undoes every
    change. Nothing is changed while a part of the log is a link, unreadable or missing. Exit code 1: something is left
    to repair."""
    if is_applied and is_planned:
        raise click.UsageError("give either --plan or --apply")
    output.check(_FIELDS)
    settings = read_settings(config_path, assignments)
    from orbitlog.doctor.repair.store_repair import apply_repair, plan_repair

    with JobProgress() as progress:
        repair = partial(apply_repair, resume=resume) if is_applied else plan_repair
        result = repair(store, settings=settings, accept_lost_segments=accept_lost_segments, progress=progress)
    if not output.is_table:
        output.write(_FIELDS, result.as_object())
    else:
        for line in [*(f"finished: {title}" for title in result.resumed), *result.actions]:
            click.echo(line)
        _echo_verdict(store, is_applied, len(result.actions), is_sound=result.is_sound)
    for problem in result.problems:
        warn(f"not repaired: {problem}")
    if not result.is_sound:
        click.get_current_context().exit(1)


def _echo_verdict(store: Path, is_applied: bool, actions: int, *, is_sound: bool) -> None:
    if not actions:
        click.echo(f"{store}: nothing to repair" if is_sound else f"{store}: nothing that can be repaired")
    elif not is_applied:
        click.echo(f"{store}: {counted(actions, 'step')} planned; nothing was changed, --apply carries them out")
    else:
        verdict = "nothing is left to repair" if is_sound else "something is left to repair, see orbitlog doctor check"
        click.echo(f"{store}: {counted(actions, 'change')} made, {verdict}; orbitlog doctor undo {store} undoes them")
