"""A replica group of real processes: etcd, a name server and brokers that fail over, and a ledger of its sends."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orbitlog
from orbitlog.errors import OrbitlogError
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.replication.group.coordinator import open_coordinator
from orbitlog.replication.group.etcd_gateway import EtcdAccess
from orbitlog.replication.group.group_state import GroupState, LiveMember, Snapshot
from orbitlog.replication.group.member_files import MemberFiles
from orbitlog.storefiles.disk import RealDisk
from tests.support.etcd_servers import EtcdServers
from tests.support.free_ports import free_port
from tests.support.serving_process import PROGRAM

NAME = "broker-a"
CLUSTER = "DefaultCluster"
SECONDS_MAX = 60
SEGMENT_BYTES = 256 * 1024


class ReplicaGroup:
    """Broker processes of one group, numbered from 1."""

    def __init__(
        self,
        directory: Path,
        etcd: EtcdServers,
        count: int = 3,
        *settings: str,
        name: str = NAME,
        name_servers: int | ReplicaGroup = 1,
    ) -> None:
        """Start a number of name servers, or use those of another group, and the members."""
        self.directory = directory
        self.name = name
        self.coordinator = "etcd:" + ",".join(etcd.endpoints)
        self.settings = settings
        self.access: EtcdAccess | None = None
        """Credentials and TLS with which the test itself reads from etcd."""
        self.members = range(1, count + 1)
        self.ports = {member: (free_port(), free_port()) for member in self.members}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._log = (directory / "group.log").open("wb")
        self._name_servers: list[subprocess.Popen[bytes]] = []
        self.name_server: str
        with ExitStack() as failed:
            failed.callback(self.close)  # a member that stays would write into a later store at its path
            if isinstance(name_servers, ReplicaGroup):
                self.name_server = name_servers.name_server
            else:
                self._name_servers = [self._spawn("nameserver", "--port", "0", "--json") for _ in range(name_servers)]
                self.name_server = ";".join(self._ready(process)["name-server"] for process in self._name_servers)
            for member in self.members:
                self.start(member)
            failed.pop_all()

    def _spawn(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=self._log)

    def _ready(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (self.directory / "group.log").read_text()[-4000:]
        ready: dict[str, Any] = json.loads(line)
        return ready

    def root(self, member: int) -> Path:
        return self.directory / f"member-{member}"

    def member_settings(self, member: int) -> tuple[str, ...]:
        """Return further settings of one member; a group with proxies overrides it."""
        return ()

    def command(self, member: int) -> tuple[str, ...]:
        """Return the command line of a member; a group with settings files overrides it."""
        return (
            *("broker", "--json", "-n", self.name_server, "--store", str(self.root(member))),
            *("--port", str(self.ports[member][0]), "--set", f"haListenPort={self.ports[member][1]}"),
            *("--set", f"brokerName={self.name}"),
            *("--set", f"replicaCoordinator={self.coordinator}", "--set", f"replicaMemberId={member}"),
            *("--set", f"mappedFileSizeCommitLog={SEGMENT_BYTES}"),
            *(word for setting in (*self.settings, *self.member_settings(member)) for word in ("--set", setting)),
        )

    def start(self, member: int) -> None:
        process = self._spawn(*self.command(member))
        self.processes[member] = process
        self._ready(process)

    def kill(self, member: int, *others: subprocess.Popen[bytes]) -> None:
        """Kill a member, and other processes of its host with it."""
        for process in others:
            process.kill()
        self._end(self.processes[member])
        for process in others:
            process.wait()

    def kill_name_server(self, index: int) -> None:
        self._end(self._name_servers[index])

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def stop(self, member: int) -> None:
        process = self.processes[member]
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
        assert process.stdout is not None
        process.stdout.close()

    def pause(self, member: int) -> None:
        self.processes[member].send_signal(signal.SIGSTOP)

    def resume(self, member: int) -> None:
        self.processes[member].send_signal(signal.SIGCONT)

    def snapshot(self) -> Snapshot:
        """Return the record of the group at the coordinator."""
        return asyncio.run(open_coordinator(self.coordinator, CLUSTER, self.name, 0, self.access).read())

    async def live(self, member: int) -> LiveMember:
        """Return a member's entry under its lease."""
        return (await open_coordinator(self.coordinator, CLUSTER, self.name, 0, self.access).read()).live[member]

    def wait_for(self, condition: Callable[[GroupState], bool]) -> GroupState:
        """Wait until the group's state fulfils a condition; return the state."""
        deadline = time.monotonic() + SECONDS_MAX
        state = None
        while time.monotonic() < deadline:
            try:
                state = self.snapshot().state
            except OrbitlogError:
                state = None
            if state is not None and condition(state):
                return state
            time.sleep(0.05)
        raise AssertionError(f"the group did not get there: {state}\n{self.log_text()}")

    def log_text(self) -> str:
        logs = sorted(self.directory.glob("member-*/logs/broker.log"))
        return "\n".join(f"== {path.parent.parent.name}\n{path.read_text()[-2500:]}" for path in logs)

    def role_changes(self, member: int) -> list[str]:
        """Return role and epoch of each change that the log of a member has, the oldest first."""
        lines = (self.directory / f"member-{member}" / "logs" / "broker.log").read_text()
        return [f"{role} {epoch}" for role, epoch in re.findall(r"role changed: (\w+) in .*?, epoch (\d+)", lines)]

    @property
    def master(self) -> int:
        state = self.wait_for(lambda state: state.master is not None)
        assert state.master is not None
        return state.master

    def close(self) -> None:
        for process in (*self.processes.values(), *self._name_servers):
            process.send_signal(signal.SIGCONT)
            self._end(process)
        self._log.close()

    def messages(self, member: int) -> Iterator[Message]:
        """Yield the messages in the log of a member whose process has ended."""
        for path in sorted((self.root(member) / "commitlog").iterdir()):
            for found in scan_messages(path.read_bytes(), base_physical_offset=int(path.name)):
                if isinstance(found, Message):
                    yield found

    def kept_numbers(self, member: int, topic: str) -> list[int]:
        """Return the bodies of messages that a member gave up."""
        files = MemberFiles(RealDisk(), self.root(member))
        messages = (message for tail in files.kept_tails() for message in files.tail_messages(tail))
        return [int(message.body) for message in messages if message.topic == topic]


class Acknowledged(NamedTuple):
    """A send that was acknowledged, and its place."""

    number: int
    queue_id: int
    queue_offset: int


class GroupLedger:
    """Sends of several producers, and what was acknowledged."""

    def __init__(self, group: ReplicaGroup, topic: str = "Ledger", producers: int = 8) -> None:
        self._group = group
        self.topic = topic
        self._producers = producers
        self._next = 0
        self.acknowledged: list[Acknowledged] = []
        self._acknowledged_s: list[float] = []
        self.failures: list[str] = []
        self.is_over = False

    async def run(self, script: Callable[[GroupLedger], Any]) -> None:
        """Send while `script`, in a thread, does harm to the group."""
        async with orbitlog.connect(f"rocketmq://{self._group.name_server.replace(';', ',')}") as mq:
            tasks = [asyncio.create_task(self._produce(mq)) for _ in range(self._producers)]
            try:
                await asyncio.to_thread(script, self)
            finally:
                self.is_over = True
                await asyncio.gather(*tasks)

    async def _produce(self, mq: orbitlog.RocketMQ) -> None:
        while not self.is_over:
            number, self._next = self._next, self._next + 1
            try:
                receipt = await mq.send(self.topic, str(number))
            except OrbitlogError as error:
                self.failures.append(str(error))
                await asyncio.sleep(0.1)
                continue
            if receipt.status is orbitlog.SendStatus.SENT:
                self.acknowledged.append(Acknowledged(number, receipt.queue.queue_id, receipt.queue_offset))
                self._acknowledged_s.append(time.monotonic())
            await asyncio.sleep(0)

    def wait_for(self, count: int) -> None:
        """Wait until `count` further sends are acknowledged."""
        wanted, deadline = len(self.acknowledged) + count, time.monotonic() + SECONDS_MAX
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"{self.failures[-3:]}\n{self._group.log_text()}"
            time.sleep(0.02)

    def longest_pause_s(self, count: int) -> float:
        """Return the longest time without an acknowledged send since `count` sends were acknowledged."""
        return max(after - before for before, after in pairwise(self._acknowledged_s[count - 1 :]))

    def missing_from(self, messages: Iterator[Message]) -> list[Acknowledged]:
        """Return acknowledged sends that are not in a log at the stated place."""
        found: dict[int, set[tuple[int, int]]] = {}
        for message in messages:
            if message.topic == self.topic:
                found.setdefault(int(message.body), set()).add((message.queue_id, message.queue_offset))
        return [
            sent for sent in self.acknowledged if (sent.queue_id, sent.queue_offset) not in found.get(sent.number, ())
        ]


def check_ledger(group: ReplicaGroup, ledger: GroupLedger, *, is_synchronous: bool = True) -> set[int]:
    """Stop the group and compare its logs with the ledger; return the acknowledged sends that are in kept tails only.

    Every member has the same messages. A synchronous group has every acknowledged one; an asynchronous one lacks
    exactly those that are in the tails that a member gave up.
    """
    for member in group.members:
        group.stop(member)
    longest = max(group.members, key=lambda member: sum(1 for _ in group.messages(member)))
    numbers = {int(message.body) for message in group.messages(longest) if message.topic == ledger.topic}
    kept = {number for member in group.members for number in group.kept_numbers(member, ledger.topic)}
    lost = {sent.number for sent in ledger.acknowledged} - numbers
    assert lost <= kept, f"{len(lost - kept)} acknowledged messages are nowhere: {sorted(lost - kept)[:20]}"
    for member in group.members:
        missing = {sent.number for sent in ledger.missing_from(group.messages(member))}
        assert missing == (set() if is_synchronous else lost), (member, sorted(missing)[:20])
        check_queues(group.messages(member))
    return lost


def check_queues(messages: Iterator[Message]) -> None:
    """Check that no queue offset is used twice or left out."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for message in messages:
        offsets.setdefault((message.topic, message.queue_id), []).append(message.queue_offset)
    for queue, used in offsets.items():
        assert used == list(range(used[0], used[0] + len(used))), (queue, used[:20])
