"""`orbitlog doctor check`: findings about a store, each with its consequence and the command that repairs it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from orbitlog.cli.job_options import FINDING_FIELDS, JobProgress
from orbitlog.cli.output.display_text import byte_count
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, settings_options, store_argument


@click.command("check")
@store_argument
@output_options
@settings_options
def command(*, store: Path, output: Output, config_path: Path | None, assignments: tuple[str, ...]) -> None:
    """Check a store, and show what repairs it.

    It reads every record, queue unit and index entry, the checkpoint, config and timer files, and looks for missing and
    foreign files. Nothing is changed, and a broker may run meanwhile. Exit code 0: nothing to repair, 1: something is
    wrong, 2: wrong use. With --json one object for each finding, then one with the figures; with -f the findings."""
    output.check(FINDING_FIELDS)
    settings = read_settings(config_path, assignments)
    from orbitlog.doctor.examination import examine

    with JobProgress() as progress:
        started_s = time.perf_counter()
        found = examine(store, settings=settings, progress=progress)
        seconds = time.perf_counter() - started_s
    if not output.is_table:
        with output.writer(FINDING_FIELDS) as writer:
            for diagnosis in found.diagnoses:
                writer.line(json.dumps(diagnosis.as_object(), separators=(",", ":")))
            if output.as_json:
                writer.line(json.dumps(found.summary() | {"seconds": round(seconds, 3)}, separators=(",", ":")))
    else:
        for diagnosis in found.diagnoses:
            click.echo(str(diagnosis))
        checked = found.check
        verdict = "nothing to repair" if found.is_sound else "needs a repair"
        speed = byte_count(int(checked.log_bytes / max(seconds, 0.001)))
        click.echo(
            f"{store}: {verdict}: {checked.messages} messages up to physical offset {checked.log_end},"
            f" {checked.queues} queues, {checked.keys} keys in {checked.index_files} index files"
            f" ({seconds:.1f} s, {speed}/s)"
        )
    if not found.is_sound:
        click.get_current_context().exit(1)
