"""`orbitlog doctor rebuild`: queues, index or checkpoint of a store, made again from its log."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from orbitlog.cli.job_options import (
    FINDING_FIELDS,
    REBUILD_FIELDS,
    JobProgress,
    master_option,
    spark_session,
    split_option,
)
from orbitlog.cli.output.display_text import byte_count
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, report_damage, settings_options, store_argument

_PARTS = ("queues", "index", "checkpoint")


@click.command("rebuild")
@store_argument
@click.option("--queues", is_flag=True, help="Only ConsumeQueues (with --index or --checkpoint: those, too).")
@click.option("--index", is_flag=True, help="Only index files.")
@click.option("--checkpoint", is_flag=True, help="Only the checkpoint.")
@click.option("--topic", help="Of the queues only those of this topic.")
@click.option("--dry-run", is_flag=True, help="Say what is wrong with the derived files, and change nothing.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new directory for what is made; without it the store's own files are replaced, and kept for `undo`.",
)
@click.option("--discard-old", is_flag=True, help="Keep nothing of what was replaced, now and by earlier repairs.")
@click.option("--engine", type=click.Choice(["here", "spark"]), default="here", show_default=True, help="What runs it.")
@split_option
@master_option
@output_options
@settings_options
def command(*, store: Path, engine: str, master: str, dry_run: bool, output: Output, **options: Any) -> None:
    """Make queues, index or checkpoint again from the log.

    The files are byte for byte those that brokers write. They are made aside and swapped in when all are complete; a
    killed run is taken up by the next one. A damaged log is reported, and nothing is made from it: exit code 1."""
    output.check(FINDING_FIELDS if dry_run else REBUILD_FIELDS)
    settings = read_settings(options["config_path"], options["assignments"])
    wanted = frozenset(part for part in _PARTS if options[part]) or frozenset(_PARTS)
    if options["topic"] is not None and not (options["index"] or options["checkpoint"]):
        wanted = frozenset(("queues",))
    if dry_run:
        _tell(store, wanted, settings, output)
        return
    from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_aside, rebuild_in_place
    from orbitlog.jobs.local_runner import run_here

    wish = RebuildWish(wanted, options["topic"])
    with ExitStack() as stack:
        run: Any = run_here
        if engine == "spark":
            from orbitlog.pipeline.runtime.spark_runner import runner

            run = runner(stack.enter_context(spark_session(master, "doctor rebuild", only_tasks=True)))
        more = {"run": run, "split_bytes": options["split_bytes"], "progress": stack.enter_context(JobProgress())}
        started_s = time.perf_counter()
        if options["out"] is not None:
            result = rebuild_aside(store, options["out"], wish, settings, **more)
        else:
            result = rebuild_in_place(store, wish, settings, discard_old=options["discard_old"], **more)
        seconds = time.perf_counter() - started_s
    if not output.is_table:
        output.write(REBUILD_FIELDS, result.as_object() | {"seconds": round(seconds, 3)})
    elif result.is_published:
        speed = byte_count(int(result.log_bytes / max(seconds, 0.001)))
        place = options["out"] or store
        click.echo(
            f"{place}: {', '.join(sorted(wanted))} made again from {result.messages} messages up to physical offset"
            f" {result.log_end} ({seconds:.1f} s, {speed}/s)"
        )
    report_damage([str(finding) for finding in result.findings])


def _tell(store: Path, wanted: frozenset[str], settings: Any, output: Output) -> None:
    """Say what is wrong with what would be made again."""
    from orbitlog.doctor.examination import examine
    from orbitlog.doctor.finding_kinds import MEANINGS

    found = examine(store, settings=settings)
    wrong = [one for one in found.diagnoses if MEANINGS[one.finding.kind].part in wanted]
    damage = [one for one in found.diagnoses if MEANINGS[one.finding.kind].stops_rebuild]
    if not output.is_table:
        output.write(FINDING_FIELDS, *(diagnosis.as_object() for diagnosis in [*damage, *wrong]))
    else:
        for diagnosis in [*damage, *wrong]:
            click.echo(str(diagnosis))
        names = ", ".join(sorted(wanted))
        problem = "incomplete" if found.missing else "damaged"
        verdict = f"would be refused, for the log is {problem}" if damage else f"{len(wrong)} findings would be mended"
        click.echo(f"{store}: {names}: {verdict}; nothing was changed")
    if damage or wrong:
        click.get_current_context().exit(1)
