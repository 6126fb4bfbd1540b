"""`orbitlog doctor undo`: undoes the last repair or rebuild of a store."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.cli.output.display_text import counted
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import store_argument

_FIELDS = ("store", "changes", "steps")


@click.command("undo")
@store_argument
@click.option("--force", is_flag=True, help="Undo even if files were changed since, for example by a broker.")
@click.option("--resume", is_flag=True, help="Also undo a repair whose journal another user or machine wrote.")
@output_options
def command(*, store: Path, force: bool, resume: bool, output: Output) -> None:
    """Undo the last repair of a store, byte for byte.

    It also undoes `orbitlog doctor rebuild` in place, unless the replaced files were deleted."""
    output.check(_FIELDS)
    from orbitlog.doctor.repair.repair_journal import undo_last
    from orbitlog.jobs.store_use import taken

    with taken(store):
        steps = undo_last(store, force=force, resume=resume)
    if not output.is_table:
        output.write(_FIELDS, dict(zip(_FIELDS, (str(store), len(steps), steps), strict=True)))
        return
    click.echo(f"{store}: {counted(len(steps), 'change')} undone")
