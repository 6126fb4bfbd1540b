"""Answers that wait for the disk: one trip takes all that were written by then. Mirrors `GroupCommitService`.

The disk works in a thread of its own; everything else happens in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import orjson

from orbitlog.broker.runtime.group_commit import GroupCommit
from orbitlog.errors import StoreError
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, encode_command, response_to

log = logging.getLogger(__name__)
_News = TypeVar("_News")
# How long a trip is held for those who were just answered: of the time that the last one took, and at most.
_HELD_SHARE = 0.25
_HELD_SECONDS_MAX = 0.002
_FRAME_START_BYTES = 8


@dataclass(slots=True)
class _Waiting:
    end: int
    until_s: float
    connection: Connection
    request: Command
    answer: Command | bytes


@dataclass(slots=True)
class _WaitingRun:
    """Requests of one connection that were stored together, of which nothing is left but their answers."""

    end: int
    until_s: float
    connection: Connection
    frames: list[bytes]


class FlushQueue:
    """Flushes as long as somebody waits, and answers them.

    Those who were just answered send again soon. A trip that left without them would make two groups that take turns,
    each waiting for the other's trip: so the next one is held until as many wait as did before, for a fraction of the
    time that a trip takes.
    """

    def __init__(self, flush: Callable[[], int], flushed: Callable[[], None], timeout_ms: Callable[[], int]) -> None:
        self._flushed = flushed
        self._timeout_ms = timeout_ms
        self._waiting: deque[_Waiting | _WaitingRun] = deque()
        self._request_count = 0  # of all that wait
        self._trips = GroupCommit(flush, partial(self._tell, self._land), partial(self._tell, self._fail))
        self._is_under_way = self._is_wanted = False
        self._started_s = self._trip_seconds = 0.0
        self._expected = 1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_planned: asyncio.Handle | None = None
        self._held: asyncio.TimerHandle | None = None
        self._next_late: asyncio.TimerHandle | None = None
        self._all_answered: asyncio.Future[None] | None = None
        self._held_by: set[asyncio.Future[None]] = set()
        self._landed_to = 0

    def flush_soon(self) -> None:
        """Take to the disk what is written by now, whether or not anybody waits for it."""
        self._is_wanted = True
        if not self._is_under_way:
            self._plan_start(asyncio.get_running_loop())

    def wait(self, end: int, connection: Connection, request: Command, answer: Command | bytes) -> None:
        """Give the answer once the log is on the disk up to `end`; ends only grow from call to call."""
        loop = self._loop or asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_ms() / 1000
        self._add(loop, _Waiting(end, until_s, connection, request, answer), 1)

    def wait_run(self, end: int, connection: Connection, frames: list[bytes]) -> None:
        """Give several answers in JSON, which the connection owes from now on, once the log is on the disk that far."""
        loop = self._loop or asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_ms() / 1000
        connection.owe(len(frames))
        self._add(loop, _WaitingRun(end, until_s, connection, frames), len(frames))

    def _add(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting | _WaitingRun, request_count: int) -> None:
        self._waiting.append(waiting)
        self._request_count += request_count
        if self._next_late is None:
            self._next_late = loop.call_at(waiting.until_s, self._give_up)
        if not self._is_under_way:
            self._plan_start(loop)

    def hold(self, saving: asyncio.Future[None]) -> None:
        """Answer nobody until `saving` has ended: what they sent may need the table that is saved."""
        self._held_by.add(saving)
        saving.add_done_callback(self._let_go)

    def _plan_start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        if self._start_planned is not None:
            return
        if self._request_count >= self._expected:
            # When the requests that are being read have been worked off: they go along.
            self._start_planned = loop.call_soon(self._start)
        elif self._held is None:
            self._held = loop.call_later(min(self._trip_seconds * _HELD_SHARE, _HELD_SECONDS_MAX), self._start)

    def _start(self) -> None:
        assert self._loop is not None
        for planned in (self._start_planned, self._held):
            if planned is not None:
                planned.cancel()
        self._start_planned = self._held = None
        if self._is_under_way:
            return
        self._is_under_way, self._is_wanted = True, False
        self._started_s = self._loop.time()
        self._trips.ask()

    async def close(self) -> None:
        """Return when nobody waits any more."""
        if self._waiting:
            self._all_answered = asyncio.get_running_loop().create_future()
            await self._all_answered
        for planned in (self._next_late, self._start_planned, self._held):
            if planned is not None:
                planned.cancel()
        await asyncio.to_thread(self._trips.close)

    def _tell(self, listener: Callable[[_News], None], news: _News) -> None:
        """Bring news from the disk's thread to the loop's."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(listener, news)

    def _land(self, flushed_to: int) -> None:
        assert self._loop is not None
        self._trip_seconds = self._loop.time() - self._started_s
        self._is_under_way = False
        self._landed_to = flushed_to
        self._answer_landed()
        self._flushed()
        if self._is_wanted or (self._waiting and self._waiting[-1].end > flushed_to):
            self._plan_start(self._loop)

    def _answer_landed(self) -> None:
        """Answer all whose messages are on the disk, unless a table that they may need is not."""
        if self._held_by:
            return
        waiting = self._waiting
        self._expected = max(self._request_count, 1)
        answers: dict[Connection, list[tuple[Command, Command | bytes]]] = {}
        owed: dict[Connection, list[bytes]] = {}
        while waiting and waiting[0].end <= self._landed_to:
            done = self._take_first()
            if isinstance(done, _WaitingRun):
                owed.setdefault(done.connection, []).extend(done.frames)
            else:
                answers.setdefault(done.connection, []).append((done.request, done.answer))
        for connection, frames in owed.items():
            connection.respond_owed(frames)
        for connection, of_connection in answers.items():
            connection.respond_all(of_connection)
        self._note_answered()

    def _take_first(self) -> _Waiting | _WaitingRun:
        first = self._waiting.popleft()
        self._request_count -= len(first.frames) if isinstance(first, _WaitingRun) else 1
        return first

    def _let_go(self, saving: asyncio.Future[None]) -> None:
        self._held_by.discard(saving)
        error = None if saving.cancelled() else saving.exception()
        if error is not None:
            self._refuse_all(f"a table that messages need cannot be saved: {error}")
        self._answer_landed()

    def _give_up(self) -> None:
        """Answer those for whom the disk took too long: stored, but not yet on it."""
        assert self._loop is not None
        now_s = self._loop.time()
        while self._waiting and self._waiting[0].until_s <= now_s:
            late = self._take_first()
            log.warning("the disk took more than %d ms for a send of %s", self._timeout_ms(), late.connection.peer)
            _refuse(late, ResponseCode.FLUSH_DISK_TIMEOUT, "the disk did not answer in time")
        oldest = self._waiting[0] if self._waiting else None
        self._next_late = self._loop.call_at(oldest.until_s, self._give_up) if oldest else None
        self._note_answered()

    def _fail(self, error: StoreError) -> None:
        self._is_under_way = False
        self._refuse_all(str(error))

    def _refuse_all(self, reason: str) -> None:
        log.error("%s", reason)
        refused, self._waiting, self._request_count = self._waiting, deque(), 0
        for lost in refused:
            _refuse(lost, ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        self._note_answered()

    def _note_answered(self) -> None:
        if self._all_answered is not None and not self._waiting and not self._all_answered.done():
            self._all_answered.set_result(None)


def _refuse(waiting: _Waiting | _WaitingRun, code: ResponseCode, reason: str) -> None:
    """Answer that something went wrong, and not what would have been answered."""
    if isinstance(waiting, _Waiting):
        waiting.connection.respond(waiting.request, response_to(waiting.request, code, reason))
        return
    numbers = [orjson.loads(frame[_FRAME_START_BYTES:])["opaque"] for frame in waiting.frames]
    requests = [Command(RequestCode.SEND_MESSAGE_V2, opaque=number) for number in numbers]
    waiting.connection.respond_owed([encode_command(response_to(request, code, reason)) for request in requests])


def once_flushed(
    flushes: FlushQueue | None, end: int, connection: Connection, request: Command, answer: Command
) -> Answer:
    """Return the answer, or nothing yet where it has to wait until the log is on the disk up to `end`."""
    if flushes is None:
        return answer
    flushes.wait(end, connection, request, answer)
    return None
