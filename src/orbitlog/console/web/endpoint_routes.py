"""Routes of endpoints: each as JSON below /api/v1, and as a page if it has a template."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orbitlog.console.changes.planned_change import ChangeKind
from orbitlog.console.console_call import Call
from orbitlog.console.console_state import Console
from orbitlog.console.session.visitor_guard import VISITOR
from orbitlog.console.views.answers import Answer
from orbitlog.console.web.endpoint import API_PREFIX, Endpoint, Handler, decode_query, run_endpoint
from orbitlog.console.web.openapi import openapi_document
from orbitlog.console.web.page_rendering import PageRenderer


class EndpointRoutes:
    """Builds the routes of a table of endpoints."""

    def __init__(
        self,
        console: Console,
        renderer: PageRenderer,
        endpoints: tuple[Endpoint, ...],
        changes: tuple[ChangeKind, ...],
    ) -> None:
        self._console = console
        self._renderer = renderer
        self._endpoints = endpoints
        self._changes = changes if console.options.may_write else ()

    def routes(self) -> list[Route]:
        api = [Route(API_PREFIX + endpoint.path, self._json(endpoint)) for endpoint in self._endpoints]
        pages = [Route(endpoint.path, self._page(endpoint)) for endpoint in self._endpoints if endpoint.template]
        return [
            Route("/", self._home),
            Route(f"{API_PREFIX}/openapi.json", self._openapi),
            Route("/api", self._api_page),
            *api,
            *pages,
        ]

    async def _run(self, endpoint: Endpoint, request: Request) -> Answer:
        query = decode_query(endpoint.query, dict(request.query_params))
        call = Call(self._console, request.scope[VISITOR], request.path_params, query)
        return await run_endpoint(endpoint, call)

    def _json(self, endpoint: Endpoint) -> Handler:
        async def answer(request: Request) -> Response:
            content = msgspec.json.encode(await self._run(endpoint, request))
            return Response(content, media_type="application/json")

        return answer

    def _page(self, endpoint: Endpoint) -> Handler:
        template = endpoint.template
        assert template is not None

        async def show(request: Request) -> Response:
            query = decode_query(endpoint.query, dict(request.query_params))
            answer = await self._run(endpoint, request)
            title = endpoint.title.format_map(request.path_params)
            return self._renderer.page(
                request,
                template,
                {"answer": answer, "query": query, "path": request.path_params},
                title=title,
                section=endpoint.section,
                is_live=endpoint.is_live,
            )

        return show

    async def _home(self, request: Request) -> Response:
        cluster = next(iter(self._console.clusters), None)
        return RedirectResponse("/stores" if cluster is None else f"/clusters/{cluster}/overview", 303)

    async def _openapi(self, request: Request) -> Response:
        content = msgspec.json.encode(openapi_document(self._endpoints, self._changes), order="sorted")
        return Response(content, media_type="application/json")

    async def _api_page(self, request: Request) -> Response:
        table = sorted(self._endpoints, key=lambda endpoint: endpoint.path)
        changes = sorted(self._changes, key=lambda kind: (kind.path, kind.method))
        values = {"endpoints": table, "changes": changes, "prefix": API_PREFIX}
        return self._renderer.page(request, "api.html", values, title="API", section="api")
