"""Answers that wait for the disk: one trip takes all that were written by then. Mirrors `GroupCommitService`.

The disk works in a thread of its own; everything else happens in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from orbitlog.errors import StoreError
from orbitlog.remoting.connection import Connection
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, response_to

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    end: int
    until_s: float
    connection: Connection
    request: Command
    frame: bytes


class FlushQueue:
    """Flushes as long as somebody waits, and answers them."""

    def __init__(
        self, flush: Callable[[], int], executor: Executor, flushed: Callable[[], None], timeout_ms: Callable[[], int]
    ) -> None:
        self._flush = flush
        self._executor = executor
        self._flushed = flushed
        self._timeout_ms = timeout_ms
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None

    def wait(self, end: int, connection: Connection, request: Command, frame: bytes) -> None:
        """Answer with `frame` once the log is on the disk up to `end`; ends only grow from call to call."""
        until_s = asyncio.get_running_loop().time() + self._timeout_ms() / 1000
        self._waiting.append(_Waiting(end, until_s, connection, request, frame))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Return when nobody waits any more."""
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            trip = loop.run_in_executor(self._executor, self._flush)
            while True:
                left_s = max(self._waiting[0].until_s - loop.time(), 0) if self._waiting else None
                done, _ = await asyncio.wait({trip}, timeout=left_s)
                if done:
                    break
                self._give_up(loop.time())
            try:
                flushed_to = trip.result()
            except StoreError as error:
                self._fail(str(error))
                return
            self._answer(flushed_to)
            self._flushed()

    def _answer(self, flushed_to: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0].end <= flushed_to:
            done = waiting.popleft()
            done.connection.respond(done.request, done.frame)

    def _give_up(self, now_s: float) -> None:
        """Answer those for whom the disk took too long: stored, but not yet on it."""
        while self._waiting and self._waiting[0].until_s <= now_s:
            late = self._waiting.popleft()
            log.warning("the disk took more than %d ms for a send of %s", self._timeout_ms(), late.connection.peer)
            answer = response_to(late.request, ResponseCode.FLUSH_DISK_TIMEOUT, "the disk did not answer in time")
            late.connection.respond(late.request, answer)

    def _fail(self, reason: str) -> None:
        log.error("%s", reason)
        while self._waiting:
            lost = self._waiting.popleft()
            lost.connection.respond(lost.request, response_to(lost.request, ResponseCode.SERVICE_NOT_AVAILABLE, reason))
