"""Jobs of the console: their state, progress and pages of their result."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from orbitlog.console.views.answers import Answer, NoQuery
from orbitlog.console.work.background_jobs import BackgroundJobs, Job


class JobQuery(NoQuery, kw_only=True):
    """The page of the result."""

    after: Annotated[int, Meta(ge=0, description="First row")] = 0
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class JobRow(Answer, kw_only=True):
    """One job."""

    id: str
    kind: str
    title: str
    owner: str
    state: str
    created: int
    started: int | None
    finished: int | None
    steps_done: int
    steps_total: int | None
    rows: int
    note: str = ""
    problem: str | None = None


class JobListing(Answer, kw_only=True):
    """The newest jobs."""

    items: list[JobRow]
    as_of: int


class JobAnswer(Answer, kw_only=True):
    """One job and a page of its rows; `left_out` counts rows beyond the limit of the console."""

    job: JobRow
    columns: list[str]
    items: list[list[Any]]
    next: int | None
    left_out: int
    as_of: int
    is_finished: bool = False
    numeric: list[bool] = msgspec.field(default_factory=list)


def list_jobs(jobs: BackgroundJobs, now_ms: int) -> JobListing:
    return JobListing(items=[_row(job) for job in jobs.newest()], as_of=now_ms)


def show_job(jobs: BackgroundJobs, job_id: str, query: JobQuery, now_ms: int) -> JobAnswer:
    job = jobs.find(job_id)
    end = query.after + query.limit
    items = job.rows[query.after : end]
    return JobAnswer(
        job=_row(job),
        columns=job.columns,
        items=items,
        next=end if end < len(job.rows) else None,
        left_out=job.rows_left_out,
        as_of=now_ms,
        is_finished=job.is_finished,
        numeric=[_is_number(job.rows, at) for at in range(len(job.columns))],
    )


def _is_number(rows: list[list[Any]], at: int) -> bool:
    return bool(rows) and all(isinstance(row[at], int | float) or row[at] is None for row in rows[:50])


def _row(job: Job) -> JobRow:
    return JobRow(
        id=job.id,
        kind=job.kind,
        title=job.title,
        owner=job.owner,
        state=job.state,
        created=job.created_ms,
        started=job.started_ms,
        finished=job.finished_ms,
        steps_done=job.steps_done,
        steps_total=job.steps_total,
        rows=len(job.rows) + job.rows_left_out,
        note=job.note,
        problem=job.problem,
    )
