"""Sending window: sends a stream of messages with a maximum in flight, reading standard input meanwhile."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LINES_AHEAD = 1_000
_LINE_BYTES_MAX = 64 * 1024 * 1024


async def send_all(
    drafts: AsyncIterator[T], send: Callable[[T], Awaitable[R]], on_sent: Callable[[R], None], *, in_flight: int
) -> int:
    """Send all drafts with at most `in_flight` at once; return their number.

    `on_sent` is called with each result in the order of the drafts. The first failure cancels the rest and is raised.
    """
    in_progress: deque[asyncio.Task[R]] = deque()
    sent = 0
    try:
        async for draft in drafts:
            in_progress.append(asyncio.ensure_future(send(draft)))
            while in_progress and (len(in_progress) >= in_flight or in_progress[0].done()):
                on_sent(await in_progress.popleft())
                sent += 1
        while in_progress:
            on_sent(await in_progress.popleft())
            sent += 1
    finally:
        for task in in_progress:
            task.cancel()
        await asyncio.gather(*in_progress, return_exceptions=True)
    return sent


async def input_lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input without their ends.

    A thread reads them, so that the event loop serves connections while no input arrives. It is a daemon thread,
    because a blocked read cannot be cancelled when the command ends.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
    # Backpressure: the queue itself is unbounded, because the reading thread cannot await it.
    room = threading.Semaphore(_LINES_AHEAD)

    def read() -> None:
        ending: OSError | None = None
        try:
            while line := sys.stdin.buffer.readline(_LINE_BYTES_MAX):
                room.acquire()
                loop.call_soon_threadsafe(lines.put_nowait, line)
        except OSError as error:
            ending = error
        except RuntimeError:
            return  # the command has ended and closed its loop
        try:
            loop.call_soon_threadsafe(lines.put_nowait, ending)
        except RuntimeError:
            return

    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (line := await lines.get()) is not None:
        if isinstance(line, OSError):
            raise line
        room.release()
        yield line.rstrip(b"\r\n")


async def whole_input() -> bytes:
    """Return all of standard input."""
    return await asyncio.to_thread(sys.stdin.buffer.read)
