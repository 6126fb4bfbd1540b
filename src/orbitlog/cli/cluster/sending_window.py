"""Sending a stream: so many messages on their way at once, read from standard input while others are being sent."""

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
    drafts: AsyncIterator[T], send: Callable[[T], Awaitable[R]], tell: Callable[[R], None], *, in_flight: int
) -> int:
    """Send each, with at most `in_flight` waiting; tell of each in the order given. The first failure ends it."""
    waiting: deque[asyncio.Task[R]] = deque()
    sent = 0
    try:
        async for draft in drafts:
            waiting.append(asyncio.ensure_future(send(draft)))
            while waiting and (len(waiting) >= in_flight or waiting[0].done()):
                tell(await waiting.popleft())
                sent += 1
        while waiting:
            tell(await waiting.popleft())
            sent += 1
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return sent


async def input_lines() -> AsyncIterator[bytes]:
    """Yield the lines of standard input without their ends.

    A thread reads them, so that connections live on while nothing is typed; it is given up, not waited for, when the
    command ends.
    """
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
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
            return  # the command has ended, and its loop with it
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
    """Return standard input to its end."""
    return await asyncio.to_thread(sys.stdin.buffer.read)
