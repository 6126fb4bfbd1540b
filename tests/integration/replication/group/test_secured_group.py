"""A replica group with access control: every member refuses strangers in each role, on its own port and the HA port."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import orbitlog
from orbitlog.access.access_file import save_access_file
from orbitlog.access.credentials import Credentials
from orbitlog.access.user_table import UserTable
from orbitlog.broker.replicas.handle_replicas import REPLICA_CODES
from orbitlog.errors import BrokerRefused
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.replication.epoch_frames import Handshake, encode_handshake
from tests.support.broker_desk import TIMEOUT_S
from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import SECONDS_MAX, ReplicaGroup
from tests.support.secured_broker import NOBODY, ROOT, send_command

pytestmark = pytest.mark.xdist_group("etcd")

CODES = (*REPLICA_CODES, RequestCode.PULL_MESSAGE, RequestCode.GET_BROKER_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG)
ELECT = {"brokerName": "broker-s", "brokerId": "1", "clusterName": "DefaultCluster", "designateElect": "true"}


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServers]:
    servers = EtcdServers(tmp_path_factory.mktemp("etcd"), 1)
    yield servers
    servers.close()


def settings_in(directory: Path) -> tuple[str, ...]:
    table = UserTable()
    table.create_user(ROOT.access_key, {"password": ROOT.secret_key, "userType": "Super"})
    table.create_user(NOBODY.access_key, {"password": NOBODY.secret_key})
    save_access_file(directory / "access.json", table, 1)
    inner = json.dumps({"accessKey": ROOT.access_key, "secretKey": ROOT.secret_key})
    return (
        *("authenticationEnabled=true", "authorizationEnabled=true", f"accessFile={directory / 'access.json'}"),
        *(f"innerClientAuthenticationCredentials={inner}", "haMembers=127.0.0.1"),
        "authenticationFailuresPerMinuteMax=1000000",
    )


async def refused_codes(port: int) -> set[int]:
    """Send requests of strangers to a member; return the codes of the answers."""
    client, answers = RemotingClient(), set()
    try:
        for user in (None, NOBODY, Credentials(ROOT.access_key, "wrong")):
            commands = [Command(code, ext_fields=dict(ELECT)) for code in CODES]
            for command in commands:
                if user is not None:
                    user.sign(command)
            for command in (*commands, send_command(user)):
                answers.add((await client.invoke(f"127.0.0.1:{port}", command, TIMEOUT_S)).code)
    finally:
        await client.close()
    return answers


async def bytes_for_stranger(ha_port: int) -> bytes:
    """Return what a host that is not in `haMembers` gets from the HA port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ha_port, local_addr=("127.0.0.2", 0))
    try:
        writer.write(encode_handshake(Handshake(1)))
        await writer.drain()
        async with asyncio.timeout(TIMEOUT_S):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def wait_until_registered(mq: orbitlog.BlockingRocketMQ, address: str) -> None:
    """Wait until clients find the member that was elected: it opens its store first."""
    deadline = time.monotonic() + SECONDS_MAX
    while mq.admin.brokers() != {"broker-s": address}:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_members_refuse_strangers_in_each_role(etcd: EtcdServers, tmp_path: Path) -> None:
    group = ReplicaGroup(tmp_path, etcd, 2, *settings_in(tmp_path), name="broker-s")
    try:
        group.wait_for(lambda state: len(state.in_sync) == 2)
        first = group.master
        with orbitlog.connect(group.name_server, credentials=ROOT) as mq:
            assert mq.send("Orders", "one").status is orbitlog.SendStatus.SENT
            for port, ha_port in group.ports.values():
                assert asyncio.run(refused_codes(port)) == {ResponseCode.NO_PERMISSION}
                assert asyncio.run(bytes_for_stranger(ha_port)) == b""
            group.kill(first)
            second = group.wait_for(lambda state: state.master not in (None, first)).master
            assert second is not None
            wait_until_registered(mq, f"127.0.0.1:{group.ports[second][0]}")
            assert mq.send("Orders", "two").status is orbitlog.SendStatus.SENT
            assert asyncio.run(refused_codes(group.ports[second][0])) == {ResponseCode.NO_PERMISSION}
        for user in (None, NOBODY):
            with orbitlog.connect(group.name_server, credentials=user) as mq, pytest.raises(BrokerRefused):
                mq.send("Orders", "of a stranger")
        group.stop(second)
        assert [message.body for message in group.messages(second) if message.topic == "Orders"] == [b"one", b"two"]
    finally:
        group.close()
