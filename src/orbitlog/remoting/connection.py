"""One connection of either end: frames in, frames out, and what waits for an answer in both directions.

Requests of the peer go to the handler in the order of their arrival. It answers at once, with an awaitable, or later
through `respond`; answers leave in the order in which they are ready, and those that are ready at once leave in one
write. Our own requests have opaque numbers of their own: a response is known by its flag.

Back-pressure: a connection stops reading (and works off nothing more of what it has read) while its peer does not
take the answers, while too many of its requests are in the works, and while all connections together hold too many
bytes. The protocol sees a transport and nothing else: TLS goes below it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from typing import Final, cast

from orbitlog.errors import ConnectionLost, OrbitlogError, RequestRefused, RequestTimeout, WireError
from orbitlog.formats.java import INT_MAX
from orbitlog.remoting.flow import Flow
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command, encode_command, response_to
from orbitlog.wire.frames import Frame, FrameDecoder

log = logging.getLogger(__name__)


class _NoAnswer(Enum):
    NO_ANSWER = "no answer"


NO_ANSWER: Final = _NoAnswer.NO_ANSWER
"""What a handler returns for a request that is never answered."""

Answer = Command | bytes | _NoAnswer | None
Handler = Callable[["Connection", Command], Answer | Awaitable[Answer]]
QuickHandler = Callable[["Connection", deque[Frame], list[bytes]], None]
"""Takes frames off the front of a backlog that it can serve at once, and adds their answers, in the same order.

Answers that are not ready yet it owes (`Connection.owe`).
"""
Address = tuple[str, int]

_AT_ONCE = (bytes, Command)  # a tuple made once: the union of both would be made anew for each request
_REQUEST_BYTES = 512  # what a request without a body costs in memory, roughly
_ANSWERS_A_WRITE = 64
_LARGE_ANSWER = 64 * 1024
_LARGE_PART = 64 * 1024


class Connection(asyncio.Protocol):
    """Both ends use it; `handler` gets what the peer asks.

    A handler returns a `Command` (or a whole frame), an awaitable of one, None for "later, by `respond`", or
    `NO_ANSWER`. What it raises becomes an answer, too. `quick` is asked first, with frames that nobody looked into.
    """

    def __init__(self, handler: Handler, flow: Flow, quick: QuickHandler | None = None) -> None:
        self._handler = handler
        self._quick = quick
        self._flow = flow
        self._limits = flow.limits
        self._decoder = FrameDecoder(limits=flow.limits.wire)
        self._backlog: deque[Frame] = deque()
        self._outgoing: list[bytes] | None = None  # a list while a batch of requests is worked off
        self._asked: list[bytes] = []  # our own requests of this turn of the loop, which leave in one write
        self._taken = asyncio.Event()
        self._working: dict[int, Command] = {}  # requests of the peer without an answer, by id()
        self._handling: Command | None = None  # the request that the handler was given last, until it is answered
        self._owed_count = 0  # further requests of the peer without an answer, of which nothing is kept
        self._working_max = flow.limits.unanswered_per_connection  # less those that are owed
        self._waiting: dict[int, asyncio.Future[Command]] = {}  # our own requests, by opaque
        self._last_opaque = 0
        self._close_callbacks: list[Callable[[Connection], object]] = []
        self._end_callbacks: list[Callable[[Connection], object]] = []
        self._answer_callbacks: dict[int, list[Callable[[], object]]] = {}  # by id() of requests that are being handled
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._unfinished_bytes = 0
        self._reading_paused = False
        self._writing_paused = False
        self._takes_no_more = False
        self._closes_when_answered = False
        self._active_at = self._loop.time()
        self.remote_address: Address = ("", 0)
        self.local_address: Address = ("", 0)
        self.is_closed = False

    # What handlers and owners use

    def respond(self, request: Command, answer: Command | bytes) -> None:
        """Answer a request for which the handler returned None. Too late, or to a one-way request: nothing is sent."""
        self._forget(request)
        if not (request.flag & FLAG_ONEWAY or self.is_closed):
            self._send(self._answer_frame(request, answer))
        if self._answer_callbacks:
            self._call_answered(request)
        self.go_on()

    def respond_all(self, answers: Iterable[tuple[Command, Command | bytes]]) -> None:
        """Answer several such requests, in one write where they are small."""
        is_inside = self._outgoing is not None
        outgoing = [] if self._outgoing is None else self._outgoing
        for request, answer in answers:
            self._forget(request)
            if request.flag & FLAG_ONEWAY or self.is_closed:
                continue
            frame = self._answer_frame(request, answer)
            outgoing.append(frame)
            if not is_inside and (len(frame) > _LARGE_ANSWER or len(outgoing) >= _ANSWERS_A_WRITE):
                self._write(outgoing)
        if not is_inside:
            self._write(outgoing)
            if self._backlog or self._reading_paused or self._closes_when_answered:
                self.go_on()

    def owe(self, count: int) -> None:
        """Count requests that the quick handler took and answers later, by `respond_owed`."""
        self._owed_count += count
        self._working_max -= count
        self._flow.add(count * _REQUEST_BYTES)

    def respond_owed(self, frames: list[bytes]) -> None:
        """Answer as many such requests, in one write."""
        if self.is_closed:
            return
        count = len(frames)
        self._owed_count -= count
        self._working_max += count
        if self._outgoing is None:
            self._write(frames)
        else:
            self._outgoing += frames
        self._flow.remove(count * _REQUEST_BYTES)
        if self._backlog or self._reading_paused or self._closes_when_answered:
            self.go_on()

    def forget(self, request: Command) -> None:
        """Give up a request for which the handler returned None: it is never answered."""
        self._forget(request)
        self._answer_callbacks.pop(id(request), None)
        self.go_on()

    def when_answered(self, request: Command, callback: Callable[[], object]) -> None:
        """Call back once when the request that is being handled has been answered; never if the peer is gone first."""
        self._answer_callbacks.setdefault(id(request), []).append(callback)

    def on_close(self, callback: Callable[[Connection], object]) -> None:
        """Call back once when the connection is gone; at once if it is."""
        if self.is_closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    def on_end_of_requests(self, callback: Callable[[Connection], object]) -> None:
        """Call back when the peer has closed its half: what it waits for long should be answered now."""
        self._end_callbacks.append(callback)

    async def request(self, command: Command, timeout: float) -> Command:  # noqa: ASYNC109 - one timer, no task
        """Ask the peer; returns its answer, whatever the code. Gives `command` its opaque number."""
        self._refuse_when_closed()
        command.opaque = opaque = self._next_opaque()
        frame = encode_command(command)
        future: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[opaque] = future
        timer = self._loop.call_later(timeout, self._time_out, opaque, command.code, timeout)
        try:
            self._ask(frame)
            return await future
        finally:
            timer.cancel()
            self._waiting.pop(opaque, None)

    def reserve_opaque(self) -> int:
        """Return the number of a request whose frame the caller makes."""
        self._refuse_when_closed()
        return self._next_opaque()

    def ask_frame(self, opaque: int, frame: bytes) -> asyncio.Future[Command]:
        """Ask with a whole frame that has this number; the caller limits the time, by `forget_request`."""
        future: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[opaque] = future
        self._ask(frame)
        return future

    def forget_request(self, opaque: int) -> None:
        """Wait no more for the answer to a request of ours."""
        self._waiting.pop(opaque, None)

    def request_oneway(self, command: Command) -> None:
        """Tell the peer; no answer is expected."""
        self._refuse_when_closed()
        command.opaque = self._next_opaque()
        command.flag |= FLAG_ONEWAY
        self._ask(encode_command(command))

    @property
    def is_slow(self) -> bool:
        """Tell whether the peer takes what is sent more slowly than it is written."""
        return self._writing_paused

    async def wait_until_taken(self, timeout: float) -> None:  # noqa: ASYNC109 - an error of its own
        """Wait until the peer has taken most of what was sent to it."""
        self._taken.clear()
        try:
            async with asyncio.timeout(timeout):
                while self._writing_paused and not self.is_closed:
                    await self._taken.wait()
        except TimeoutError:
            raise RequestTimeout(f"{self.peer} takes nothing more for {timeout:g} s") from None

    def close(self) -> None:
        """Close after what is written has been sent."""
        self._write(self._asked)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Take nothing more, and close as soon as what was taken is answered."""
        self._takes_no_more = True
        self._closes_when_answered = True
        self._pause_reading()
        self.go_on()

    @property
    def peer(self) -> str:
        """The remote address as people and Java write it."""
        return f"{self.remote_address[0]}:{self.remote_address[1]}"

    @property
    def unanswered(self) -> int:
        """Requests of the peer that are taken and not answered."""
        return len(self._working) + self._owed_count + len(self._backlog)

    @property
    def is_congested(self) -> bool:
        """Tell whether nothing more is to be taken now: of answers that wait, or that the peer does not take."""
        return self._writing_paused or self._flow.is_full or len(self._working) >= self._working_max

    def idle_seconds(self, now: float) -> float:
        return now - self._active_at

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports are such without inheriting from it
        self._transport = transport
        transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        self.remote_address = _address(transport.get_extra_info("peername"))
        self.local_address = _address(transport.get_extra_info("sockname"))
        self._flow.opened(self)

    def data_received(self, data: bytes) -> None:
        self._active_at = self._loop.time()
        if self._takes_no_more:
            return
        try:
            self._backlog += self._decoder.receive_frames(data)
        except WireError:
            pass  # kept as the decoder's failure, which is looked at below
        self._work()
        decoder = self._decoder
        if decoder.failure is not None:
            self._look_at_failure()
        unfinished = decoder.kept_bytes
        if unfinished != self._unfinished_bytes:
            self._count_unfinished(unfinished)

    def _look_at_failure(self) -> None:
        """Cut off whoever sent what is no frame, once what came before it is answered."""
        if self._takes_no_more:
            return
        if self._flow.garbage.is_worth_a_line():
            times = self._flow.garbage.count
            reason = self._decoder.failure
            log.warning("%s sent what is no frame (number %d), so it is cut off: %s", self.peer, times, reason)
        self.drain()

    def _count_unfinished(self, size: int) -> None:
        """Cut off whoever begins large frames while too much of others' is begun: nobody else could finish."""
        flow = self._flow
        flow.unfinished_bytes += size - self._unfinished_bytes
        self._unfinished_bytes = size
        if flow.unfinished_bytes > self._limits.unfinished_bytes and size > _LARGE_PART:
            if flow.garbage.is_worth_a_line():
                log.warning(
                    "%d bytes of unfinished frames are held, so %s is cut off", flow.unfinished_bytes, self.peer
                )
            self.abort()

    def eof_received(self) -> bool:
        # The peer may have closed only its half: it gets the answers to what it asked, then we close ours.
        self._takes_no_more = True
        self._closes_when_answered = True
        self._call_back(self._end_callbacks)
        if not self.unanswered:
            return False
        # More often the peer is gone altogether, and whoever holds one of its requests should learn that soon.
        self._loop.call_later(self._limits.half_closed_seconds, self.close)
        return True

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._active_at = self._loop.time()
        self._taken.set()
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._taken.set()
        self._flow.unfinished_bytes -= self._unfinished_bytes
        self._unfinished_bytes = 0
        self._backlog.clear()
        self._answer_callbacks.clear()
        working, self._working = self._working, {}
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost(f"{self.peer} closed the connection before it answered"))
        owed_bytes, self._owed_count = self._owed_count * _REQUEST_BYTES, 0
        self._flow.closed(self, sum(map(_working_bytes, working.values())) + owed_bytes)
        callbacks, self._close_callbacks = self._close_callbacks, []
        self._call_back(callbacks)

    def _call_back(self, callbacks: list[Callable[[Connection], object]]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # one that fails does not keep the others from learning that the peer is gone
                log.exception("what was to be done at the end of the connection to %s failed", self.peer)

    # Requests in

    def _work(self) -> None:
        """Hand what was read to the handler, and send what is answered at once in one write."""
        if self._outgoing is not None:
            return  # a handler answered another request from within: the loop below goes on
        outgoing: list[bytes] = []
        self._outgoing = outgoing
        backlog, quick = self._backlog, self._quick
        try:
            while backlog and not self.is_congested:
                if quick is not None:
                    quick(self, backlog, outgoing)
                count = len(outgoing)
                if backlog and count < _ANSWERS_A_WRITE:
                    self._take(backlog.popleft())
                    count = len(outgoing)
                if backlog and (count >= _ANSWERS_A_WRITE or (count and len(outgoing[-1]) > _LARGE_ANSWER)):
                    self._write(outgoing)
        except WireError:
            backlog.clear()  # kept as the decoder's failure, and where the next frame would start is not known
        finally:
            self._outgoing = None
            if outgoing:
                self._write(outgoing)
        if backlog:
            self._pause_reading()

    def _write(self, outgoing: list[bytes]) -> None:
        if outgoing:
            data = b"".join(outgoing) if len(outgoing) > 1 else outgoing[0]
            outgoing.clear()
            self._put(data)

    def _take(self, frame: Frame) -> None:
        command = self._decoder.decode(frame)
        if command.flag & FLAG_RESPONSE:
            self._take_response(command)
        else:
            self._take_request(command)

    def _take_request(self, request: Command) -> None:
        self._handling = request
        try:
            answer = self._handler(self, request)
        except Exception as error:  # noqa: BLE001 - a request boundary: the failure is the answer
            answer = failure_answer(self, request, error)
        if isinstance(answer, _AT_ONCE):
            if not request.flag & FLAG_ONEWAY:
                self._send(self._answer_frame(request, answer))
            if self._answer_callbacks:
                self._call_answered(request)
        elif answer is None:
            # The handler may have answered through `respond` before it returned.
            if self._handling is request and not request.flag & FLAG_ONEWAY:
                self._keep(request)
        elif answer is not NO_ANSWER:
            self._keep(request)
            self._flow.start(self._loop.create_task(self._answer_when_ready(request, answer)))

    async def _answer_when_ready(self, request: Command, coming: Awaitable[Answer]) -> None:
        try:
            answer = await coming
        except Exception as error:  # noqa: BLE001 - a request boundary: the failure is the answer
            answer = failure_answer(self, request, error)
        if isinstance(answer, _AT_ONCE):
            self.respond(request, answer)
        elif answer is NO_ANSWER or request.flag & FLAG_ONEWAY:
            self.forget(request)

    def _call_answered(self, request: Command) -> None:
        for callback in self._answer_callbacks.pop(id(request), ()):
            callback()

    def _answer_frame(self, request: Command, answer: Command | bytes) -> bytes:
        if isinstance(answer, bytes):
            return answer
        try:
            return encode_command(answer)
        except WireError as error:
            return encode_command(failure_answer(self, request, error))

    def _keep(self, request: Command) -> None:
        self._working[id(request)] = request
        self._flow.add(_working_bytes(request))

    def _forget(self, request: Command) -> None:
        if self._handling is request:
            self._handling = None
        if self._working.pop(id(request), None) is not None:
            self._flow.remove(_working_bytes(request))

    # Responses in

    def _take_response(self, response: Command) -> None:
        future = self._waiting.pop(response.opaque, None)
        if future is not None and not future.done():
            future.set_result(response)

    def _time_out(self, opaque: int, code: int, timeout: float) -> None:
        future = self._waiting.pop(opaque, None)
        if future is not None and not future.done():
            future.set_exception(RequestTimeout(f"{self.peer} did not answer request {code:d} within {timeout:g} s"))

    def _next_opaque(self) -> int:
        self._last_opaque = self._last_opaque + 1 if self._last_opaque < INT_MAX else 1
        return self._last_opaque

    def _refuse_when_closed(self) -> None:
        if self.is_closed or self._transport is None or self._transport.is_closing():
            raise ConnectionLost(f"the connection to {self.peer} is closed")

    # Out, and flow

    def _send(self, frame: bytes) -> None:
        if self._outgoing is not None:
            self._outgoing.append(frame)
        else:
            self._put(frame)

    def _ask(self, frame: bytes) -> None:
        """Send a request of our own: many tasks that ask in the same turn of the loop share one write."""
        self._asked.append(frame)
        if len(self._asked) == 1:
            self._loop.call_soon(self._write, self._asked)
        elif len(self._asked) >= _ANSWERS_A_WRITE or len(frame) > _LARGE_ANSWER:
            self._write(self._asked)

    def _put(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _pause_reading(self) -> None:
        if self._reading_paused or self._transport is None or self._transport.is_closing():
            return
        self._reading_paused = True
        self._flow.paused(self)
        self._transport.pause_reading()

    def go_on(self) -> None:
        """Work off what had to wait, and read on, as far as nothing speaks against it; close if that was all."""
        if self.is_closed or self._outgoing is not None or self.is_congested or self._transport is None:
            return
        if self._backlog:
            self._work()
            if self._decoder.failure is not None:
                self._look_at_failure()
        if self._backlog or self.is_congested:
            return
        if self._closes_when_answered:
            if not (self._working or self._owed_count):
                self.close()
        elif self._reading_paused:
            self._reading_paused = False
            self._flow.resumed(self)
            if not self._transport.is_closing():
                self._transport.resume_reading()


def _working_bytes(request: Command) -> int:
    return len(request.body) + _REQUEST_BYTES


def failure_answer(connection: Connection, request: Command, error: Exception) -> Command:
    """Turn what a handler raised into an answer: refusals as they are, the rest as code 1 with the reason."""
    if isinstance(error, RequestRefused):
        return response_to(request, error.code, error.remark)
    if isinstance(error, OrbitlogError):
        log.warning("request %d from %s failed: %s", request.code, connection.peer, error)
    else:
        log.error("request %d from %s failed", request.code, connection.peer, exc_info=error)
    return response_to(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


def _address(name: object) -> Address:
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]).removeprefix("::ffff:"), int(name[1])
    return "", 0
