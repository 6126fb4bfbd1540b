"""Routes of SQL: a form, and the start of a query as a job. They exist only in a console started with --sql."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orbitlog.console.console_call import require_role
from orbitlog.console.console_state import Console
from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.visitor_guard import VISITOR
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.web.endpoint import API_PREFIX
from orbitlog.console.web.page_rendering import PageRenderer
from orbitlog.console.web.request_forms import client_address, client_browser, read_body, read_form, require_csrf
from orbitlog.console.work.background_jobs import Job
from orbitlog.console.work.sql_jobs import MISSING_EXTRA, SqlRequest, has_spark, query_words, run_sql, sql_title

_EXAMPLE = "select topic, count(*) as messages\nfrom messages\ngroup by topic\norder by messages desc"
_STORE, _CLUSTER = "store ", "cluster "


class SqlRoutes:
    """The page /sql, and POST /api/v1/sql."""

    def __init__(self, console: Console, renderer: PageRenderer) -> None:
        self._console = console
        self._renderer = renderer

    def routes(self) -> list[Route]:
        if not self._console.options.allows_sql:
            return []
        return [
            Route("/sql", self._form, methods=["GET"]),
            Route("/sql", self._submit, methods=["POST"]),
            Route(API_PREFIX + "/sql", self._api, methods=["POST"]),
        ]

    async def _form(self, request: Request) -> Response:
        require_role(request.scope[VISITOR], Role.ADMIN)
        return self._page(request, dict(request.query_params), None, 200)

    async def _submit(self, request: Request) -> Response:
        require_role(request.scope[VISITOR], Role.ADMIN)
        fields = await read_form(request)
        require_csrf(request, fields)
        source = fields.get("source", "")
        try:
            query = SqlRequest(
                sql=fields.get("sql", ""),
                store=source.removeprefix(_STORE) if source.startswith(_STORE) else "",
                cluster=source.removeprefix(_CLUSTER) if source.startswith(_CLUSTER) else "",
                topic=fields.get("topic", "").strip(),
            )
            job = await self._start(request, msgspec.convert(msgspec.to_builtins(query), SqlRequest))
        except (ConsoleError, msgspec.ValidationError) as error:
            status = error.status if isinstance(error, ConsoleError) else 400
            return self._page(request, fields, str(error), status)
        return RedirectResponse(f"/jobs/{job.id}", 303)

    async def _api(self, request: Request) -> Response:
        require_role(request.scope[VISITOR], Role.ADMIN)
        require_csrf(request, {})
        try:
            query = msgspec.json.decode(await read_body(request), type=SqlRequest)
        except msgspec.DecodeError as error:
            raise ConsoleError(400, f"invalid query: {error}") from None
        job = await self._start(request, query)
        return Response(msgspec.json.encode({"job": job.id}), 202, media_type="application/json")

    async def _start(self, request: Request, query: SqlRequest) -> Job:
        console = self._console
        if not has_spark():
            raise ConsoleError(501, MISSING_EXTRA)
        words = query_words(console.options, query)
        visitor = request.scope[VISITOR]
        await asyncio.to_thread(
            console.audit.write,
            user=visitor.name,
            role=visitor.role.word,
            address=client_address(request),
            browser=client_browser(request),
            cluster=query.cluster or query.store,
            action="sql",
            target=query.topic or query.store,
            after={"sql": query.sql},
            result="started",
        )
        return console.jobs.submit(
            "sql", sql_title(query.sql), visitor.name, lambda job: run_sql(job, words, query.sql)
        )

    def _page(self, request: Request, fields: dict[str, str], problem: str | None, status: int) -> Response:
        options = self._console.options
        sources = [f"{_STORE}{name}" for name in options.stores]
        sources += [f"{_CLUSTER}{choice.name}" for choice in options.clusters]
        values = {
            "sources": sources,
            "source": fields.get("source", sources[0] if sources else ""),
            "topic": fields.get("topic", ""),
            "sql": fields.get(
                "sql", "select topic, count(*) as messages\nfrom messages\ngroup by topic\norder by messages desc"
            ),
            "missing": None if has_spark() else MISSING_EXTRA,
            "problem": problem,
        }
        return self._renderer.page(request, "sql.html", values, title="SQL", section="sql", status=status)
