"""Routes of jobs besides reading: cancel, and download of the result as CSV or JSON lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from orbitlog.console.console_call import Call, require_role
from orbitlog.console.console_state import Console
from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.visitor_guard import VISITOR
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.web.endpoint import API_PREFIX
from orbitlog.console.web.job_endpoints import own_job
from orbitlog.console.web.request_forms import read_form, require_csrf
from orbitlog.console.work.background_jobs import Job

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_LINES_PER_CHUNK = 500


class JobRoutes:
    """Cancel and download."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def routes(self) -> list[Route]:
        return [
            Route("/jobs/{job}/cancel", self._cancel_form, methods=["POST"]),
            Route(API_PREFIX + "/jobs/{job}", self._cancel, methods=["DELETE"]),
            Route("/jobs/{job}/download", self._download),
            Route(API_PREFIX + "/jobs/{job}/download", self._download),
        ]

    def _job(self, request: Request) -> Job:
        require_role(request.scope[VISITOR], Role.OPERATOR)
        return own_job(Call(self._console, request.scope[VISITOR], request.path_params, None))

    async def _cancel_form(self, request: Request) -> Response:
        job = self._job(request)
        require_csrf(request, await read_form(request))
        self._console.jobs.cancel(job)
        return RedirectResponse(f"/jobs/{job.id}", 303)

    async def _cancel(self, request: Request) -> Response:
        job = self._job(request)
        require_csrf(request, {})
        self._console.jobs.cancel(job)
        return Response(status_code=204)

    async def _download(self, request: Request) -> Response:
        job = self._job(request)
        kind = request.query_params.get("format", "csv")
        if kind not in ("csv", "jsonl"):
            raise ConsoleError(400, "`format` is csv or jsonl")
        content = _csv_lines(job) if kind == "csv" else _json_lines(job)
        headers = {"content-disposition": f'attachment; filename="job-{job.id}.{kind}"'}
        return StreamingResponse(content, headers=headers, media_type="application/octet-stream")


def _json_lines(job: Job) -> Iterator[bytes]:
    for start in range(0, len(job.rows), _LINES_PER_CHUNK):
        rows = job.rows[start : start + _LINES_PER_CHUNK]
        yield b"".join(msgspec.json.encode(dict(zip(job.columns, row, strict=True))) + b"\n" for row in rows)


def _csv_lines(job: Job) -> Iterator[bytes]:
    for start in range(0, max(1, len(job.rows)), _LINES_PER_CHUNK):
        text = io.StringIO()
        writer = csv.writer(text)
        if start == 0:
            writer.writerow([csv_cell(name) for name in job.columns])
        for row in job.rows[start : start + _LINES_PER_CHUNK]:
            writer.writerow([csv_cell(value) for value in row])
        yield text.getvalue().encode()


def csv_cell(value: Any) -> Any:
    """Return a cell; text that a spreadsheet would run as a formula gets a quote in front."""
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
