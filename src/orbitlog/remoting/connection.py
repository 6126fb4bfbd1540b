"""Connection: one TCP connection of RocketMQ's protocol, the same at both ends.

It connects the event loop's transport with three parts: `IncomingRequests` (server role), `OutgoingRequests` (client
role) and `Backpressure`. It uses nothing but the transport: TLS is a transport of its own (`tls.tls_transport`). All of
it runs in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import cast

from orbitlog.errors import RequestTimeout, WireError
from orbitlog.remoting.backpressure import Backpressure
from orbitlog.remoting.flow import LARGE_FRAME_BYTES, Flow
from orbitlog.remoting.incoming_requests import (
    HELD,
    NO_ANSWER,
    Answer,
    FastPath,
    Handler,
    IncomingRequests,
    failure_answer,
)
from orbitlog.remoting.memory_budget import ConnectionMemory
from orbitlog.remoting.outgoing_requests import OutgoingRequests
from orbitlog.wire.command import Command

__all__ = ["HELD", "NO_ANSWER", "Address", "Answer", "Connection", "FastPath", "Handler", "failure_answer"]

log = logging.getLogger(__name__)

Address = tuple[str, int]


class LostConnection:
    """Stands in for a connection after its end, in the parts that refer to it; does nothing."""

    __slots__ = ("end_reason", "peer")
    is_closed = is_closing = True

    def __init__(self, peer: str, end_reason: str) -> None:
        self.peer = peer
        self.end_reason = end_reason

    def write_frames(self, frames: list[bytes]) -> None:
        frames.clear()

    def respond(self, request: Command, answer: Command | bytes) -> None:
        """Drop a response that was ready too late."""

    def forget(self, request: Command) -> None:
        """Drop a request that ended too late."""

    def resume(self) -> None:
        """Do nothing: no request is left."""


class Connection(asyncio.Protocol):
    """One connection; `handler` gets the peer's requests.

    A handler returns a `Command` (or a whole frame), an awaitable of one, None for "later, by `respond`", or
    `NO_ANSWER`. An exception becomes a response as well. `fast_path` is called first, with frames not yet decoded.
    """

    def __init__(self, handler: Handler, flow: Flow, fast_path: FastPath | None = None) -> None:
        self._flow = flow
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.memory = ConnectionMemory(flow.memory)
        self._backpressure = Backpressure(self, flow)
        self.outgoing = OutgoingRequests(self, self._loop)
        self.incoming = IncomingRequests(
            self,
            handler,
            fast_path,
            flow=flow,
            memory=self.memory,
            backpressure=self._backpressure,
            outgoing=self.outgoing,
        )
        self._close_callbacks: list[Callable[[Connection], object]] = []
        self._end_callbacks: list[Callable[[Connection], object]] = []
        self._takes_no_more = False
        self._closes_when_answered = False
        self.active_at = self._opened_at = self._loop.time()
        self.remote_address: Address = ("", 0)
        self.local_address: Address = ("", 0)
        self.descriptor = -1
        self.certificate_name = ""
        """User that the verified certificate of the peer names (`tlsPrincipalFrom`)."""
        self.is_secured = False  # whether TLS protects it
        self.end_reason = ""
        """Why TLS ended the connection, if it did."""
        self.is_closed = False

    # Responses to the peer's requests

    def respond(self, request: Command, answer: Command | bytes) -> None:
        """Answer a request for which the handler returned None; send nothing if it is one-way or the peer is gone."""
        self.incoming.respond(request, answer)
        self.resume()

    def respond_all(self, answers: Iterable[tuple[Command, Command | bytes]]) -> None:
        """Answer several such requests, small responses in one write."""
        incoming = self.incoming
        incoming.respond_all(answers)
        if incoming.backlog or self._backpressure.is_reading_paused or self._closes_when_answered:
            self.resume()

    def owe(self, count: int) -> None:
        """Count requests that the fast path took and answers later, by `respond_owed`."""
        self.incoming.owe(count)

    def respond_owed(self, frames: list[bytes]) -> None:
        """Answer as many such requests as there are frames, in one write."""
        if self.is_closed:
            return
        incoming = self.incoming
        incoming.respond_owed(frames)
        if incoming.backlog or self._backpressure.is_reading_paused or self._closes_when_answered:
            self.resume()

    def forget(self, request: Command) -> None:
        """Drop a request for which the handler returned None: it is never answered."""
        self.incoming.forget(request)
        self.resume()

    def when_answered(self, request: Command, callback: Callable[[], object]) -> None:
        """Call back once the request being handled has been answered; never if the peer is gone first."""
        self.incoming.when_answered(request, callback)

    @property
    def unanswered(self) -> int:
        """Number of the peer's requests that were read and not answered."""
        return self.incoming.in_flight_count + len(self.incoming.backlog)

    @property
    def is_congested(self) -> bool:
        """Return whether no more requests may be handled now: see `Backpressure`."""
        return self.incoming.is_congested

    # Requests to the peer

    async def request(self, command: Command, timeout: float) -> Command:  # noqa: ASYNC109 - one timer, no task
        """Send a request and return its response, whatever the code; set `command.opaque`.

        Raise `RequestTimeout` without a response in time, `ConnectionLost` if the connection is or gets closed.
        """
        return await self.outgoing.request(command, timeout)

    def request_oneway(self, command: Command) -> None:
        """Send a request without a response; raise `ConnectionLost` if the connection is closed."""
        self.outgoing.request_oneway(command)

    @property
    def is_slow(self) -> bool:
        """Return whether the peer reads more slowly than this end writes."""
        return self._backpressure.is_writing_paused

    async def wait_until_drained(self, timeout: float) -> None:  # noqa: ASYNC109 - an error of its own
        """Return when the write buffer has room; raise `RequestTimeout` if it stays full."""
        try:
            async with asyncio.timeout(timeout):
                await self._backpressure.wait_until_drained()
        except TimeoutError:
            raise RequestTimeout(f"write to {self.peer} timed out after {timeout:g} s: send buffer is full") from None

    # Life cycle

    @property
    def peer(self) -> str:
        """The remote address as `host:port`."""
        return f"{self.remote_address[0]}:{self.remote_address[1]}"

    @property
    def is_closing(self) -> bool:
        """Return whether nothing more can be written."""
        return self.is_closed or self._transport is None or self._transport.is_closing()

    def idle_seconds(self, now: float) -> float:
        """Return for how long nothing was read, at the event loop's time `now`."""
        return now - self.active_at

    def age_seconds(self, now: float) -> float:
        """Return the time since the connection was opened, at the event loop's time `now`."""
        return now - self._opened_at

    def peer_ended(self) -> None:
        """Note that the peer closed its half while this end was not reading, when the event loop does not notice it."""
        if not self._takes_no_more and not self.is_closing and not self.eof_received():
            self.close()

    @property
    def is_waiting_for_peer(self) -> bool:
        """Return whether silence is the peer's: not while this end has its requests in work, or does not read."""
        if self._backpressure.is_writing_paused:
            return True
        return not (self._backpressure.is_reading_paused or self.memory.working_bytes or self.incoming.backlog)

    def note_busy(self, now: float) -> None:
        """Count silence of the peer from `now` on: it waits for responses."""
        self.active_at = now

    @property
    def has_sent_a_frame(self) -> bool:
        """Return whether the peer has ever sent a whole frame."""
        return self.incoming.decoder.has_frames

    def count_unsent(self) -> None:
        """Count the write buffer in the memory budget."""
        transport = self._transport
        size = 0 if transport is None or transport.is_closing() else transport.get_write_buffer_size()
        if size != self.memory.unsent_bytes:
            self.memory.count_unsent(size)

    def on_close(self, callback: Callable[[Connection], object]) -> None:
        """Call back once when the connection is lost; at once if it is."""
        if self.is_closed:
            callback(self)
        else:
            self._close_callbacks.append(callback)

    def on_end_of_requests(self, callback: Callable[[Connection], object]) -> None:
        """Call back when the peer has closed its half: long polls should be answered now."""
        self._end_callbacks.append(callback)

    def close(self) -> None:
        """Close after everything written has been sent."""
        self.write_frames(self.outgoing.unwritten)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now and discard the write buffer."""
        if self._transport is not None:
            self._transport.abort()

    def drain(self) -> None:
        """Read nothing more, and close as soon as the requests read so far are answered."""
        self._takes_no_more = True
        self._closes_when_answered = True
        self._backpressure.pause_reading(self._transport)
        self.resume()

    # Calls of the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        self._transport = transport
        transport.set_write_buffer_limits(high=self._flow.limits.write_buffer_bytes)
        self.remote_address = _address(transport.get_extra_info("peername"))
        self.local_address = _address(transport.get_extra_info("sockname"))
        socket = transport.get_extra_info("socket")
        self.descriptor = -1 if socket is None else socket.fileno()
        if not self._flow.opened(self):
            transport.abort()

    def use_transport(self, transport: asyncio.Transport) -> None:
        """Write to another transport from now on: one that encrypts, above that of `connection_made`."""
        self._transport = transport
        self.is_secured = True

    def data_received(self, data: bytes) -> None:
        self.active_at = self._loop.time()
        if self._takes_no_more:
            return
        incoming = self.incoming
        backlog, decoder, has_waited = incoming.backlog, incoming.decoder, incoming.waits_for_turn
        try:
            backlog += decoder.receive_frames(data)
        except WireError:
            pass  # the decoder keeps the failure; the frames before it are handled first
        incoming.handle_backlog()
        if backlog:
            if incoming.waits_for_turn and not has_waited:
                # Not paused: most turns come before the next read, and a pause costs two system calls.
                self.memory.count_received(decoder.kept_bytes + len(data))
            else:
                self._wait_for_room()
        elif decoder.kept_bytes != self.memory.received_bytes:  # compared here: this runs for every read
            self.memory.count_received(decoder.kept_bytes)
        if decoder.failure is not None:
            self._close_malformed()

    def eof_received(self) -> bool:
        # The peer may have closed only its half: it gets the responses to its requests before this end closes.
        self._takes_no_more = True
        self._closes_when_answered = True
        self._call_back(self._end_callbacks)
        if not self.unanswered:
            return False
        # Usually the whole peer is gone. A timeout frees the messages and locks that its requests hold.
        self._loop.call_later(self._flow.limits.half_closed_seconds, self.close)
        return True

    def pause_writing(self) -> None:
        self._backpressure.pause_writing(self._loop.time())
        self._backpressure.pause_reading(self._transport)
        self.count_unsent()

    def resume_writing(self) -> None:
        self.active_at = self._loop.time()
        self._backpressure.resume_writing(self.active_at)
        self.count_unsent()
        self.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._backpressure.close()
        self.outgoing.close()
        self.incoming.close()
        self._flow.closed(self)
        callbacks, self._close_callbacks = self._close_callbacks, []
        self._call_back(callbacks)
        # Without its parts' references the connection is freed at once. In a cycle it would stay, with its buffers,
        # until the next full garbage collection, which is minutes away.
        lost = cast(Connection, LostConnection(self.peer, self.end_reason))
        for part in (self.incoming, self.outgoing, self._backpressure):
            part.lose_connection(lost)

    def _call_back(self, callbacks: list[Callable[[Connection], object]]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # the other callbacks must run as well
                log.exception("callback at the end of the connection to %s failed", self.peer)

    def _close_malformed(self) -> None:
        """Close a connection that sent a malformed frame, after the requests before it are answered.

        Long polls are answered now: this end reads no more, so it would not notice that the peer has gone.
        """
        self._loop.call_soon(self._call_back, self._end_callbacks)
        if self._takes_no_more:
            return
        if self._flow.garbage.is_worth_a_line():
            failure = self.incoming.decoder.failure
            log.warning("closing %s: malformed frame (%d so far): %s", self.peer, self._flow.garbage.count, failure)
        self.drain()

    def _wait_for_room(self) -> None:
        """Stop reading because requests wait in the backlog."""
        self._flow.memory.note_paused(self.memory)
        self._backpressure.pause_reading(self._transport)
        self.memory.count_received(self.incoming.waiting_bytes)

    # Output and flow

    def write_frames(self, frames: list[bytes]) -> None:
        """Write frames in one call and empty the list; discard them if the connection is closing."""
        if frames:
            data = b"".join(frames) if len(frames) > 1 else frames[0]
            frames.clear()
            transport = self._transport
            if transport is not None and not transport.is_closing():
                transport.write(data)
                if len(data) > LARGE_FRAME_BYTES:
                    self.count_unsent()

    def resume(self) -> None:
        """Handle the backlog and read on, unless congested; close if draining and nothing is left to answer."""
        incoming, backpressure, transport = self.incoming, self._backpressure, self._transport
        if self.is_closed or incoming.is_handling or incoming.is_congested or transport is None:
            return
        if incoming.backlog:
            incoming.handle_backlog()
            self.memory.count_received(incoming.waiting_bytes)
            if incoming.backlog:
                backpressure.pause_reading(transport)
            if incoming.decoder.failure is not None:
                self._close_malformed()
        if incoming.backlog or incoming.is_congested:
            return
        if self._closes_when_answered:
            if not incoming.in_flight_count:
                self.close()
        elif backpressure.is_reading_paused:
            backpressure.resume_reading(transport)


def _address(name: object) -> Address:
    if isinstance(name, tuple) and len(name) >= 2:
        return str(name[0]).removeprefix("::ffff:"), int(name[1])
    return "", 0
