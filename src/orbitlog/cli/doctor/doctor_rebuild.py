"""`orbitlog doctor rebuild`: rebuilds queues, index or checkpoint of a store from its log."""

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
@click.option("--queues", is_flag=True, help="Only ConsumeQueues; may be combined with --index and --checkpoint.")
@click.option("--index", is_flag=True, help="Only index files.")
@click.option("--checkpoint", is_flag=True, help="Only the checkpoint.")
@click.option("--topic", help="Only the queues of this topic.")
@click.option("--dry-run", is_flag=True, help="Report what is wrong with the derived files, and change nothing.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="New directory for the rebuilt files. Without it the store's files are replaced, and kept for `undo`.",
)
@click.option("--discard-old", is_flag=True, help="Delete replaced files, also those of earlier repairs.")
@click.option(
    "--engine",
    type=click.Choice(["here", "spark"]),
    default="here",
    show_default=True,
    help="Run in this process or on Spark.",
)
@split_option
@master_option
@output_options
@settings_options
def command(*, store: Path, engine: str, master: str, dry_run: bool, output: Output, **options: Any) -> None:
    """Rebuild queues, index or checkpoint from the log.

    The files are byte for byte those that brokers write. They are staged and swapped in when all are complete; the next
    run continues one that was killed. Nothing is rebuilt from a damaged log: its findings are reported, exit code 1."""
    output.check(FINDING_FIELDS if dry_run else REBUILD_FIELDS)
    settings = read_settings(options["config_path"], options["assignments"])
    wanted = frozenset(part for part in _PARTS if options[part]) or frozenset(_PARTS)
    if options["topic"] is not None and not (options["index"] or options["checkpoint"]):
        wanted = frozenset(("queues",))
    if dry_run:
        _report_findings(store, wanted, settings, output)
        return
    from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_elsewhere, rebuild_in_place
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
            result = rebuild_elsewhere(store, options["out"], wish, settings, **more)
        else:
            result = rebuild_in_place(store, wish, settings, discard_old=options["discard_old"], **more)
        seconds = time.perf_counter() - started_s
    if not output.is_table:
        output.write(REBUILD_FIELDS, result.as_object() | {"seconds": round(seconds, 3)})
    elif result.is_published:
        speed = byte_count(int(result.log_bytes / max(seconds, 0.001)))
        place = options["out"] or store
        click.echo(
            f"{place}: {', '.join(sorted(wanted))} rebuilt from {result.messages} messages up to physical offset"
            f" {result.log_end} ({seconds:.1f} s, {speed}/s)"
        )
    report_damage([str(finding) for finding in result.findings])


def _report_findings(store: Path, wanted: frozenset[str], settings: Any, output: Output) -> None:
    """Report findings about the parts that would be rebuilt."""
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
        verdict = (
            f"would be refused, because the log is {problem}" if damage else f"{len(wrong)} findings would be repaired"
        )
        click.echo(f"{store}: {names}: {verdict}; nothing was changed")
    if damage or wrong:
        click.get_current_context().exit(1)
