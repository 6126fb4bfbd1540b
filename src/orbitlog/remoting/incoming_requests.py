"""Incoming requests of one connection, the server role: calls the handler in order of arrival, sends responses.

A handler answers at once, with an awaitable, or later through `respond`. Responses leave in the order in which they are
ready; those that are ready at once leave in one write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from enum import Enum
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from orbitlog.errors import RequestRefused, WireError
from orbitlog.remoting.flow import FRAMES_PER_WRITE, LARGE_FRAME_BYTES, Flow
from orbitlog.remoting.loop_slices import loop_turns
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command, encode_command, response_to
from orbitlog.wire.frames import REFUSED, Frame, FrameDecoder
from orbitlog.wire.request_budgets import UNCHECKED_BYTES, BudgetRefusal

if TYPE_CHECKING:
    from orbitlog.remoting.backpressure import Backpressure
    from orbitlog.remoting.connection import Connection
    from orbitlog.remoting.memory_budget import ConnectionMemory
    from orbitlog.remoting.outgoing_requests import OutgoingRequests

log = logging.getLogger(__name__)


class _NoAnswer(Enum):
    NO_ANSWER = "no answer"
    HELD = "held"


NO_ANSWER: Final = _NoAnswer.NO_ANSWER
"""Returned by a handler for a request that is never answered."""
HELD: Final = _NoAnswer.HELD
"""Returned by a handler that holds a request (long polling) and limits how many it holds.

Such a request keeps neither its body nor its fields. It counts as unanswered, but it delays no other request.
"""


class LongPoll:
    """An answer that its handler delays on purpose until there is news: the wait is not reported as slow."""

    def __init__(self, answer: Awaitable[Answer]) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, None, Answer]:
        return self._answer.__await__()


Answer = Command | bytes | _NoAnswer | None
Handler = Callable[["Connection", Command], Answer | Awaitable[Answer]]
FastPath = Callable[["Connection", deque[Frame], list[bytes]], None]
"""Removes the frames that it can serve at once from the front of a backlog, and appends their responses in order.

Responses that are not ready yet it counts with `Connection.owe`.
"""

_NO_FIELDS: dict[str, str] = {}  # of held requests; never changed
_READY = (bytes, Command)  # a tuple built once: `bytes | Command` would build a union for each request
# A body was refused while it was received, and would be allowed now: it has been skipped all the same.
_BUDGET_CHANGED = BudgetRefusal(None, ResponseCode.SYSTEM_BUSY, "the size limit was changed; send the request again")
REQUESTS_PER_TURN = 64
"""Requests of one connection that handlers get in one turn of the event loop: others are served in between.

A read can have thousands of them. Requests that the fast path serves do not count.
"""
TURN_SECONDS = 0.0005
"""Time after which a connection gives way even if it had fewer: most requests take some tens of microseconds."""
_now_s = time.monotonic
_REQUEST_BYTES = 512  # approximate memory of a request without its body and a long header
_HEADER_BYTES = 2 * 1024


class IncomingRequests:
    """Requests of the peer: those read but not yet handled (the backlog), and those without a response."""

    def __init__(
        self,
        connection: Connection,
        handler: Handler,
        fast_path: FastPath | None,
        *,
        flow: Flow,
        memory: ConnectionMemory,
        backpressure: Backpressure,
        outgoing: OutgoingRequests,
    ) -> None:
        self._connection = connection
        self._handler = handler
        self.fast_path = fast_path
        self._flow = flow
        self._memory = memory
        self._backpressure = backpressure
        self._outgoing = outgoing
        self.decoder = FrameDecoder(limits=flow.limits.wire)
        self.backlog: deque[Frame] = deque()
        # A list while the backlog is being handled: responses are collected and leave in one write. None otherwise.
        self._batch: list[bytes] | None = None
        self._in_flight: dict[int, Command] = {}  # by id(): two requests may have the same opaque number
        self._long_headers: dict[int, int] = {}  # bytes by id() of those requests in flight that have one
        self._header_bytes = 0  # of the request being handled, if it is long
        self._handling: Command | None = None  # the request given to the handler last, until it is answered
        self.owed_count = 0  # requests in flight of which only the number is kept
        self._in_flight_max = flow.limits.unanswered_per_connection  # minus `owed_count`
        self._answer_callbacks: dict[int, list[Callable[[], object]]] = {}  # by id() of requests being handled
        self._turns = loop_turns()
        self.waits_for_turn = False
        """Whether the backlog waits for a turn of the event loop."""

    @property
    def is_congested(self) -> bool:
        """Return whether no more requests may be handled now."""
        memory = self._memory
        return (
            self._backpressure.is_writing_paused
            or memory.budget.is_full
            or len(self._in_flight) >= self._in_flight_max
            or memory.working_bytes > memory.address.work_per_connection
        )

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the backlog and of an unfinished frame."""
        waiting = sum(len(header) + len(body) for _, header, body in self.backlog) if self.backlog else 0
        return self.decoder.kept_bytes + waiting

    @property
    def is_handling(self) -> bool:
        """Return whether the backlog is being handled: true only inside a handler."""
        return self._batch is not None

    @property
    def in_flight_count(self) -> int:
        """Requests given to handlers that have no response."""
        return len(self._in_flight) + self.owed_count

    # Responses

    def respond(self, request: Command, answer: Command | bytes) -> None:
        self._settle(request)
        if not (request.flag & FLAG_ONEWAY or self._connection.is_closed):
            self._send(self._answer_frame(request, answer))
        if self._answer_callbacks:
            self._call_answered(request)

    def respond_all(self, answers: Iterable[tuple[Command, Command | bytes]]) -> None:
        batch = self._batch
        frames = [] if batch is None else batch
        for request, answer in answers:
            self._settle(request)
            if request.flag & FLAG_ONEWAY or self._connection.is_closed:
                continue
            frame = answer if isinstance(answer, bytes) else self._answer_frame(request, answer)
            frames.append(frame)
            if batch is None and (len(frame) > LARGE_FRAME_BYTES or len(frames) >= FRAMES_PER_WRITE):
                self._connection.write_frames(frames)
        if batch is None:
            self._connection.write_frames(frames)

    def owe(self, count: int) -> None:
        self.owed_count += count
        self._in_flight_max -= count
        self._memory.add_work(count * _REQUEST_BYTES)

    def respond_owed(self, frames: list[bytes]) -> None:
        count = len(frames)
        self.owed_count -= count
        self._in_flight_max += count
        if self._batch is None:
            self._connection.write_frames(frames)
        else:
            self._batch += frames
        self._memory.remove_work(count * _REQUEST_BYTES)

    def forget(self, request: Command) -> None:
        self._settle(request)
        self._answer_callbacks.pop(id(request), None)

    def when_answered(self, request: Command, callback: Callable[[], object]) -> None:
        self._answer_callbacks.setdefault(id(request), []).append(callback)

    def lose_connection(self, lost: Connection) -> None:
        """Refer to a stand-in from now on: the connection has ended."""
        self._connection = lost

    def close(self) -> None:
        """Drop all requests."""
        self.backlog.clear()
        self._answer_callbacks.clear()
        self._in_flight = {}
        self._long_headers = {}
        self.owed_count = 0

    # Requests

    def handle_backlog(self) -> None:
        """Pass the backlog to the fast path and the handler until congested; write ready responses together."""
        if self._batch is not None or self.waits_for_turn:
            return  # called from within a handler: the loop below continues after it returns
        batch: list[bytes] = []
        self._batch = batch
        backlog, fast_path, connection = self.backlog, self.fast_path, self._connection
        left, begun_s, gives_way = REQUESTS_PER_TURN, -1.0, False
        try:
            while backlog and not self.is_congested:
                if fast_path is not None:
                    fast_path(connection, backlog, batch)
                    if not backlog:
                        break
                count = len(batch)
                if count < FRAMES_PER_WRITE:
                    if begun_s < 0:
                        begun_s = self._begin_turn()
                        gives_way = begun_s < 0
                    else:
                        gives_way = not left or _now_s() >= begun_s + TURN_SECONDS
                    if gives_way:
                        break
                    left -= 1
                    self._take(backlog.popleft())
                    if not backlog:
                        break
                    count = len(batch)
                if count >= FRAMES_PER_WRITE or (count and len(batch[-1]) > LARGE_FRAME_BYTES):
                    connection.write_frames(batch)
        except WireError:
            backlog.clear()  # the decoder keeps the failure; where the next frame starts is unknown
        finally:
            self._batch = None
            self._end_turn(batch, begun_s, gives_way)

    def _begin_turn(self) -> float:
        """Return the time if requests may be handled now; -1 if the backlog must wait.

        With a single client address nothing waits. Few calls: the long polls of thousands of consumers come here.
        """
        turns, flow, now_s = self._turns, self._flow, _now_s()
        if now_s - turns.last_s > flow.turn_seconds:
            turns.left_s = flow.turn_seconds
        if flow.has_several_addresses and not turns.is_running and (turns.left_s <= 0 or turns.waiting):
            return -1.0
        return now_s

    def _end_turn(self, batch: list[bytes], begun_s: float, gives_way: bool) -> None:
        """Write the responses; count the time since `begun_s`, unless it is negative."""
        connection, limits = self._connection, self._flow.limits
        if batch:
            connection.write_frames(batch)
        now_s = _now_s()
        if begun_s >= 0:
            self._turns.charge(connection.remote_address[0], begun_s, now_s)
        if gives_way:
            self.waits_for_turn = True
            self._turns.add(connection.remote_address[0], self._take_turn, self._flow.counters)
        if now_s - connection.active_at > limits.slow_seconds:
            slow_requests().report_turn(connection, self._handling, limits.last_append_ms())

    def _take_turn(self) -> None:
        self.waits_for_turn = False
        self._connection.resume()

    def _take(self, frame: Frame) -> None:
        command = self.decoder.decode(frame)
        self._header_bytes = 0
        if frame[0] >= REFUSED or len(frame[1]) + len(frame[2]) > UNCHECKED_BYTES:
            if self._is_refused(frame, command):
                return
            self._header_bytes = len(frame[1])
        if command.flag & FLAG_RESPONSE:
            self._outgoing.receive(command)
        else:
            self._handle(command)

    def _is_refused(self, frame: Frame, command: Command) -> bool:
        """Answer a request that is over the budget of its code; return whether it is."""
        is_cut = frame[0] >= REFUSED
        refusal = self.decoder.refusal(frame, command, int.from_bytes(frame[2]) if is_cut else len(frame[2]))
        if refusal is None:
            if not is_cut:
                return False
            refusal = _BUDGET_CHANGED
        if refusal.limit is not None:
            self._flow.counters.reach(refusal.limit)
        answer = response_to(command, refusal.code, refusal.remark)
        if command.flag & FLAG_RESPONSE:
            self._outgoing.receive(answer)  # the caller learns why it gets no response
        elif not command.flag & FLAG_ONEWAY:
            self._send(encode_command(answer))
        return True

    def _handle(self, request: Command) -> None:
        self._handling = request
        try:
            answer = self._handler(self._connection, request)
        except Exception as error:  # noqa: BLE001 - a request boundary: the failure is the answer
            answer = failure_answer(self._connection, request, error)
        if isinstance(answer, _READY):
            if not request.flag & FLAG_ONEWAY:
                self._send(self._answer_frame(request, answer))
            if self._answer_callbacks:
                self._call_answered(request)
        elif answer is None:
            # The handler may have called `respond` before it returned: then the request is not in flight any more.
            if self._handling is request and not request.flag & FLAG_ONEWAY:
                self._hold(request)
        elif answer is HELD:
            if self._handling is request:
                self._park(request)
        elif answer is not NO_ANSWER:
            self._hold(request)
            self._flow.start(asyncio.get_running_loop().create_task(self._answer_when_ready(request, answer)))

    async def _answer_when_ready(self, request: Command, pending: Awaitable[Answer]) -> None:
        started_s, slow_s = monotonic(), self._flow.limits.slow_seconds
        try:
            answer = await pending
        except Exception as error:  # noqa: BLE001 - a request boundary: the failure is the answer
            answer = failure_answer(self._connection, request, error)
        if (waited_s := monotonic() - started_s) > slow_s and not isinstance(pending, LongPoll):
            slow_requests().report_awaited(self._connection, request, waited_s)
        if isinstance(answer, _READY):
            self._connection.respond(request, answer)
        elif answer is NO_ANSWER or request.flag & FLAG_ONEWAY:
            self._connection.forget(request)

    def _call_answered(self, request: Command) -> None:
        for callback in self._answer_callbacks.pop(id(request), ()):
            callback()

    def _answer_frame(self, request: Command, answer: Command | bytes) -> bytes:
        if isinstance(answer, bytes):
            return answer
        try:
            return encode_command(answer)
        except WireError as error:
            return encode_command(failure_answer(self._connection, request, error))

    def _hold(self, request: Command) -> None:
        """Count a request as in flight. Keeping it also keeps its id() from being reused."""
        self._in_flight[id(request)] = request
        if self._header_bytes > _HEADER_BYTES:
            # Fields of it are kept as text, and often a second time as a list.
            self._long_headers[id(request)] = 2 * self._header_bytes
            self._memory.add_work(2 * self._header_bytes)
        self._memory.add_work(_counted_bytes(request))

    def _park(self, request: Command) -> None:
        """Keep a held request: only what its response needs, and outside the limits of requests in work."""
        request.body = b""
        request.ext_fields = _NO_FIELDS
        if request.flag & FLAG_ONEWAY:
            return
        self._in_flight[id(request)] = request
        self._in_flight_max += 1
        self._memory.add_held(1)

    def _settle(self, request: Command) -> None:
        if self._handling is request:
            self._handling = None
        if self._in_flight.pop(id(request), None) is not None:
            if request.ext_fields is _NO_FIELDS:
                self._in_flight_max -= 1
                self._memory.add_held(-1)
            else:
                header_bytes = self._long_headers.pop(id(request), 0) if self._long_headers else 0
                self._memory.remove_work(_counted_bytes(request) + header_bytes)

    def _send(self, frame: bytes) -> None:
        if self._batch is not None:
            self._batch.append(frame)
        else:
            self._connection.write_frames([frame])


def slow_requests() -> ModuleType:
    """Import the report of slow requests, which most servers never need."""
    from orbitlog.remoting import slow_requests as reports

    return reports


def _counted_bytes(request: Command) -> int:
    return len(request.body) + _REQUEST_BYTES


def failure_answer(connection: Connection, request: Command, error: Exception) -> Command:
    """Return the response to a request whose handler raised: the code of a refusal, otherwise SYSTEM_ERROR."""
    from orbitlog.remoting.error_ids import failed_answer, refusal_answer  # imported with the first error

    if isinstance(error, RequestRefused):
        return refusal_answer(connection.peer, request, error)
    return failed_answer(connection.peer, request, error)
