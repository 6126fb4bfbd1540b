"""Replica group of the tour: three brokers and etcd, started by `orbitlog up`; the master is killed during sends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orbitlog.cli.tour.tour_orders import read_back
from orbitlog.cli.tour.tour_servers import Server, TourFailed
from orbitlog.client.admin.replica_groups import GroupView, ReplicaGroups
from orbitlog.client.connection.connect import connect
from orbitlog.client.producer.receipts import SendStatus
from orbitlog.errors import ClientError, OrbitlogError, RemotingError

REPLICAS = 3
TOPIC = "Shipments"
_MESSAGES_BEFORE, _MESSAGES_AFTER = 200, 200
_SECONDS_MAX = 90.0
_IN_SYNC_SECONDS_MAX = 60.0
_RETRY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Failover:
    """Acknowledged messages before and after the master was killed, the ones missing then, and the pause of sends."""

    before: int
    after: int
    missing: int
    pause_seconds: float
    new_master: str


def why_no_replicas() -> str | None:
    """Return the reason why a replica group is unavailable, or None."""
    if shutil.which("etcd") is None:
        return "etcd is not installed (package etcd-server of Debian and Ubuntu, etcd of Fedora and Homebrew)"
    return None


class TourReplicas:
    """`orbitlog up --replicas 3 --coordinator etcd`; leaving the block ends all of its processes."""

    def __init__(self, directory: Path) -> None:
        self.store = directory / "replicas"
        words = ("up", "--replicas", str(REPLICAS), "--coordinator", "etcd", "--store", str(self.store))
        self._server = Server("replica group", (*words, *_ANY_PORTS), directory / "replicas.log")
        self._stores = {str(ready["broker"]): str(ready["store"]) for ready in self._server.lines(REPLICAS)}
        self.start_seconds = self._server.ready_seconds
        self.address = str(self._server.facts["name-server"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def kill_master(self) -> str:
        """Kill the process of the master with SIGKILL; return its address."""
        address = asyncio.run(_master(self.address))
        os.kill(_process_id(self._stores[address]), signal.SIGKILL)
        return address

    def fail_over(self) -> Failover:
        """Send, kill the master, send on until the new one has taken as many, and read everything back.

        The master is killed when all members are in sync: the members of a new group join within a second after the
        ready lines, and only a member of the in-sync set can be elected.
        """
        sent = asyncio.run(_send(self.address, range(_MESSAGES_BEFORE)))
        asyncio.run(_wait_for_sync(self.address))
        old = self.kill_master()
        killed_s = time.perf_counter()
        sent_later = asyncio.run(_send(self.address, range(_MESSAGES_BEFORE, _MESSAGES_BEFORE + 1)))
        pause_seconds = time.perf_counter() - killed_s
        sent_later |= asyncio.run(_send(self.address, range(_MESSAGES_BEFORE + 1, _MESSAGES_BEFORE + _MESSAGES_AFTER)))
        missing = asyncio.run(read_back(self.address, sent | sent_later, TOPIC))
        new = asyncio.run(_master(self.address))
        if new == old:
            raise TourFailed("the killed master is still registered as master")
        return Failover(len(sent), len(sent_later), len(missing), pause_seconds, Path(self._stores[new]).name)


_ANY_PORTS = ("--name-server-port", "0", "--broker-port", "0")


def _process_id(store: str) -> int:
    """Return the process id of the broker with this store."""
    listed = subprocess.run(["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True)  # noqa: S607
    for line in listed.stdout.splitlines():
        number, _, command = line.strip().partition(" ")
        if " broker " in command and f" {store} " in command:
            return int(number)
    raise TourFailed(f"no process of the broker with {store} was found")


async def _master(address: str) -> str:
    async with connect(f"rocketmq://{address}") as mq:
        (master,) = (await mq.admin.brokers()).values()
    return master


async def _wait_for_sync(address: str) -> None:
    async with connect(f"rocketmq://{address}") as mq:
        await wait_until_in_sync(ReplicaGroups(mq.admin).groups, _IN_SYNC_SECONDS_MAX)


async def wait_until_in_sync(groups: Callable[[], Awaitable[list[GroupView]]], seconds: float) -> None:
    """Wait until all replicas are alive and in sync; raise `TourFailed` with those that are, after the time."""
    deadline_s = time.monotonic() + seconds
    while True:
        members = [member for group in await groups() for member in group.members]
        in_sync = [member.member_id for member in members if member.is_alive and member.is_in_sync]
        if len(in_sync) == REPLICAS:
            return
        if time.monotonic() > deadline_s:
            raise TourFailed(
                f"the replica group is not in sync after {seconds:g} s: only {len(in_sync)} of {REPLICAS} members are"
                f" ({', '.join(map(str, in_sync)) or 'none'}); the master is not killed"
            )
        await asyncio.sleep(_RETRY_SECONDS)


async def _send(address: str, numbers: range) -> set[str]:
    """Send messages until each one is acknowledged by the whole in-sync set; return the ids."""
    acknowledged = set()
    deadline_s = time.monotonic() + _SECONDS_MAX
    async with connect(f"rocketmq://{address}", producer_group="harbour") as mq:
        for number in numbers:
            while True:
                try:
                    receipt = await mq.send(TOPIC, f"shipment {number}", timeout=5)
                    if receipt.status is SendStatus.SENT:
                        acknowledged.add(receipt.message_id)
                        break
                except (RemotingError, ClientError) as error:
                    if time.monotonic() > deadline_s:
                        raise OrbitlogError(f"no replica took over within {_SECONDS_MAX:.0f} s: {error}") from error
                await asyncio.sleep(_RETRY_SECONDS)
    return acknowledged
