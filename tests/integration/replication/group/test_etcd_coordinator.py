"""The etcd coordinator against real servers: transactions, sessions, killed and paused members, credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from orbitlog.errors import OrbitlogError, RemotingError, WireError
from orbitlog.replication.group.coordinator import MemoryCoordinator, open_coordinator
from orbitlog.replication.group.etcd_coordinator import EtcdCoordinator
from orbitlog.replication.group.etcd_gateway import EtcdAccess, EtcdGateway
from orbitlog.replication.group.group_record import GroupRecord
from orbitlog.replication.group.group_state import GroupState, LiveMember, Proposal
from orbitlog.testing.failover.coordinator_checks import check_coordinator
from tests.support.etcd_servers import EtcdServers

pytestmark = pytest.mark.xdist_group("etcd")  # one cluster for all tests
FOUNDED = GroupState(1, 1, frozenset((1,)), 0, {1: 0}, "1-a-1")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServers]:
    servers = EtcdServers(tmp_path_factory.mktemp("etcd"), 3)
    yield servers
    servers.close()


def coordinator(etcd: EtcdServers, group: str, member_id: int, access: EtcdAccess | None = None) -> EtcdCoordinator:
    return open_coordinator("etcd:" + ",".join(etcd.endpoints), "test", group, member_id, access)


def test_memory_coordinator_keeps_the_contract() -> None:
    record = GroupRecord()
    asyncio.run(check_coordinator(MemoryCoordinator(record, 1), MemoryCoordinator(record, 2)))


def test_etcd_coordinator_keeps_the_contract(etcd: EtcdServers) -> None:
    asyncio.run(check_coordinator(coordinator(etcd, "contract", 1), coordinator(etcd, "contract", 2)))


def test_ended_lease_is_reported_by_renewal(etcd: EtcdServers) -> None:
    async def run() -> None:
        member = coordinator(etcd, "renewal", 1)
        await member.register(LiveMember(0))
        assert await member.renew()
        lease = member._lease
        await member.close()
        member._lease = lease
        assert not await member.renew()
        assert dict((await member.read()).live) == {}

    asyncio.run(run())


def test_registration_that_arrives_late_does_not_replace_a_newer_one(etcd: EtcdServers) -> None:
    class LateGateway(EtcdGateway):
        """Keeps a transaction until it is released."""

        def __init__(self) -> None:
            super().__init__(etcd.endpoints)
            self.is_held, self.release = asyncio.Event(), asyncio.Event()

        async def call(self, path: str, body: dict[str, Any], *, is_repeatable: bool = False) -> dict[str, Any]:
            if path == "/v3/kv/txn":
                self.is_held.set()
                await self.release.wait()
            return await super().call(path, body, is_repeatable=is_repeatable)

    async def run() -> None:
        gateway, newer = LateGateway(), coordinator(etcd, "late", 1)
        late = asyncio.create_task(EtcdCoordinator(gateway, "test", "late", 1).register(LiveMember(0)))
        await gateway.is_held.wait()
        session = await newer.register(LiveMember(0))
        gateway.release.set()
        with pytest.raises(RemotingError, match="another registration"):
            await late
        assert (await newer.read()).live[1].session == session
        assert await newer.renew()

    asyncio.run(run())


def test_renewal_reports_a_registration_that_was_removed(etcd: EtcdServers) -> None:
    """A process with the same id replaced it, and ended: this member is live only after another registration."""

    async def run() -> None:
        first, second = coordinator(etcd, "removed", 1), coordinator(etcd, "removed", 1)
        await first.register(LiveMember(0))
        await second.register(LiveMember(0))
        await first.read()
        assert await first.renew(), "two processes with one id would replace each other without end"
        await second.close()
        assert dict((await first.read()).live) == {}
        assert not await first.renew()
        session = await first.register(LiveMember(0))
        assert (await first.read()).live[1].session == session
        assert await first.renew()

    asyncio.run(run())


def test_lost_answer_of_a_recorded_proposal_is_recognised_by_its_token(etcd: EtcdServers) -> None:
    async def run() -> None:
        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            """Pass a request on, and close the connection instead of answering."""
            host, port = etcd.endpoints[0].removeprefix("http://").split(":")
            upstream_reader, upstream = await asyncio.open_connection(host, int(port))
            upstream.write(await reader.read(65536))
            await upstream_reader.read(65536)
            upstream.close()
            writer.close()

        member = coordinator(etcd, "lost", 1)
        session = await member.register(LiveMember(0))
        proxy = await asyncio.start_server(forward, "127.0.0.1", 0)
        port = proxy.sockets[0].getsockname()[1]
        through = open_coordinator(f"etcd:http://127.0.0.1:{port}", "test", "lost", 1)
        with pytest.raises(RemotingError):
            await through.propose(Proposal(0, FOUNDED, session))
        proxy.close()
        state = (await member.read()).state
        assert state is not None
        assert state.token == FOUNDED.token

    asyncio.run(run())


def test_wrong_server_and_refused_connection_raise() -> None:
    async def run() -> None:
        async def not_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(65536)  # a connection that is closed with unread bytes is reset
            writer.write(b"SSH-2.0-x\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(not_http, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(WireError, match="not an HTTP answer"):
            await EtcdGateway([f"http://127.0.0.1:{port}"]).call("/v3/kv/range", {})
        server.close()
        await server.wait_closed()
        with pytest.raises(RemotingError, match="no etcd endpoint"):
            await EtcdGateway([f"http://127.0.0.1:{port}"]).call("/v3/kv/range", {})

    asyncio.run(run())


@pytest.mark.parametrize("text", ["etcd:", "etcd:ftp://a:1", "http://a:1", "etcd:http://a", "etcd:http://a:1/x"])
def test_invalid_coordinator_raises(text: str) -> None:
    with pytest.raises(ValueError, match="invalid"):
        open_coordinator(text, "test", "a", 1)


def test_user_and_password_are_sent_and_an_expired_token_is_renewed(etcd: EtcdServers) -> None:
    async def run() -> None:
        plain = EtcdGateway(etcd.endpoints, timeout_s=20)  # passwords are hashed slowly
        await plain.call("/v3/auth/role/add", {"name": "root"})
        await plain.call("/v3/auth/user/add", {"name": "root", "password": "secret"})
        await plain.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        await plain.call("/v3/auth/enable", {})
        gateway = EtcdGateway(etcd.endpoints, EtcdAccess("root", "secret"))
        try:
            with pytest.raises(RemotingError):
                await plain.call("/v3/kv/range", {"key": "YQ=="})
            with pytest.raises(RemotingError, match="refused user"):
                await coordinator(etcd, "auth", 1, EtcdAccess("root", "wrong")).read()
            member = EtcdCoordinator(gateway, "test", "auth", 1)
            session = await member.register(LiveMember(0))
            gateway._token = "expired.1"
            assert (await member.propose(Proposal(0, FOUNDED, session))).state == FOUNDED
        finally:
            await gateway.call("/v3/auth/disable", {})

    asyncio.run(run())


def test_killed_and_paused_servers_leave_the_majority_in_service(etcd: EtcdServers) -> None:
    async def outcome(member: EtcdCoordinator, attempts: int) -> bool:
        for _ in range(attempts):
            try:
                await member.read()
            except OrbitlogError:
                continue
            return True
        return False

    member = EtcdCoordinator(EtcdGateway(etcd.endpoints, timeout_s=0.5), "test", "faults", 1)
    etcd.pause(0)
    assert asyncio.run(outcome(member, 40))
    etcd.resume(0)
    etcd.kill(1)
    assert asyncio.run(outcome(member, 40))
    etcd.kill(2)
    assert not asyncio.run(outcome(member, 1)), "a minority must not answer reads"
