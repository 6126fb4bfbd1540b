"""Background jobs: a bounded queue of long work with progress, result rows and cancel; lost when the console stops."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import ConsoleError
from orbitlog.errors import OrbitlogError

RUNNING_MAX = 2  # jobs read stores and start Spark beside brokers of the same machine
WAITING_MAX = 20
KEPT_MAX = 50
ROWS_MAX = 10_000
ROW_BYTES_MAX = 64 << 20
WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"


@dataclass
class Job:
    """One job: its state, progress, and result rows, of which at most `ROWS_MAX` are kept."""

    id: str
    kind: str
    title: str
    owner: str
    created_ms: int
    state: str = WAITING
    started_ms: int | None = None
    finished_ms: int | None = None
    steps_done: int = 0
    steps_total: int | None = None
    note: str = ""
    problem: str | None = None
    columns: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    rows_left_out: int = 0
    row_bytes: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def is_finished(self) -> bool:
        return self.state in (DONE, FAILED, CANCELLED)

    def add_row(self, row: list[Any], size_bytes: int = 0) -> None:
        """Keep a row of the result, or count it as left out beyond the limits of count and size."""
        if len(self.rows) >= ROWS_MAX or self.row_bytes + size_bytes > ROW_BYTES_MAX:
            self.rows_left_out += 1
        else:
            self.rows.append(row)
            self.row_bytes += size_bytes


class BackgroundJobs:
    """The jobs of one console; two run at once, others wait."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._jobs: dict[str, Job] = {}
        self._places = asyncio.Semaphore(RUNNING_MAX)

    def submit(self, kind: str, title: str, owner: str, run: Callable[[Job], Awaitable[None]]) -> Job:
        """Queue a job; raise `ConsoleError` with 503 if too many wait."""
        if sum(job.state == WAITING for job in self._jobs.values()) >= WAITING_MAX:
            raise ConsoleError(503, f"{WAITING_MAX} jobs are waiting: cancel one, or try later")
        job = Job(secrets.token_hex(8), kind, title, owner, self._now_ms())
        self._forget_oldest()
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, run))
        return job

    def find(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            raise ConsoleError(404, "no such job; finished ones are forgotten after a while")
        return job

    def newest(self) -> list[Job]:
        return list(reversed(self._jobs.values()))

    def cancel(self, job: Job) -> None:
        if job.task is not None and not job.is_finished:
            job.task.cancel()

    async def close(self) -> None:
        tasks = [job.task for job in self._jobs.values() if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget_oldest(self) -> None:
        finished = [job for job in self._jobs.values() if job.is_finished]
        for job in finished[: max(0, len(self._jobs) + 1 - KEPT_MAX)]:
            del self._jobs[job.id]

    async def _run(self, job: Job, run: Callable[[Job], Awaitable[None]]) -> None:
        try:
            async with self._places:
                job.state, job.started_ms = RUNNING, self._now_ms()
                await run(job)
            job.state = DONE
        except asyncio.CancelledError:
            job.state = CANCELLED
        except OrbitlogError as error:
            job.state, job.problem = FAILED, problem_sentence(error)
        except OSError as error:
            job.state, job.problem = FAILED, str(error)
        finally:
            # Any other exception ends the task and is logged as such; the job must not stay running.
            if not job.is_finished:
                job.state, job.problem = FAILED, "internal error; the log of the console has the details"
            job.finished_ms = self._now_ms()
