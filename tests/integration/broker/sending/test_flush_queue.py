"""Flush queue: which flush covers which responses, timeouts, failures, and what closing waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import ParamSpec, cast

import pytest
import uvloop

from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.errors import StoreError
from orbitlog.remoting.connection import Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, encode_command, response_to
from orbitlog.wire.frames import FrameDecoder
from tests.support.broker_desk import until

P = ParamSpec("P")
REQUEST = Command(RequestCode.SEND_MESSAGE, opaque=7)


def answer_to(opaque: int) -> bytes:
    return encode_command(response_to(Command(RequestCode.SEND_MESSAGE_V2, opaque=opaque), ResponseCode.SUCCESS))


DONE = answer_to(REQUEST.opaque)


class Log:
    """A log that grows by one with each send, and its flushes."""

    def __init__(self) -> None:
        self.written_to = 0
        self.flushes: list[int] = []
        self.disk = threading.Event()
        self.disk.set()

    def flush(self) -> int:
        target = self.written_to
        self.flushes.append(target)
        assert self.disk.wait(60)
        return target


class Sender:
    """Sends its next message when it gets a response, `times` times."""

    active_at = 0.0

    def __init__(self, log: Log, flushes: FlushQueue, times: int) -> None:
        self.log, self.flushes, self.times = log, flushes, times
        self.peer = "a sender"
        self.answers: list[Command | bytes] = []

    def send(self) -> None:
        if self.times:
            self.times -= 1
            self.log.written_to += 1
            self.flushes.wait(self.log.written_to, cast(Connection, self), REQUEST, DONE)

    def respond(self, request: Command, answer: Command | bytes) -> None:
        assert request is REQUEST
        self.answers.append(answer)
        self.send()

    def respond_all(self, answers: Sequence[tuple[Command, Command | bytes]]) -> None:
        for request, answer in answers:
            self.respond(request, answer)


class Pipelining:
    """Sends several messages at a time."""

    active_at = 0.0

    def __init__(self, log: Log, flushes: FlushQueue) -> None:
        self.log, self.flushes = log, flushes
        self.peer = "a pipelining client"
        self.owed = self.next_opaque = 0
        self.writes: list[list[bytes]] = []

    def send(self, count: int) -> None:
        self.log.written_to += count
        opaques = range(self.next_opaque, self.next_opaque + count)
        self.next_opaque += count
        frames = [answer_to(opaque) for opaque in opaques]
        self.flushes.wait_run(self.log.written_to, cast(Connection, self), frames, [b"%d" % each for each in opaques])

    def owe(self, count: int) -> None:
        self.owed += count

    def respond_owed(self, frames: list[bytes]) -> None:
        self.owed -= len(frames)
        self.writes.append(frames)

    @property
    def answers(self) -> list[Command]:
        return FrameDecoder().receive_data(b"".join(map(b"".join, self.writes)))


def run_in_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **named: P.kwargs) -> None:
        uvloop.run(test(*args, **named))

    return run


def queue_of(log: Log, *, timeout_ms: int = 60_000) -> FlushQueue:
    return FlushQueue(log.flush, lambda: None, lambda: timeout_ms)


@run_in_loop
async def test_one_flush_covers_all_waiting_sends() -> None:
    log = Log()
    flushes = queue_of(log)
    senders = [Sender(log, flushes, 10) for _ in range(8)]
    for sender in senders:
        sender.send()
    await until(lambda: all(len(sender.answers) == 10 for sender in senders))
    await flushes.close()
    assert log.flushes == [8 * number for number in range(1, 11)], "each flush covers a message of every sender"


@run_in_loop
async def test_responses_of_one_connection_are_sent_together_in_order() -> None:
    log = Log()
    flushes = queue_of(log)
    together: list[list[bytes]] = []

    class Shared:
        peer = "many threads"
        active_at = 0.0

        def respond_all(self, answers: Sequence[tuple[Command, bytes]]) -> None:
            together.append([answer for _, answer in answers])

    connection = cast(Connection, Shared())
    for number in range(5):
        log.written_to += 1
        flushes.wait(log.written_to, connection, REQUEST, b"%d" % number)
    await flushes.close()
    assert together == [[b"0", b"1", b"2", b"3", b"4"]]


@run_in_loop
async def test_flush_does_not_wait_for_clients_that_stopped() -> None:
    log = Log()
    flushes = queue_of(log)
    for times in (1, 1, 1, 5):
        Sender(log, flushes, times).send()
    last = Sender(log, flushes, 5)
    last.send()
    await until(lambda: len(last.answers) == 5)
    await flushes.close()


@run_in_loop
async def test_flush_soon_without_waiting_responses_flushes() -> None:
    log = Log()
    flushes = queue_of(log)
    log.written_to = 3
    flushes.flush_soon()
    await until(lambda: log.flushes == [3])
    await flushes.close()


@run_in_loop
async def test_flush_soon_during_a_flush_starts_another() -> None:
    log = Log()
    flushes = queue_of(log)
    log.disk.clear()
    log.written_to = 1
    flushes.flush_soon()
    await until(lambda: log.flushes == [1])
    log.written_to = 2
    flushes.flush_soon()
    log.disk.set()
    await until(lambda: log.flushes == [1, 2])
    await flushes.close()


@run_in_loop
async def test_slow_flush_is_answered_with_a_timeout() -> None:
    log = Log()
    flushes = queue_of(log, timeout_ms=5)
    log.disk.clear()
    sender = Sender(log, flushes, 1)
    sender.send()
    await until(lambda: len(sender.answers) == 1)
    (answer,) = sender.answers
    assert isinstance(answer, Command) and answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    log.disk.set()
    await flushes.close()
    assert len(sender.answers) == 1


@run_in_loop
async def test_failed_flush_refuses_waiting_sends() -> None:
    def fail() -> int:
        raise StoreError("the disk failed")

    flushes = FlushQueue(fail, lambda: None, lambda: 60_000)
    sender = Sender(Log(), flushes, 2)
    sender.send()
    await until(lambda: len(sender.answers) == 2)
    assert all(isinstance(one, Command) and one.code == ResponseCode.SERVICE_NOT_AVAILABLE for one in sender.answers)
    await flushes.close()


@pytest.mark.parametrize("waiting", [1, 5])
@run_in_loop
async def test_close_waits_for_waiting_responses(waiting: int) -> None:
    log = Log()
    flushes = queue_of(log)
    log.disk.clear()
    senders = [Sender(log, flushes, 1) for _ in range(waiting)]
    for sender in senders:
        sender.send()
    closing = asyncio.create_task(flushes.close())
    await until(lambda: log.flushes != [])
    assert not closing.done()
    log.disk.set()
    async with asyncio.timeout(60):
        await closing
    assert all(sender.answers == [DONE] for sender in senders)


@run_in_loop
async def test_held_responses_wait_for_the_saved_table() -> None:
    log = Log()
    flushes = queue_of(log)
    saving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    flushes.hold(saving)
    senders = [Sender(log, flushes, 1) for _ in range(3)]
    for sender in senders:
        sender.send()
    await until(lambda: log.flushes == [3])
    flushes.flush_soon()
    await until(lambda: log.flushes == [3, 3])
    assert not any(sender.answers for sender in senders)
    closing = asyncio.create_task(flushes.close())
    saving.set_result(None)
    async with asyncio.timeout(60):
        await closing
    assert all(sender.answers == [DONE] for sender in senders)
    assert log.flushes == [3, 3], "a response that waits for the table only needs no flush"


@run_in_loop
async def test_held_responses_wait_for_the_flush_as_well() -> None:
    log = Log()
    flushes = queue_of(log)
    log.disk.clear()
    saving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    flushes.hold(saving)
    sender = Sender(log, flushes, 1)
    sender.send()
    await until(lambda: log.flushes == [1])
    saving.set_result(None)
    await asyncio.sleep(0)
    assert not sender.answers
    log.disk.set()
    await until(lambda: sender.answers == [DONE])
    await flushes.close()


@run_in_loop
async def test_failed_table_save_refuses_held_sends(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    flushes = queue_of(log)
    saving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    flushes.hold(saving)
    sender = Sender(log, flushes, 2)
    sender.send()
    saving.set_exception(StoreError("no room"))
    await until(lambda: len(sender.answers) == 2)
    refused, stored = sender.answers
    assert isinstance(refused, Command) and refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (refused.remark or "").startswith("internal error ") and stored == DONE
    assert "no room" in caplog.text
    await flushes.close()


@run_in_loop
async def test_run_is_answered_when_its_last_record_is_flushed() -> None:
    log = Log()
    flushes = queue_of(log)
    log.disk.clear()
    sender = Pipelining(log, flushes)
    sender.send(3)
    await until(lambda: log.flushes == [3])
    sender.send(2)
    sender.send(1)
    assert sender.owed == 6 and not sender.writes
    log.disk.set()
    await until(lambda: not sender.owed)
    assert [len(frames) for frames in sender.writes] == [3, 3], "one write for each flush"
    assert [answer.opaque for answer in sender.answers] == list(range(6))
    assert log.flushes == [3, 6]
    await flushes.close()


@run_in_loop
async def test_delayed_flush_counts_messages_not_runs() -> None:
    log = Log()
    flushes = queue_of(log)
    sender, other = Pipelining(log, flushes), Pipelining(log, flushes)
    sender.send(8)
    await until(lambda: not sender.owed)
    flushes._flush_seconds = 60.0  # so that the next is held as long as it may be
    for _ in range(8):
        other.send(1)
    assert flushes._start_planned is not None, "all are there: nothing to be held for"
    await until(lambda: not other.owed)
    assert log.flushes == [8, 16]
    await flushes.close()


@run_in_loop
async def test_slow_flush_of_a_run_is_answered_with_a_timeout() -> None:
    log = Log()
    flushes = queue_of(log, timeout_ms=5)
    log.disk.clear()
    sender = Pipelining(log, flushes)
    sender.send(3)
    await until(lambda: not sender.owed)
    assert [answer.opaque for answer in sender.answers] == [0, 1, 2]
    assert {answer.code for answer in sender.answers} == {ResponseCode.FLUSH_DISK_TIMEOUT}
    log.disk.set()
    await flushes.close()
    assert len(sender.answers) == 3


@run_in_loop
async def test_failed_flush_refuses_each_send_of_a_run(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> int:
        raise StoreError("the disk failed")

    flushes = FlushQueue(fail, lambda: None, lambda: 60_000)
    single, sender = Sender(Log(), flushes, 1), Pipelining(Log(), flushes)
    sender.send(2)
    single.send()
    closing = asyncio.create_task(flushes.close())
    await until(lambda: not sender.owed and single.answers)
    assert [answer.opaque for answer in sender.answers] == [0, 1]
    assert all((answer.remark or "").startswith("internal error ") for answer in sender.answers)
    assert "the disk failed" in caplog.text
    assert {answer.code for answer in sender.answers} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    async with asyncio.timeout(60):
        await closing
