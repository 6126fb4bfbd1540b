"""Tail of a topic as server-sent events: batches of messages with the number of dropped ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from orbitlog.console.console_call import Call
from orbitlog.console.console_state import Console
from orbitlog.console.session.console_roles import Role
from orbitlog.console.session.visitor_guard import VISITOR
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.tail_feed import VIEWERS_MAX, TailFeeds, Viewer
from orbitlog.console.views.answers import Answer, ConsoleError
from orbitlog.console.views.body_rights import refuse_body_search, without_previews
from orbitlog.console.views.known_names import sample_with_topic
from orbitlog.console.views.message_filter import FilterQuery, MessageFilter
from orbitlog.console.views.message_rows import MessageRow, message_row
from orbitlog.console.web.endpoint import API_PREFIX, decode_query

PATH = API_PREFIX + "/clusters/{cluster}/topics/{topic}/tail"
_EVENT_SECONDS = 0.25
_MESSAGES_PER_EVENT = 50  # 200 messages a second
_HEARTBEAT_SECONDS = 15.0
_RETRY_MS = 2000


class TailEvent(Answer, kw_only=True):
    """One event: new messages, and totals since the tail began."""

    messages: list[MessageRow]
    seen: int
    dropped: int
    problem: str | None = None


class TailStream:
    """The route of the tail."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._feeds = TailFeeds()

    def routes(self) -> list[Route]:
        return [Route(PATH, self._serve)]

    async def _serve(self, request: Request) -> Response:
        query = decode_query(FilterQuery, dict(request.query_params))
        call = Call(self._console, request.scope[VISITOR], request.path_params, query)
        if call.visitor.role < Role.VIEWER:
            raise ConsoleError(401, "sign in first")
        source, topic = call.cluster, call.path["topic"]
        await sample_with_topic(source, topic)
        if self._feeds.viewer_count >= VIEWERS_MAX:
            raise ConsoleError(503, f"{VIEWERS_MAX} tails are open already; close one")
        assert isinstance(query, FilterQuery)
        if not call.may_view_bodies:
            refuse_body_search(query)
        viewer = Viewer(MessageFilter(query).wants)
        events = self._events(source, topic, viewer, with_bodies=call.may_view_bodies)
        return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    async def _events(
        self, source: ClusterSource, topic: str, viewer: Viewer, *, with_bodies: bool
    ) -> AsyncIterator[bytes]:
        feed = self._feeds.join(source, topic, viewer)
        loop = asyncio.get_running_loop()
        sent_s, reported = loop.time(), (-1, -1, viewer.problem)
        try:
            yield f"retry: {_RETRY_MS}\n\n".encode()
            while not feed.has_ended:  # after the end of the stream the page connects again
                messages = viewer.take(_MESSAGES_PER_EVENT)
                state = viewer.seen, viewer.dropped, viewer.problem
                # The first event shows that the tail has begun: a later message is shown or counted as dropped.
                if messages or (state != reported and (feed.has_begun or viewer.problem)):
                    rows = [message_row(message) for message in messages]
                    rows = rows if with_bodies else without_previews(rows)
                    event = TailEvent(messages=rows, seen=state[0], dropped=state[1], problem=state[2])
                    yield b"data: " + msgspec.json.encode(event) + b"\n\n"
                    sent_s, reported = loop.time(), state
                elif loop.time() - sent_s > _HEARTBEAT_SECONDS:
                    yield b": heartbeat\n\n"
                    sent_s = loop.time()
                await asyncio.sleep(_EVENT_SECONDS)
        finally:
            await self._feeds.leave(source, topic, viewer)
