"""Console server: listens, serves the application on the running event loop, and stops with it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator, Mapping
from typing import cast

import uvicorn

from orbitlog.console.console_app import create_app
from orbitlog.console.console_options import ConsoleOptions
from orbitlog.console.console_state import Console
from orbitlog.console.session.bounded_connections import CONNECTIONS_MAX, HEAD_BYTES_MAX, OpenConnections
from orbitlog.errors import OrbitlogError
from orbitlog.settings.listen_exposure import join_address, reachable_host

_SHUTDOWN_SECONDS = 2
_BACKLOG = 128


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the command."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ConsoleServer:
    """A console that serves HTTP; `start` returns the fields of the ready line."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.console = Console(options)
        self.connections = OpenConnections()
        self._options = options
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> Mapping[str, str]:
        listener = self._listen()
        await self.console.start()
        config = uvicorn.Config(
            create_app(self.console),
            http=cast(type[asyncio.Protocol], self.connections.factory),  # called once for each connection
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # any local process could forge its address
            limit_concurrency=2 * CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started:
            if self._serving.done():
                raise OrbitlogError("the console did not start; its log has the reason")
            await asyncio.sleep(0.005)
        host, port = listener.getsockname()[:2]
        base = self._options.public_url.rstrip("/") or f"http://{join_address(reachable_host(host), port)}"
        facts = {"console": f"{base}/"}
        has_more = self._options.may_write or self._options.allows_sql or not self.console.is_open
        if self.console.takes_token and has_more:
            facts["sign-in"] = f"{base}/sign-in?token={self.console.one_time_token.text}"
        return facts

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait([self._serving])
        await self.console.close()

    def _listen(self) -> socket.socket:
        host = self._options.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, self._options.port), family=family, backlog=_BACKLOG)
        listener.setblocking(False)
        return listener
