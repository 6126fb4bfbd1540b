"""`orbitlog doctor undo`: the last repair or rebuild of a store taken back."""

from __future__ import annotations

import json
from pathlib import Path

import click

from orbitlog.cli.pipeline_options import json_option, store_argument
from orbitlog.cli.show import counted


@click.command("undo")
@store_argument
@click.option("--force", is_flag=True, help="Even if files were changed since, by a broker that ran.")
@json_option
def command(*, store: Path, force: bool, as_json: bool) -> None:
    """Take back the last repair of a store, byte for byte.

    The same for `orbitlog doctor rebuild` in place, unless its old files were discarded."""
    from orbitlog.doctor.repair_journal import undo_last
    from orbitlog.doctor.store_use import taken

    with taken(store):
        steps = undo_last(store, force=force)
    if as_json:
        told = {"store": str(store), "changes": len(steps), "steps": steps}
        click.echo(json.dumps(told, separators=(",", ":")))
        return
    click.echo(f"{store}: {counted(len(steps), 'change')} taken back")
