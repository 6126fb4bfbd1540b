"""The console as an ASGI application: routes of pages, API, sign-in and static files, after the guard."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orbitlog.console.console_state import Console
from orbitlog.console.session.visitor_guard import Application, VisitorGuard
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.web.change_routes import ChangeRoutes
from orbitlog.console.web.change_table import CHANGES
from orbitlog.console.web.endpoint_routes import EndpointRoutes
from orbitlog.console.web.endpoint_table import ENDPOINTS
from orbitlog.console.web.error_answers import ProblemDetail, json_problem, problem_of, unexpected_problem, wants_json
from orbitlog.console.web.find_message import FindMessage
from orbitlog.console.web.job_routes import JobRoutes
from orbitlog.console.web.page_rendering import PageRenderer
from orbitlog.console.web.sign_in import SignIn
from orbitlog.console.web.sql_routes import SqlRoutes
from orbitlog.console.web.static_assets import StaticAssets
from orbitlog.console.web.tail_stream import TailStream
from orbitlog.errors import OrbitlogError


def create_app(console: Console) -> Application:
    """Return the application of a console, which must be started and closed by the caller."""
    assets = StaticAssets()
    renderer = PageRenderer(console, assets)
    errors = _Errors(renderer)
    routes = [
        Route("/static/{version}/{name:path}", assets.serve),
        *SignIn(console, renderer).routes(),
        *TailStream(console).routes(),
        *FindMessage(console, renderer).routes(),
        *JobRoutes(console).routes(),
        *SqlRoutes(console, renderer).routes(),
        *EndpointRoutes(console, renderer, ENDPOINTS, CHANGES).routes(),
        *ChangeRoutes(console, renderer, CHANGES).routes(),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={OrbitlogError: errors.known, HTTPException: errors.http, Exception: errors.unexpected},
    )
    app.router.redirect_slashes = False
    return VisitorGuard(app, console, assets.has)


class _Errors:
    """Answers to requests that failed."""

    def __init__(self, renderer: PageRenderer) -> None:
        self._renderer = renderer

    async def known(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, OrbitlogError)
        if isinstance(error, ConsoleError) and error.status == 401 and not wants_json(request):
            return RedirectResponse("/sign-in", 303)
        return self._answer(request, problem_of(error))

    async def http(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = "no such page" if error.status_code == 404 else str(error.detail)
        return self._answer(request, ProblemDetail(status=error.status_code, title=str(error.detail), detail=detail))

    async def unexpected(self, request: Request, error: Exception) -> Response:
        return self._answer(request, unexpected_problem(error))

    def _answer(self, request: Request, problem: ProblemDetail) -> Response:
        if wants_json(request):
            return json_problem(problem)
        values = {"problem": problem}
        return self._renderer.page(request, "error.html", values, title=problem.title, status=problem.status)
