"""Brokers whose fast path and slow path are compared: same clock, same ids, responses and log at hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.wire.command import Command
from orbitlog.wire.frames import FrameDecoder
from tests.support.broker_desk import SMALL
from tests.support.hot_path import HotPath

NOW_MS = 1_731_700_000_000


@asynccontextmanager
async def broker_at(root: Path, flush: str = "ASYNC_FLUSH", **more: str) -> AsyncIterator[Broker]:
    """Yield a broker whose clock stands still and whose unique ids are predictable."""
    settings = {**SMALL, "listenPort": "0", "maxMessageSize": "8000", "flushDiskType": flush, **more}
    broker = Broker(BrokerSettings(settings), root, now_ms=lambda: NOW_MS)
    await broker.start()
    try:
        broker.state.listen_port = 10911
        broker._sends._unique_ids._loader_hash = 7
        yield broker
    finally:
        await broker.stop()


def answers(path: HotPath) -> list[Command]:
    """Return all responses, ordered by opaque number."""
    assert path.transport.kept is not None
    return sorted(FrameDecoder().receive_data(b"".join(path.transport.kept)), key=lambda answer: answer.opaque)


def log_bytes(broker: Broker) -> bytes:
    """Return the whole CommitLog."""
    store = broker.state.store
    return b"".join(
        store._log.segments.file(span.base).read(span.start, span.stop - span.start)
        for span in store._log.spans(0, store.written_to)
    )


async def settled(*paths: HotPath) -> None:
    """Wait for all responses: those of sends that created a topic come after it was registered."""
    async with asyncio.timeout(60):
        while any(path.connection.unanswered and not path.connection.is_closed for path in paths):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def feed_all(path: HotPath, data: bytes) -> None:
    """Feed requests, and return when each was given to the fast path or a handler.

    A turn of the event loop has a millisecond for handlers. On a busy machine that may be over before the last request.
    """
    path.feed(data)
    async with asyncio.timeout(60):
        while path.connection.incoming.backlog and not path.connection.is_closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
