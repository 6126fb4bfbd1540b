"""Table barrier: changes are answered when every in-sync member has saved them, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitlog.broker.replicas.table_barrier import TableBarrier
from orbitlog.errors import RequestRefused, StoreError
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.replication.group.master_term import MasterTerm
from orbitlog.replication.group.member_driver import MemberDriver
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.replication.group_headers import TablesRequest

EPOCH = 7
CODE = RequestCode.UPDATE_AND_CREATE_TOPIC


class Master:
    """A member of epoch 7 with one slave, without connections."""

    log_end = 900

    def __init__(self) -> None:
        term = MasterTerm(1, EPOCH, 0, frozenset((1, 2)), 0.0, tables_number=1)

        def tables_reported(member_id: int, number: int) -> None:
            term.tables_reported(member_id, number, 0.0)

        desk = SimpleNamespace(proposed=frozenset())
        leadership: Any = SimpleNamespace(term=term, tables_reported=tables_reported)
        self.term = term
        self.member = SimpleNamespace(leadership=leadership, context=SimpleNamespace(desk=desk))

    def post(self, event: Callable[[], None]) -> None:
        event()


def barrier_of(master: Master, timeout_s: float = 60.0) -> TableBarrier:
    return TableBarrier(lambda: cast(MemberDriver, master), timeout_s)


def poll(saved_number: int, *, epoch: int = EPOCH, wait_ms: int = 0) -> TablesRequest:
    return TablesRequest(member_id=2, epoch=epoch, saved_number=saved_number, wait_ms=wait_ms)


def change(_: Connection, request: Command) -> Answer:
    return response_to(request, ResponseCode.SUCCESS)


def test_change_is_answered_after_the_slave_has_reported_it() -> None:
    async def run() -> None:
        master = Master()
        barrier = barrier_of(master)
        serve = barrier.replicating({CODE: change}, (CODE,))[CODE]
        held = asyncio.create_task(barrier.poll(poll(1, wait_ms=10_000)))
        await asyncio.sleep(0)
        answering = asyncio.ensure_future(cast(Any, serve(cast(Connection, None), Command(CODE))))
        answer = await held  # the change wakes the slave that waits
        assert (answer.number, answer.log_end) == (2, master.log_end)
        assert not answering.done()
        await barrier.poll(poll(2))
        assert (await answering).code == ResponseCode.SUCCESS

    asyncio.run(run())


def test_change_that_a_slave_lacks_for_too_long_is_refused() -> None:
    async def run() -> None:
        serve = barrier_of(Master(), timeout_s=0.01).replicating({CODE: change}, (CODE,))[CODE]
        answer = await cast(Any, serve(cast(Connection, None), Command(CODE)))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "repeat the request" in answer.remark

    asyncio.run(run())


def test_change_of_a_deposed_master_fails() -> None:
    async def run() -> None:
        master = Master()
        barrier = barrier_of(master)
        replicated = barrier.begin()
        master.member.leadership = None
        barrier.review()
        with pytest.raises(StoreError, match="not the master"):
            await replicated
        with pytest.raises(StoreError, match="not the master"):
            await barrier.begin()

    asyncio.run(run())


def test_report_for_another_epoch_is_refused() -> None:
    async def run() -> None:
        master = Master()
        with pytest.raises(RequestRefused, match="epoch 6"):
            await barrier_of(master).poll(poll(1, epoch=6))
        assert not master.term.has_tables(2, 1)

    asyncio.run(run())
