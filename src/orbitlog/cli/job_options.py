"""Options and progress of jobs over whole stores, which `doctor` runs locally and `pipeline` on Spark."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from orbitlog.cli.output.display_text import byte_count

# Fields of the rows: names for --json and format strings.
REBUILD_FIELDS = (
    *("store", "out", "published", "messages", "logBytes", "logEnd", "queues", "queueFiles", "indexFiles", "keys"),
    *("resumedSplits", "wasFinished", "findingCount", "findings", "seconds"),
)
FINDING_FIELDS = (
    *("severity", "kind", "path", "reason", "position", "count", "physicalOffset", "topic", "queueId", "queueOffset"),
    *("store", "consequence", "command"),
)
_SPLIT_BYTES_MIN = 64 * 1024
_SPLIT_BYTES_DEFAULT = 128 * 1024 * 1024

SERVER, SOCKET_PREFIX = "server", "unix:"
master_option = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Spark master: local[N], the URL of a cluster, or `server` for the session of `pipeline serve`.",
)
split_option = click.option(
    "--split-bytes",
    type=click.IntRange(min=_SPLIT_BYTES_MIN),
    default=_SPLIT_BYTES_DEFAULT,
    show_default=True,
    help="Bytes of the log that one task reads.",
)


class HeldSession:
    """The session of a process that runs many commands, `pipeline serve`; None in all others."""

    spark: Any = None


def for_workers(path: Path) -> Path:
    """Return a path that workers understand: those of a server have its directory, not the command's."""
    return path if HeldSession.spark is None else path.absolute()


@contextmanager
def spark_session(master: str, command: str, *, only_tasks: bool = False) -> Iterator[Any]:
    """Start Spark for one command and stop it when the block ends, or use the session that this process holds."""
    from orbitlog.pipeline.runtime.session import build_session, end_session, sibling_session

    if HeldSession.spark is not None:
        yield sibling_session(HeldSession.spark)
        return
    if master == SERVER or master.startswith(SOCKET_PREFIX):
        raise click.UsageError(f"--master {master} is for pipeline commands other than dispatch and serve")
    spark = build_session(master, app_name=f"orbitlog {command}", only_tasks=only_tasks)
    try:
        yield spark
    finally:
        end_session(spark)


class JobProgress:
    """A progress bar on stderr for each phase of a job, with MB/s, messages/s and remaining time; needs a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._phase, self._task = "", None
        self._started_s = time.monotonic()

    def __enter__(self) -> Callable[[str, int, int, int], None] | None:
        if not sys.stderr.isatty():
            return None
        # Imported late: rich is slow to load, and not needed without a terminal.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[speed]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.start()
        return self._show

    def _show(self, phase: str, done_bytes: int, total_bytes: int, messages: int) -> None:
        if phase != self._phase:
            self._phase, self._started_s = phase, time.monotonic()
            self._task = self._bar.add_task(phase, total=total_bytes, speed="")
        seconds = max(time.monotonic() - self._started_s, 0.001)
        speed = f"{byte_count(int(done_bytes / seconds))}/s"
        if messages:
            speed += f"  {int(messages / seconds):,} messages/s"
        self._bar.update(self._task, completed=min(done_bytes, total_bytes), speed=speed)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
