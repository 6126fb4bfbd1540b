"""Event loop in a background thread, for callers without one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TypeVar

from orbitlog.errors import ClientClosed, ClientError

R = TypeVar("R")

_STOP_SECONDS = 10.0


class LoopThread:
    """An event loop in a thread of its own; other threads hand coroutines over and wait for the results.

    No caller waits for a stopped loop: calls during or after `stop`, and calls pending then, raise `ClientClosed`.
    """

    def __init__(self) -> None:
        self._loop = _new_event_loop()
        # Orders `run` against `stop`: no coroutine is submitted after `stop` began to cancel tasks. Reentrant, because
        # a signal handler may call `run` while its thread is inside `run`.
        self._gate = threading.RLock()
        self._is_stopping = False
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="orbitlog client", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[R]) -> R:
        """Await in the loop thread and return the result; raise `ClientError` if the call could never return."""
        try:
            self._check_caller()
        except ClientError:
            _discard(awaitable)
            raise
        with self._gate:
            if self._is_stopping:
                _discard(awaitable)
                raise ClientClosed("the client is closed")
            future = asyncio.run_coroutine_threadsafe(_awaited(awaitable), self._loop)
        try:
            return future.result()
        except CancelledError:
            if not self._is_stopping:
                raise
            raise ClientClosed("the client was closed during the call") from None
        finally:
            future.cancel()  # if the caller was interrupted; no effect on a completed future

    def call(self, function: Callable[[], R]) -> R:
        """Call a plain function in the loop thread and return the result."""

        async def called() -> R:
            return function()

        return self.run(called())

    def _check_caller(self) -> None:
        if threading.current_thread() is self._thread:
            raise ClientError("blocking call from the client's own thread: it would wait for itself")
        if os.getpid() != self._process_id:
            raise ClientError("the process was forked, and the client's thread was not copied: connect after the fork")

    def stop(self) -> None:
        """Cancel pending calls, and end the thread; no effect in a forked process or a second time."""
        if os.getpid() != self._process_id:
            return
        with self._gate:
            if self._is_stopping:
                return
            self._is_stopping = True
        ending = asyncio.run_coroutine_threadsafe(_cancel_tasks(), self._loop)
        with suppress(TimeoutError):
            ending.result(_STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


def _discard(awaitable: Awaitable[object]) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn about it."""
    if isinstance(awaitable, Coroutine):
        awaitable.close()


async def _cancel_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_STOP_SECONDS)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _awaited(awaitable: Awaitable[R]) -> R:
    return await awaitable
