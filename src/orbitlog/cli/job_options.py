"""Options and progress of jobs over whole stores, which `doctor` runs locally and `pipeline` on Spark."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from orbitlog.cli.output.display_text import byte_rate, fit

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
_PROGRESS_INTERVAL_S = 0.1
_BAR_COLUMNS = 40
_CLEAR_TO_END = "\x1b[K"

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
    """A line on stderr for the current phase of a job: bar, MB/s, messages/s and remaining time; needs a terminal."""

    def __init__(self) -> None:
        self._phase = ""
        self._started_s = self._next_s = 0.0
        self._is_shown = False

    def __enter__(self) -> Callable[[str, int, int, int], None] | None:
        return self._show if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else None

    def _show(self, phase: str, done_bytes: int, total_bytes: int, messages: int) -> None:
        now_s = time.monotonic()
        if phase != self._phase:
            self._phase, self._started_s, self._next_s = phase, now_s, now_s
        if now_s < self._next_s:
            return
        self._next_s = now_s + _PROGRESS_INTERVAL_S
        line = progress_line(phase, done_bytes, total_bytes, messages, now_s - self._started_s)
        # The last column stays empty: a full line would wrap, and the next one would not overwrite it.
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r{fit(line, width).rstrip()}{_CLEAR_TO_END}", nl=False, err=True)
        self._is_shown = True

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            click.echo(f"\r{_CLEAR_TO_END}", nl=False, err=True)


def progress_line(phase: str, done_bytes: int, total_bytes: int, messages: int, seconds: float) -> str:
    """Return `phase [####----] 50%  1.0 MiB/s  1,000 messages/s  0:07`, the time that remains at the end."""
    share = min(done_bytes / total_bytes, 1.0) if total_bytes else 1.0
    filled = int(share * _BAR_COLUMNS)
    bar = f"[{'#' * filled}{'-' * (_BAR_COLUMNS - filled)}]"
    parts = [f"{phase} {bar} {int(share * 100)}%", byte_rate(done_bytes, seconds)]
    if messages:
        parts.append(f"{int(messages / max(seconds, 0.001)):,} messages/s")
    if done_bytes:
        left_s = round(max(total_bytes - done_bytes, 0) * seconds / done_bytes)
        parts.append(f"{left_s // 60}:{left_s % 60:02}")
    return "  ".join(parts)
