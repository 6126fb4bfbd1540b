"""Fast path with SYNC_FLUSH: sends are stored at once, and answered and visible after the flush."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from orbitlog.broker.sending import handle_send
from orbitlog.store.message_store import MessageStore
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.frames import FrameDecoder
from tests.support.broker_desk import SMALL, until
from tests.support.hot_path import TOPIC, HotPath, batches, frame, halves, hot_path_at, sends

FIRST = 1000


class Gate:
    """Holds flushes back while it is closed, and can make fdatasync fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_open = threading.Event()
        self.is_open.set()
        self.is_broken = False
        flush = MessageStore.flush_log

        def flush_through_gate(store: MessageStore) -> int:
            assert self.is_open.wait(60)
            return flush(store)

        monkeypatch.setattr(MessageStore, "flush_log", flush_through_gate)
        sync = os.fdatasync

        def sync_or_fail(descriptor: int) -> None:
            if self.is_broken:
                raise OSError(5, "the disk broke")
            sync(descriptor)

        monkeypatch.setattr(os, "fdatasync", sync_or_fail)


@asynccontextmanager
async def path_at(root: Path) -> AsyncIterator[HotPath]:
    """Yield a connection whose sends of all kinds take the fast path; it keeps all responses."""
    async with hot_path_at(root, kernels=False, flushDiskType="SYNC_FLUSH", **SMALL) as path:
        for frames in (sends(8), batches(2), halves(2)):
            for data in frames:
                path.feed(data)
        await until(lambda: not path.connection.unanswered)
        path.transport.kept = []
        yield path


def answers(path: HotPath) -> list[Command]:
    assert path.transport.kept is not None
    return FrameDecoder().receive_data(b"".join(path.transport.kept))


def forbid_slow_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the slow path was taken")

    monkeypatch.setattr(handle_send.SendHandler, "__call__", fail)


@pytest.mark.parametrize("kind", [sends, batches, halves])
def test_unflushed_sends_are_neither_answered_nor_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[..., list[bytes]]
) -> None:
    gate = Gate(monkeypatch)

    async def work() -> None:
        async with path_at(tmp_path) as path:
            forbid_slow_path(monkeypatch)
            store = path.broker.state.store
            confirmed_to = store.confirmed_to
            gate.is_open.clear()
            path.feed(b"".join(kind(100, first=FIRST)))
            written_to = store.written_to
            assert written_to > confirmed_to and path.connection.unanswered == 100
            await asyncio.sleep(0.01)
            path.dispatch()
            assert not path.transport.kept and store.dispatched_to <= store.confirmed_to == confirmed_to
            gate.is_open.set()
            await until(lambda: not path.connection.unanswered)
            assert store.confirmed_to == written_to
            assert [answer.opaque for answer in answers(path)] == list(range(FIRST, FIRST + 100))
            assert {answer.code for answer in answers(path)} == {ResponseCode.SUCCESS}

    uvloop.run(work())


def test_stopping_broker_answers_waiting_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def work() -> None:
        async with path_at(tmp_path) as path:
            gate.is_open.clear()
            path.feed(b"".join(sends(5, first=FIRST)))
            stopping = asyncio.create_task(path.broker._listeners.main.stop(grace_seconds=60))
            await asyncio.sleep(0.01)
            assert not stopping.done() and not path.transport.kept
            gate.is_open.set()
            await stopping
            assert [answer.opaque for answer in answers(path)] == list(range(FIRST, FIRST + 5))

    uvloop.run(work())


def test_failed_flush_refuses_each_send_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def work() -> None:
        async with path_at(tmp_path) as path:
            confirmed_to = path.broker.state.store.confirmed_to
            gate.is_broken = True
            path.feed(b"".join(sends(5, first=FIRST)))
            await until(lambda: not path.connection.unanswered)
            assert [answer.opaque for answer in answers(path)] == list(range(FIRST, FIRST + 5))
            assert {answer.code for answer in answers(path)} == {ResponseCode.SERVICE_NOT_AVAILABLE}
            path.feed(b"".join(sends(2, first=FIRST + 5)))
            await until(lambda: len(answers(path)) == 7)
            assert [answer.code for answer in answers(path)[5:]] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
            assert path.broker.state.store.confirmed_to == confirmed_to

    uvloop.run(work())


def test_batch_with_wait_false_is_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def work() -> None:
        async with path_at(tmp_path) as path:
            gate.is_open.clear()
            without_wait = batches(1, first=FIRST)[0].replace(b"WAIT\\u0001true\\u0002", b"WAIT\\u0001false\\u0002")
            start, header_bytes = without_wait[:8], int.from_bytes(batches(1, first=FIRST)[0][5:8], "big") + 1
            total = int.from_bytes(start[:4], "big") + 1
            path.feed(total.to_bytes(4, "big") + header_bytes.to_bytes(4, "big") + without_wait[8:])
            assert [answer.opaque for answer in answers(path)] == [FIRST]
            gate.is_open.set()

    uvloop.run(work())


def test_answered_send_is_visible_to_consumers(tmp_path: Path) -> None:
    async def work() -> None:
        async with path_at(tmp_path) as path:
            path.feed(b"".join(sends(8, first=FIRST)))
            await until(lambda: not path.connection.unanswered)
            path.transport.kept = []
            fields = {"consumerGroup": "G", "topic": TOPIC, "queueId": "0", "queueOffset": "0"}
            path.feed(frame(RequestCode.GET_MAX_OFFSET, 7, fields))
            await until(lambda: path.transport.kept)
            (answer,) = answers(path)
            assert int(answer.ext_fields["offset"]) >= 3

    uvloop.run(work())
