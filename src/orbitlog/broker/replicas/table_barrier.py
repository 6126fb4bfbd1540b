"""Table barrier: topics, groups and progress of a group's master at its slaves, by numbers of changes.

A slave asks for the number of the last change and states the last one that it has saved; the request is held until
there is another one. A change is replicated when every in-sync member has stated its number, so that each one that may
be elected has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from orbitlog.errors import RequestRefused, StoreError
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.replication.group.leadership import Leadership
from orbitlog.replication.group.master_term import MasterTerm
from orbitlog.replication.group.member_driver import MemberDriver
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.replication.group_headers import TablesRequest, TablesResponse

_NOT_MASTER = "this broker is not the master of its replica group any more"
_HOLD_MS_MAX = 15_000


class _Change(NamedTuple):
    term: MasterTerm
    number: int
    replicated: asyncio.Future[None]


class TableBarrier:
    """The changes of one member's tables while it is master. Used in the thread of the event loop alone."""

    def __init__(self, driver: Callable[[], MemberDriver], timeout_s: float) -> None:
        self._driver = driver
        self._timeout_s = timeout_s
        self._changes: list[_Change] = []
        self._polls: set[asyncio.Future[None]] = set()

    @property
    def _leadership(self) -> Leadership | None:
        return self._driver().member.leadership

    # Changes

    def begin(self) -> asyncio.Future[None]:
        """Announce a change of a table; return a future that is done when every in-sync member has it.

        It fails with a `StoreError` if this member is not the master any more.
        """
        loop = asyncio.get_running_loop()
        replicated: asyncio.Future[None] = loop.create_future()
        replicated.add_done_callback(_retrieve)
        leadership = self._leadership
        if leadership is None:
            replicated.set_exception(StoreError(_NOT_MASTER))
            return replicated
        number = leadership.term.change_tables(loop.time())
        self._changes.append(_Change(leadership.term, number, replicated))
        self.wake()
        self.review()
        return replicated

    def review(self) -> None:
        """Complete the changes that every in-sync member has; call it after a report or a change of the set."""
        if not self._changes:
            return
        leadership = self._leadership
        proposed = self._driver().member.context.desk.proposed
        waiting = []
        for change in self._changes:
            if change.replicated.done():
                continue
            # By identity: a later term of this member counts its changes from the start, so numbers would not differ.
            if leadership is None or change.term is not leadership.term:
                change.replicated.set_exception(StoreError(_NOT_MASTER))
            elif change.term.are_tables_replicated(change.number, proposed):
                change.replicated.set_result(None)
            else:
                waiting.append(change)
        self._changes = waiting

    def replicating(self, table: Mapping[int, Handler], codes: tuple[int, ...]) -> dict[int, Handler]:
        """Return the handlers with those of `codes`, which change tables, answering after the change is replicated."""
        return {code: self._replicating(handler) if code in codes else handler for code, handler in table.items()}

    def _replicating(self, handler: Handler) -> Handler:
        async def serve(connection: Connection, request: Command) -> Answer:
            answer = handler(connection, request)
            if isinstance(answer, Awaitable):
                answer = await answer
            if isinstance(answer, Command) and answer.code == ResponseCode.SUCCESS:
                return await self._answer_replicated(request, answer)
            return answer

        return serve

    async def _answer_replicated(self, request: Command, answer: Command) -> Command:
        try:
            async with asyncio.timeout(self._timeout_s):
                # Shielded: the change is made already, and `review` completes it also after this timeout.
                await asyncio.shield(self.begin())
        except (TimeoutError, StoreError) as error:
            reason = str(error) or f"not every in-sync member has copied it within {self._timeout_s:g} s"
            return response_to(
                request,
                ResponseCode.SYSTEM_ERROR,
                f"the change may be lost at a failover: {reason}; repeat the request",
            )
        return answer

    # Slaves

    def wake(self) -> None:
        """Answer the slaves that wait for a change."""
        for poll in self._polls:
            if not poll.done():
                poll.set_result(None)

    async def poll(self, header: TablesRequest) -> TablesResponse:
        """Note what a slave has saved; return the last change, after at most `wait_ms` if there is no later one."""
        leadership = self._leadership
        if leadership is None or leadership.term.epoch != header.epoch:
            raise RequestRefused(ResponseCode.CONTROLLER_NOT_LEADER, f"not the master of epoch {header.epoch}")
        driver, term = self._driver(), leadership.term
        # Through the driver: the member takes reports only between its actions.
        driver.post(lambda: leadership.tables_reported(header.member_id, header.saved_number))
        self.review()
        if header.saved_number == term.tables_number and header.wait_ms > 0:
            await self._hold(min(header.wait_ms, _HOLD_MS_MAX) / 1000)
        return TablesResponse(number=term.tables_number, log_end=driver.log_end)

    async def _hold(self, seconds: float) -> None:
        poll: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._polls.add(poll)
        try:
            await asyncio.wait((poll,), timeout=seconds)
        finally:
            self._polls.discard(poll)


def _retrieve(future: asyncio.Future[None]) -> None:
    """Mark the error as seen: a change that no request waits for may fail."""
    if not future.cancelled():
        future.exception()
