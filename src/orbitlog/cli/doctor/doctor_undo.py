"""`orbitlog doctor undo`: the last repair or rebuild of a store taken back."""

from __future__ import annotations

from pathlib import Path

import click

from orbitlog.cli.output.display_text import counted
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import store_argument

_FIELDS = ("store", "changes", "steps")


@click.command("undo")
@store_argument
@click.option("--force", is_flag=True, help="Even if files were changed since, by a broker that ran.")
@output_options
def command(*, store: Path, force: bool, output: Output) -> None:
    """Take back the last repair of a store, byte for byte.

    The same for `orbitlog doctor rebuild` in place, unless its old files were discarded."""
    output.check(_FIELDS)
    from orbitlog.doctor.repair.repair_journal import undo_last
    from orbitlog.jobs.store_use import taken

    with taken(store):
        steps = undo_last(store, force=force)
    if not output.is_table:
        output.write(_FIELDS, dict(zip(_FIELDS, (str(store), len(steps), steps), strict=True)))
        return
    click.echo(f"{store}: {counted(len(steps), 'change')} taken back")
