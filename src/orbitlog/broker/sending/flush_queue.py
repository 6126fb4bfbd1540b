"""Flush queue: holds responses until the CommitLog is flushed and replicated past their records.

Mirrors `GroupCommitService` and `GroupTransferService`. One flush covers every append made before it (group commit).
The flush runs in its own thread, `GroupCommit`; everything else in this module runs in the thread of the event loop.
Replication is one more mark: slaves move it, and a response leaves when both marks have passed its record. Only
SYNC_FLUSH waits for the flush, and only a SYNC_MASTER for slaves.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar

from orbitlog.broker.runtime.group_commit import GroupCommit
from orbitlog.broker.tables.observers import Observers
from orbitlog.errors import StoreError
from orbitlog.formats.java import LONG_MAX
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, encode_command, response_to
from orbitlog.wire.frames import FrameDecoder

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
# The next flush is delayed for clients that were just answered: by this share of the last flush's time, at most 2 ms.
_DELAY_SHARE = 0.25
_DELAY_SECONDS_MAX = 0.002


class ReplicaMark(Protocol):
    """Up to which offset enough copies of the log exist: those of slaves, or of the in-sync set of a replica group."""

    @property
    def replicated_to(self) -> int: ...
    def has_enough_slaves(self, end: int) -> bool: ...


@dataclass(slots=True)
class _Waiting:
    """A response that waits until the log is flushed up to `end`, or until the loop's time is `until_s`."""

    end: int
    arrived_s: float
    since_s: float
    until_s: float
    connection: Connection
    request: Command
    answer: Command | bytes


@dataclass(slots=True)
class _WaitingRun:
    """The responses of a run of sends over one connection; of the requests only the opaque numbers are kept."""

    end: int
    arrived_s: float
    since_s: float
    until_s: float
    connection: Connection
    frames: list[bytes]
    opaques: Sequence[bytes]


class SlowSends:
    """Finds sends that waited longer than `slowRequestMs`, and how long for the flush and for slaves."""

    def __init__(self, slow_seconds: float) -> None:
        self.slow_seconds = slow_seconds
        # End and time of the last flushes: only looked at for a slow send.
        self.flushes: deque[tuple[int, float]] = deque(maxlen=256)

    def report(self, done: _Waiting | _WaitingRun, now_s: float) -> None:
        """Log one send, or a run of them."""
        from orbitlog.remoting.slow_requests import report  # most brokers never need it

        flushed_s = next((time_s for end, time_s in self.flushes if end >= done.end), now_s)
        flushed_s = max(flushed_s, done.since_s)
        phases = {
            "append": done.since_s - done.arrived_s,
            "flush wait": flushed_s - done.since_s,
            "replication wait": now_s - flushed_s,
        }
        if isinstance(done, _WaitingRun):
            opaque, code, count = int(done.opaques[0]), int(RequestCode.SEND_MESSAGE_V2), len(done.frames)
        else:
            opaque, code, count = done.request.opaque, done.request.code, 1
        report(done.connection.peer, code, opaque, phases, count=count)


class FlushQueue:
    """Flushes while responses wait, and sends them when their records are durable.

    Clients that were just answered send their next message soon. A flush that started without them would split the
    clients into two groups which take turns, each waiting for the flush of the other. So the next flush is delayed
    until as many requests wait as did before, for a fraction of the time that a flush takes.
    """

    def __init__(
        self,
        flush: Callable[[], int] | None,
        flushed: Callable[[], None],
        timeout_ms: Callable[[], int],
        replicas: ReplicaMark | None = None,
        slow_seconds: float = math.inf,
    ) -> None:
        """Use `flush`, which returns the offset flushed to; call `flushed` after each flush, in the loop's thread.

        Without `flush` responses wait for `replicas` only.
        """
        self._flushed = flushed
        self._timeout_ms = timeout_ms
        self._replicas = replicas
        self._waiting: deque[_Waiting | _WaitingRun] = deque()  # ordered by `end`, and by `until_s`
        self._request_count = 0  # requests in `_waiting`
        self._commits = flush and GroupCommit(
            flush, partial(self._post, self._on_flushed), partial(self._post, self._on_failure)
        )
        self._is_flushing = self._is_wanted = False
        self._started_s = self._flush_seconds = 0.0
        self._expected_count = 1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_planned: asyncio.Handle | None = None
        self._delayed_start: asyncio.TimerHandle | None = None
        self._next_timeout: asyncio.TimerHandle | None = None
        self._all_answered: asyncio.Future[None] | None = None
        self._held_by: set[asyncio.Future[None]] = set()
        self._flushed_to = LONG_MAX if flush is None else 0
        self._slow = SlowSends(slow_seconds)
        self.observers = Observers()
        """Metrics, if they are on; the broker sets it."""

    @property
    def _durable_to(self) -> int:
        """End of the records whose responses may be sent."""
        return self._flushed_to if self._replicas is None else min(self._flushed_to, self._replicas.replicated_to)

    def flush_soon(self) -> None:
        """Flush all records written so far, whether or not a response waits for them."""
        self._is_wanted = True
        if not self._is_flushing:
            self._plan_start(asyncio.get_running_loop())

    def wait(self, end: int, connection: Connection, request: Command, answer: Command | bytes) -> None:
        """Send the response once the log is flushed up to `end`; `end` must not decrease from call to call."""
        loop = self._loop or asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_ms() / 1000
        self._add(loop, _Waiting(end, connection.active_at, monotonic(), until_s, connection, request, answer), 1)

    def wait_run(self, end: int, connection: Connection, frames: list[bytes], opaques: Sequence[bytes]) -> None:
        """Send JSON responses to the requests `opaques`, which the connection owes, once `end` is flushed."""
        loop = self._loop or asyncio.get_running_loop()
        until_s = loop.time() + self._timeout_ms() / 1000
        connection.owe(len(frames))
        run = _WaitingRun(end, connection.active_at, monotonic(), until_s, connection, frames, opaques)
        self._add(loop, run, len(frames))

    def _add(self, loop: asyncio.AbstractEventLoop, waiting: _Waiting | _WaitingRun, request_count: int) -> None:
        if self._replicas is not None and not self._replicas.has_enough_slaves(waiting.end):
            _respond_late(waiting, ResponseCode.SLAVE_NOT_AVAILABLE, "the slave not available")
            return
        self._waiting.append(waiting)
        self._request_count += request_count
        if self._next_timeout is None:
            self._next_timeout = loop.call_at(waiting.until_s, self._time_out)
        if not self._is_flushing:
            self._plan_start(loop)

    def hold(self, saving: asyncio.Future[None]) -> None:
        """Send no response until `saving` is done: a table that is being saved may contain the topic of a send."""
        self._held_by.add(saving)
        saving.add_done_callback(self._release)

    def _plan_start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        if self._start_planned is not None or self._commits is None:
            return
        if self._request_count >= self._expected_count:
            # Not at once: requests of the current turn of the loop are appended first, and share this flush.
            self._start_planned = loop.call_soon(self._start)
        elif self._delayed_start is None:
            delay_s = min(self._flush_seconds * _DELAY_SHARE, _DELAY_SECONDS_MAX)
            self._delayed_start = loop.call_later(delay_s, self._start)

    def _start(self) -> None:
        assert self._loop is not None
        assert self._commits is not None
        for planned in (self._start_planned, self._delayed_start):
            if planned is not None:
                planned.cancel()
        self._start_planned = self._delayed_start = None
        if self._is_flushing:
            return
        self._is_flushing, self._is_wanted = True, False
        self._started_s = self._loop.time()
        self._commits.ask()

    async def close(self) -> None:
        """Return when every response was sent, and the flush thread has ended."""
        if self._waiting:
            self._all_answered = asyncio.get_running_loop().create_future()
            await self._all_answered
        for planned in (self._next_timeout, self._start_planned, self._delayed_start):
            if planned is not None:
                planned.cancel()
        if self._commits is not None:
            await asyncio.to_thread(self._commits.close)

    def _post(self, listener: Callable[[_Result], None], result: _Result) -> None:
        """Call a listener in the loop's thread; runs in the flush thread, which must not touch any other field."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(listener, result)

    def _on_flushed(self, flushed_to: int) -> None:
        assert self._loop is not None
        self._flush_seconds = self._loop.time() - self._started_s
        self._is_flushing = False
        self._flushed_to = flushed_to
        self._slow.flushes.append((flushed_to, monotonic()))
        # Responses first: `_flushed` dispatches the records, which takes longer.
        self.send_durable()
        self._flushed()
        if self._is_wanted or (self._waiting and self._waiting[-1].end > flushed_to):
            self._plan_start(self._loop)

    def send_durable(self) -> None:
        """Send the responses whose records are flushed and replicated, unless a table is being saved."""
        if self._held_by:
            return
        waiting, durable_to = self._waiting, self._durable_to
        self._expected_count = max(self._request_count, 1)
        answers: dict[Connection, list[tuple[Command, Command | bytes]]] = {}
        owed: dict[Connection, list[bytes]] = {}
        observers, count_before = self.observers, self._request_count
        slow = self._slow
        slow_until_s = monotonic() - slow.slow_seconds
        while waiting and waiting[0].end <= durable_to:
            done = self._take_first()
            if done.since_s < slow_until_s:
                slow.report(done, slow_until_s + slow.slow_seconds)
            if observers.is_on:
                self._report(done)
            if isinstance(done, _WaitingRun):
                owed.setdefault(done.connection, []).extend(done.frames)
            else:
                answers.setdefault(done.connection, []).append((done.request, done.answer))
        for connection, frames in owed.items():
            connection.respond_owed(frames)
        for connection, of_connection in answers.items():
            connection.respond_all(of_connection)
        if observers.is_on and count_before > self._request_count:
            observers.group_committed(count_before - self._request_count)
        self._note_answered()

    def _report(self, done: _Waiting | _WaitingRun) -> None:
        """Report requests that were answered after their flush to metrics."""
        assert self._loop is not None
        waited_s = self._loop.time() - done.until_s + self._timeout_ms() / 1000
        answered = self.observers.request_answered
        if isinstance(done, _Waiting):
            answered(done.request.code, done.answer, waited_s, False, 1)
        else:
            answered(RequestCode.SEND_MESSAGE_V2, done.frames[0], waited_s, False, len(done.frames))

    def _take_first(self) -> _Waiting | _WaitingRun:
        first = self._waiting.popleft()
        self._request_count -= len(first.frames) if isinstance(first, _WaitingRun) else 1
        return first

    def _release(self, saving: asyncio.Future[None]) -> None:
        self._held_by.discard(saving)
        error = None if saving.cancelled() else saving.exception()
        if error is not None:
            self._refuse_all(_remark(error, "could not save a table that messages depend on"))
        self.send_durable()

    def _time_out(self) -> None:
        """Answer sends that waited too long: their messages are stored, but not flushed or not replicated yet."""
        assert self._loop is not None
        now_s = self._loop.time()
        while self._waiting and self._waiting[0].until_s <= now_s:
            late = self._take_first()
            if self._replicas is not None and late.end > self._replicas.replicated_to:
                what, setting, code = "replication", "slaveTimeout", ResponseCode.FLUSH_SLAVE_TIMEOUT
            else:
                what, setting, code = "flush", "syncFlushTimeout", ResponseCode.FLUSH_DISK_TIMEOUT
            log.warning(
                "%s timed out: a send from %s was not durable after %d ms (%s)",
                what,
                late.connection.peer,
                self._timeout_ms(),
                setting,
            )
            _respond_late(late, code, f"the {what} timed out")
            self._report_failure(late, code)
        oldest = self._waiting[0] if self._waiting else None
        self._next_timeout = self._loop.call_at(oldest.until_s, self._time_out) if oldest else None
        self._note_answered()

    def refuse_waiting(self, reason: str) -> None:
        """Refuse the sends that wait: this broker is not the master any more, so nothing confirms them."""
        if self._waiting:
            self._refuse_all(reason)

    def _on_failure(self, error: StoreError) -> None:
        self._is_flushing = False
        self._refuse_all(_remark(error, "could not flush the log"))

    def _refuse_all(self, reason: str) -> None:
        log.error("refusing %d sends that wait for a flush: %s", self._request_count, reason)
        refused, self._waiting, self._request_count = self._waiting, deque(), 0
        for lost in refused:
            _refuse(lost, ResponseCode.SERVICE_NOT_AVAILABLE, reason)
            self._report_failure(lost, ResponseCode.SERVICE_NOT_AVAILABLE)
        self._note_answered()

    def _report_failure(self, late: _Waiting | _WaitingRun, code: ResponseCode) -> None:
        """Report requests that were answered with another code than their own to metrics."""
        if self.observers.is_on:
            request_code = RequestCode.SEND_MESSAGE_V2 if isinstance(late, _WaitingRun) else late.request.code
            count = len(late.frames) if isinstance(late, _WaitingRun) else 1
            self.observers.request_answered(request_code, Command(code), self._timeout_ms() / 1000, False, count)

    def _note_answered(self) -> None:
        if self._all_answered is not None and not self._waiting and not self._all_answered.done():
            self._all_answered.set_result(None)


def _respond_late(waiting: _Waiting | _WaitingRun, code: ResponseCode, reason: str) -> None:
    """Send the response that waits with another code: the message is stored, and its place in the log is as stated."""
    if isinstance(waiting, _Waiting):
        waiting.connection.respond(waiting.request, _with_code(waiting.answer, code, reason))
    else:
        frames = [encode_command(_with_code(frame, code, reason)) for frame in waiting.frames]
        waiting.connection.respond_owed(frames)


def _with_code(answer: Command | bytes, code: ResponseCode, reason: str) -> Command:
    if isinstance(answer, bytes):
        [answer] = FrameDecoder().receive_data(answer)
    return replace(answer, code=code, remark=reason)


def _remark(error: BaseException, what: str) -> str:
    from orbitlog.remoting.error_ids import error_remark  # most brokers never need it

    return error_remark(error, what)


def _refuse(waiting: _Waiting | _WaitingRun, code: ResponseCode, reason: str) -> None:
    """Send a refusal instead of the response that waits."""
    if isinstance(waiting, _Waiting):
        waiting.connection.respond(waiting.request, response_to(waiting.request, code, reason))
        return
    requests = [Command(RequestCode.SEND_MESSAGE_V2, opaque=int(opaque)) for opaque in waiting.opaques]
    waiting.connection.respond_owed([encode_command(response_to(request, code, reason)) for request in requests])


def once_flushed(
    flushes: FlushQueue | None, end: int, connection: Connection, request: Command, answer: Command
) -> Answer:
    """Return the response; None if the flush queue sends it once the log is flushed up to `end`."""
    if flushes is None:
        return answer
    flushes.wait(end, connection, request, answer)
    return None
