"""Java clients of a replica group: they find the new master within their route poll, and lose nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

import orbitlog
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver, Refused
from tests.interop.harness.store_copies import CATCH_UP_SECONDS
from tests.interop.harness.systems import System
from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import ReplicaGroup

pytestmark = pytest.mark.interop

SHORT_POLL_MS = 1000
ROUTE_POLL_S = 30.0
# What a client and a new master need beyond the poll, on a busy machine.
MARGIN_S = 8.0


class GroupSystem:
    """The group as the harness sees a system."""

    def __init__(self, group: ReplicaGroup) -> None:
        self._group = group

    @property
    def name_server_address(self) -> str:
        return self._group.name_server

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self._group.ports[self._group.master][0]}"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ReplicaGroup]:
    directory = tmp_path / "etcd"
    directory.mkdir()
    etcd = EtcdServers(directory, 3)
    group = ReplicaGroup(tmp_path, etcd, name_servers=2)
    yield group
    group.close()
    etcd.close()


def wait_for_route(group: ReplicaGroup, master: int) -> None:
    """Wait until the name servers return the address of a master."""

    async def wait() -> None:
        async with orbitlog.connect(f"rocketmq://{group.name_server.replace(';', ',')}") as mq:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while await mq.admin.brokers() != {group.name: f"127.0.0.1:{group.ports[master][0]}"}:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    asyncio.run(wait())


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_java_clients_follow_a_failover(version: str, group: ReplicaGroup, driver_of: Callable[[str], Driver]) -> None:
    group.wait_for(lambda state: len(state.in_sync) == 3)
    client = Client(driver_of(f"java-{version}"), cast(System, GroupSystem(group)))
    topic, readers = client.topic("Failover"), client.group("readers")
    # Java shares connections and routes between clients of one instance: each producer is one of its own.
    short = client.producer(group=client.group("short"), retries=0, timeoutMs=3000, pollNameServerMs=SHORT_POLL_MS)
    plain = client.producer(group=client.group("plain"), retries=0, timeoutMs=3000)
    push = client.push(topic, readers, pollNameServerMs=SHORT_POLL_MS)
    acknowledged: set[object] = set()

    def is_sent(producer: str) -> bool:
        try:
            [sent] = client.send(producer, topic, count=1, bytesMax=500)
        except Refused:
            return False
        if sent["status"] == "SEND_OK":
            acknowledged.add(sent["msgId"])
        return sent["status"] == "SEND_OK"

    try:
        for producer in (short, plain):
            for _ in range(20):
                client.eventually(lambda producer=producer: is_sent(producer), "a send before the failover")
        push.wait_for(len(acknowledged), CATCH_UP_SECONDS)
        first = group.master
        group.kill(first)
        elected = group.wait_for(lambda state: state.master not in (None, first)).master
        assert elected is not None
        wait_for_route(group, elected)
        registered_s = time.monotonic()
        client.eventually(lambda: is_sent(short), "a send with the short poll", SHORT_POLL_MS / 1000 + MARGIN_S)
        short_s = time.monotonic() - registered_s
        client.eventually(lambda: is_sent(plain), "a send with the default poll", ROUTE_POLL_S + MARGIN_S)
        print(f"{version}: {short_s:.1f} s and {time.monotonic() - registered_s:.1f} s after the registration")
        for producer in (short, plain):
            for _ in range(20):
                assert is_sent(producer)
        group.start(first)
        group.wait_for(lambda state: len(state.in_sync) == 3)
        came = push.wait_for(len(acknowledged), CATCH_UP_SECONDS)
        assert acknowledged <= {message.get("uniqueId") or message["msgId"] for message in came}
    finally:
        client.close()
