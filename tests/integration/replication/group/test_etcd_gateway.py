"""The etcd gateway with endpoints that answer, refuse, fail or stay silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitlog.errors import ConnectFailed, RemotingError, RequestTimeout
from orbitlog.replication.group.etcd_gateway import EtcdAccess, EtcdGateway
from tests.support.free_ports import free_port

RANGE, TXN = "/v3/kv/range", "/v3/kv/txn"
ANSWERED, UNAVAILABLE, SILENT = "200 OK", "503 Service Unavailable", ""


class Endpoint:
    """A server that answers each request with one status, or never."""

    def __init__(self, status: str) -> None:
        self.status = status
        self.paths: list[str] = []
        self.pause_s = 0.0
        self._over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.paths.append(head.split(b" ")[1].decode())
            await asyncio.sleep(self.pause_s)
            if self.status == SILENT:
                await self._over.wait()
            body = b'{"error":"no leader"}' if self.status == UNAVAILABLE else b'{"count":"1"}'
            writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        finally:
            writer.close()

    def end(self) -> None:
        self._over.set()


@asynccontextmanager
async def endpoints(*statuses: str) -> AsyncIterator[tuple[list[Endpoint], list[str]]]:
    """Yield running endpoints, and their addresses."""
    running = [Endpoint(status) for status in statuses]
    servers = [await asyncio.start_server(endpoint.serve, "127.0.0.1", 0) for endpoint in running]
    try:
        yield running, [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers]
    finally:
        for endpoint, server in zip(running, servers, strict=True):
            endpoint.end()
            server.close()


def test_repeatable_request_passes_a_silent_endpoint_and_remembers_it() -> None:
    async def run() -> None:
        async with endpoints(SILENT, ANSWERED, ANSWERED) as (servers, addresses):
            gateway = EtcdGateway(addresses, timeout_s=10, hedge_s=0.02)
            for _ in range(5):
                assert await gateway.call(RANGE, {}, is_repeatable=True) == {"count": "1"}
            assert [len(server.paths) for server in servers] == [1, 5, 0]
            await gateway.call(TXN, {})
            assert servers[1].paths[-1] == TXN, "a request of another kind started with the silent endpoint"

    asyncio.run(run())


@pytest.mark.parametrize("first", [UNAVAILABLE, "refused"])
def test_repeatable_request_leaves_a_failing_endpoint_without_a_pause(first: str) -> None:
    async def run() -> None:
        async with endpoints(first, ANSWERED) as (_, addresses):
            if first == "refused":
                addresses[0] = f"http://127.0.0.1:{free_port()}"
            gateway = EtcdGateway(addresses, timeout_s=30, hedge_s=25)
            async with asyncio.timeout(20):
                assert await gateway.call(RANGE, {}, is_repeatable=True) == {"count": "1"}

    asyncio.run(run())


def test_other_requests_are_sent_to_one_endpoint_only() -> None:
    """A copy that is executed late would make the outcome of a refused proposal unknown."""

    async def run() -> None:
        async with endpoints(SILENT, ANSWERED) as (servers, addresses):
            gateway = EtcdGateway(addresses, timeout_s=0.2, hedge_s=0.02)
            with pytest.raises(RequestTimeout, match="no answer within"):
                await gateway.call(TXN, {})
            assert [server.paths for server in servers] == [[TXN], []]
            assert await gateway.call(TXN, {}) == {"count": "1"}, "the silent endpoint was asked first again"

    asyncio.run(run())


def test_all_endpoints_failing_raises_the_last_problem() -> None:
    async def run() -> None:
        async with endpoints(UNAVAILABLE, UNAVAILABLE) as (servers, addresses):
            with pytest.raises(RemotingError, match="status 503: no leader"):
                await EtcdGateway(addresses).call(RANGE, {}, is_repeatable=True)
            assert [len(server.paths) for server in servers] == [1, 1]
        async with endpoints(SILENT, SILENT) as (servers, addresses):
            gateway = EtcdGateway(addresses, timeout_s=0.3, hedge_s=0.02)
            with pytest.raises(RequestTimeout):
                await gateway.call(RANGE, {}, is_repeatable=True)
            assert [len(server.paths) for server in servers] == [1, 1]
        closed = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
        for is_repeatable in (True, False):
            with pytest.raises(ConnectFailed, match="no etcd endpoint"):
                await EtcdGateway(closed).call(RANGE, {}, is_repeatable=is_repeatable)

    asyncio.run(run())


def test_password_is_given_more_time_than_other_requests() -> None:
    """etcd hashes it slowly on purpose."""

    async def run() -> None:
        async with endpoints(ANSWERED, ANSWERED) as (servers, addresses):
            servers[0].pause_s = 0.6
            gateway = EtcdGateway(addresses, EtcdAccess("user", "secret"), timeout_s=0.5, hedge_s=1.0)
            with pytest.raises(RemotingError, match="refused user"):
                await gateway.call(RANGE, {}, is_repeatable=True)  # the answer has no token
            assert [server.paths for server in servers] == [["/v3/auth/authenticate"], []]

    asyncio.run(run())


def test_requests_at_once_agree_on_an_endpoint_that_answers() -> None:
    """Each request that fails moves the start on; together they must not return to the silent endpoint."""

    async def run() -> None:
        async with endpoints(SILENT, ANSWERED, ANSWERED) as (servers, addresses):
            gateway = EtcdGateway(addresses, timeout_s=10, hedge_s=0.02)
            await asyncio.gather(*(gateway.call(RANGE, {}, is_repeatable=True) for _ in range(9)))
            asked = len(servers[0].paths)
            await asyncio.gather(*(gateway.call(RANGE, {}, is_repeatable=True) for _ in range(9)))
            assert len(servers[0].paths) == asked

    asyncio.run(run())
