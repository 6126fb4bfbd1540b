"""A TCP proxy for tests: discards the bytes of either direction without a sign to either end, or closes connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

Address = tuple[str, int]


class ProxyThread:
    """The event loop of all proxies of a test, in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.proxies: list[LinkProxy] = []
        self._thread = threading.Thread(target=self.loop.run_forever, name="link proxies", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def close(self) -> None:
        async def end() -> None:
            for proxy in self.proxies:
                await proxy.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # aborted transports close their sockets in the next turn
            await asyncio.sleep(0)

        self.run(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


class LinkProxy:
    """Forwards connections to a target.

    `loses_requests`: bytes to the target are discarded. `loses_answers`: bytes from it are.
    """

    def __init__(self, thread: ProxyThread, listen: Address, target: Address) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.loses_requests = self.loses_answers = False
        self._thread = thread
        self._server = thread.run(self._listen(listen))
        thread.proxies.append(self)

    async def _listen(self, listen: Address) -> asyncio.Server:
        return await asyncio.start_server(self._accept, *listen)

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self, *, requests: bool = True, answers: bool = True) -> None:
        """Discard bytes from now on; open connections stay open, and new ones are accepted."""
        self.loses_requests, self.loses_answers = requests, answers

    def heal(self) -> None:
        """Forward new connections; those that have lost bytes are closed."""
        self.loses_requests = self.loses_answers = False
        self._thread.run(self._close_all())

    async def close(self) -> None:
        """Close the listener and all connections; runs in the thread of the proxies."""
        self._server.close()
        await self._close_all()

    async def _close_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, target_writer}
        try:
            await asyncio.gather(
                self._pump(reader, target_writer, is_request=True), self._pump(target_reader, writer, is_request=False)
            )
        finally:
            for each in (writer, target_writer):
                each.transport.abort()
                self._writers.discard(each)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        try:
            while data := await reader.read(65536):
                if not (self.loses_requests if is_request else self.loses_answers):
                    writer.write(data)
                    await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:
            writer.transport.abort()
