"""Slaves of a master with access control and TLS: tables need credentials, the log needs an entry of `haMembers`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from orbitlog.access.credentials import Credentials
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import TIMEOUT_S, Desk, desk_at, until
from tests.support.certificates import server_files, shared_ca, trusting
from tests.support.secured_broker import ROOT, SECURE, send_command

TLS = {
    "tls.server.mode": "enforcing",
    "tls.server.certPath": server_files().certificate,
    "tls.server.keyPath": server_files().key,
    "tls.client.trustCertPath": str(shared_ca().certificate),
}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "syncBrokerMetadataPeriod": "500", "haSendHeartbeatInterval": "100"}
MEMBERS = {"haMembers": "127.0.0.1"}
PULL = {"consumerGroup": "G", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4"}
PULL |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}


def signing(credentials: Credentials) -> dict[str, str]:
    inner = {"accessKey": credentials.access_key, "secretKey": credentials.secret_key}
    return {"innerClientAuthenticationCredentials": json.dumps(inner)}


def run_pair(
    root: Path,
    work: Callable[[Desk, Desk], Awaitable[None]],
    *,
    master: dict[str, str],
    slave: dict[str, str] | None = None,
    credentials: Credentials = ROOT,
) -> None:
    """Run a master and a slave of it, both with TLS, the master with access control; each registers over TLS."""

    async def go() -> None:
        server = NameServer(NameServerSettings(listen_port=0, tls=TLS))
        await server.start()
        try:
            name_server = {"namesrvAddr": f"127.0.0.1:{server.address[1]}"}
            secured = {**SECURE, **TLS, **name_server, **signing(ROOT), **master}
            copying = {**SLAVE, **TLS, **name_server, **signing(credentials), **(slave or {})}
            async with desk_at(root / "master", **secured) as first, desk_at(root / "slave", **copying) as second:
                client = RemotingClient(tls=trusting())
                try:
                    sent = await client.invoke(first.address, send_command(ROOT), TIMEOUT_S)
                    assert sent.code == ResponseCode.SUCCESS
                    await work(first, second)
                finally:
                    await client.close()
        finally:
            await server.stop()

    uvloop.run(go())


@pytest.mark.parametrize("checks", [False, True], ids=["slave is open", "slave checks requests"])
def test_slave_with_credentials_copies_log_and_tables_over_tls(
    checks: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(master: Desk, slave: Desk) -> None:
        store, copy = master.broker.state.store, slave.broker.state.store
        await until(lambda: copy.received_to == store.written_to > 0)
        await until(lambda: slave.broker.state.topics.find("Orders") is not None)
        assert not master.broker._access or master.broker._access.guard.refused_count == 0
        client = RemotingClient(tls=trusting())
        try:
            pull = {**PULL, "topic": "Orders"}
            answer = await client.invoke(slave.address, Command(RequestCode.PULL_MESSAGE, ext_fields=pull), TIMEOUT_S)
            assert (answer.code == ResponseCode.NO_PERMISSION) == checks
        finally:
            await client.close()

    run_pair(tmp_path, work, master=MEMBERS, slave=SECURE if checks else {})
    assert ("serves copied messages without credentials" in caplog.text) != checks


def test_slave_that_is_not_a_member_gets_no_log(tmp_path: Path) -> None:
    async def work(_: Desk, slave: Desk) -> None:
        await until(lambda: slave.broker.state.topics.find("Orders") is not None)  # tables come with credentials
        assert slave.broker.state.store.received_to == 0

    run_pair(tmp_path, work, master={})


def test_slave_with_wrong_credentials_gets_no_tables(tmp_path: Path) -> None:
    async def work(master: Desk, slave: Desk) -> None:
        access = master.broker._access
        assert access is not None
        await until(lambda: access.guard.refused_count > 0)
        assert slave.broker.state.topics.find("Orders") is None

    run_pair(tmp_path, work, master=MEMBERS, credentials=Credentials(ROOT.access_key, "wrong"))
