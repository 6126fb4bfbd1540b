"""The page that leads to messages: by topic, or by the id of a message."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orbitlog.console.console_call import Call
from orbitlog.console.console_state import Console
from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.visitor_guard import VISITOR
from orbitlog.console.views.answers import ConsoleError, ListQuery
from orbitlog.console.views.topic_view import shown_topics
from orbitlog.console.web.page_rendering import PageRenderer

_TOPICS_MAX = 500


class FindMessage:
    """The page /clusters/{cluster}/find."""

    def __init__(self, console: Console, renderer: PageRenderer) -> None:
        self._console = console
        self._renderer = renderer

    def routes(self) -> list[Route]:
        return [Route("/clusters/{cluster}/find", self._serve), Route("/clusters/{cluster}/create", self._create)]

    async def _create(self, request: Request) -> Response:
        """Redirect to the form of a topic or group that is to be created."""
        source = Call(self._console, request.scope[VISITOR], request.path_params, None).cluster
        kind, name = request.query_params.get("kind", ""), request.query_params.get("name", "").strip()
        if kind not in ("topics", "groups") or not name:
            raise ConsoleError(400, "give `kind`, topics or groups, and `name`")
        root = f"/clusters/{quote(source.name, safe='')}"
        return RedirectResponse(f"{root}/{kind}/{quote(name[:255], safe='')}/change", 303)

    async def _serve(self, request: Request) -> Response:
        call = Call(self._console, request.scope[VISITOR], request.path_params, None)
        if call.visitor.role < Role.VIEWER:
            raise ConsoleError(401, "sign in first")
        source = call.cluster
        topic, message = request.query_params.get("topic", "")[:255], request.query_params.get("message", "")[:255]
        root = f"/clusters/{quote(source.name, safe='')}"
        if message:
            return RedirectResponse(f"{root}/messages/{quote(message.strip(), safe='')}?topic={quote(topic)}", 303)
        if topic:
            return RedirectResponse(f"{root}/topics/{quote(topic.strip(), safe='')}/messages", 303)
        topics = shown_topics(await source.sample(), ListQuery())[:_TOPICS_MAX]
        return self._renderer.page(request, "find.html", {"topics": topics}, title="Messages", section="messages")
