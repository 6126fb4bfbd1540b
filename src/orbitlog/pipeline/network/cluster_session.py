"""Cluster session: connections of a planning or worker process to one cluster, kept open between tasks.

A reused Python worker runs many short tasks; connecting in each would cost more than the pulls. The event loop runs in
a thread, because Spark calls readers and writers as plain functions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orbitlog.client.admin.administration import Administration
from orbitlog.client.connection.client_identity import make_client_id
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.loop_thread import LoopThread
from orbitlog.client.connection.routes import Routes
from orbitlog.client.consumer.group_link import GroupLink
from orbitlog.errors import NoBroker, RemotingError
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.request_dispatch import not_supported
from orbitlog.wire.command import Command

R = TypeVar("R")

_SESSIONS_MAX = 8
_FIRST_PAUSE_S, _PAUSE_S_MAX = 0.05, 1.0


class ClusterSession:
    """Connections to one cluster and the thread of their event loop; coroutines of its parts run only in `run`."""

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        context = options.tls_context()
        credentials = options.credentials()
        self._thread = LoopThread()
        self.link = self._thread.call(lambda: ClusterLink(options.name_servers, _refuse_request, credentials, context))
        self.routes = Routes(self.link)
        self.admin = Administration(self.link, self.routes)
        self.group = GroupLink(self.link, self.routes, options.consumer_group, make_client_id())

    def run(self, work: Awaitable[R]) -> R:
        """Await in the thread of the event loop and return the result."""
        return self._thread.run(work)

    async def retried(self, make: Callable[[], Awaitable[R]]) -> R:
        """Await a request; repeat it while servers do not answer. Raise `BrokerUnavailable` at the time limit."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self.options.broker_timeout_s, _FIRST_PAUSE_S
        while True:
            try:
                return await make()
            except (RemotingError, NoBroker) as error:
                if loop.time() + pause >= deadline:
                    raise BrokerUnavailable(f"{error}; brokerTimeoutMs sets how long to retry") from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_S_MAX)

    def close(self) -> None:
        self._thread.run(self.link.close())
        self._thread.stop()


def _refuse_request(_: Connection, request: Command) -> Answer:
    return not_supported(request)


_sessions: dict[tuple[int, ClusterOptions], ClusterSession] = {}


def session_of(options: ClusterOptions) -> ClusterSession:
    """Return the session of this process for these options, connected at the first request."""
    # Spark forks its workers: a session of the parent has no thread here.
    key = os.getpid(), options
    session = _sessions.get(key)
    if session is None:
        while len(_sessions) >= _SESSIONS_MAX:
            oldest = next(iter(_sessions))
            closed = _sessions.pop(oldest)
            if oldest[0] == os.getpid():
                closed.close()
        session = _sessions[key] = ClusterSession(options)
    return session


def close_sessions() -> None:
    """Close all sessions of this process; for tests and for commands that end."""
    for key in [key for key in _sessions if key[0] == os.getpid()]:
        _sessions.pop(key).close()
