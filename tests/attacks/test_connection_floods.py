"""Floods of connections and buffers: the greediest are closed, others are served."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import orjson
import pytest

from orbitlog.remoting import incoming_requests, loop_slices
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.incoming_requests import REQUESTS_PER_TURN
from orbitlog.remoting.memory_budget import HELD_REQUEST_BYTES, MemoryBudget
from orbitlog.remoting.server import RemotingServer
from orbitlog.settings.limits import REQUEST_TURN_MICROS
from orbitlog.testing.running_broker import RunningBroker
from orbitlog.wire.command import Command, response_to
from tests.support.hot_path import FakeTransport
from tests.support.loops import run, serving
from tests.support.raw_peer import RawPeer, raw_frame
from tests.support.raw_requests import HELD_PULL, SEND
from tests.support.work_counters import peak_bytes_of

Start = Callable[..., RunningBroker]
MIB = 1024 * 1024


def reached(target: RunningBroker, key: str) -> int:
    with RawPeer(target.broker_address) as peer:
        return int(orjson.loads(peer.ask(28).body)["table"][f"limitReached_{key}"])


def listener_of(target: RunningBroker) -> RemotingServer:
    broker = target._broker
    assert broker is not None
    return broker._listeners.main


def memory_of(target: RunningBroker) -> MemoryBudget:
    return listener_of(target)._flow.memory


def connection_to(server: RemotingServer, peer: RawPeer) -> Connection:
    (connection,) = [each for each in list(server.connections) if each.remote_address == peer.socket.getsockname()]
    return connection


def pulls_of_a_large_message(target: RunningBroker) -> bytes:
    """Send a message of 500 KB; return many pulls of it: more than the system buffers for a peer that does not read."""
    with RawPeer(target.broker_address) as peer:
        assert peer.ask(310, SEND, bytes(500_000)).code == 0
        target.wait_for(lambda: peer.ask(11, {**HELD_PULL, "sysFlag": "4"}).code == 0)
    return raw_frame(11, {**HELD_PULL, "sysFlag": "4"}) * 16


def test_connections_of_one_address_are_limited(start_target: Start) -> None:
    target = start_target(connectionsPerAddressMax="5")
    peers = [RawPeer(target.broker_address) for _ in range(4)]
    assert all(peer.ask(28).code == 0 for peer in peers)
    late = [RawPeer(target.broker_address) for _ in range(4)]
    assert late[-1].is_closed_by_server()
    for peer in (*peers, *late):
        peer.close()
    target.wait_for(lambda: _is_served(target))
    assert reached(target, "connectionsPerAddressMax") >= 1


def _is_served(target: RunningBroker) -> bool:
    try:
        with RawPeer(target.broker_address) as peer:
            return peer.ask(28).code == 0
    except ConnectionError:
        return False


def test_connection_without_a_frame_is_closed(start_target: Start) -> None:
    target = start_target(firstFrameTimeoutSeconds="1")
    with RawPeer(target.broker_address) as silent, RawPeer(target.broker_address) as honest:
        honest.ask(28)
        silent.send(b"\0\0")
        assert silent.is_closed_by_server()
        assert honest.ask(28).code == 0
    assert reached(target, "firstFrameTimeoutSeconds") == 1


def test_unfinished_frames_share_one_budget(start_target: Start) -> None:
    target = start_target(connectionMemoryBytesMax=str(MIB), connectionMemoryPerAddressMax=str(MIB))
    begun = (4 * MIB).to_bytes(4) + (200).to_bytes(4)
    peers = []
    for _ in range(40):
        peer = RawPeer(target.broker_address)
        peer.send(begun + b'{"code":310,"opaque":1,"flag":0,"extFields":{}}'.ljust(200) + bytes(60_000))
        peers.append(peer)
    target.wait_for(lambda: reached(target, "connectionMemoryPerAddressMax") > 0)
    assert _is_served(target)
    for peer in peers:
        peer.close()


def test_unsent_responses_share_one_budget(start_target: Start) -> None:
    """Peers that never read: each has less than its write buffer's limit, but all of them together too much."""
    target = start_target(connectionMemoryBytesMax=str(4 * MIB), connectionMemoryPerAddressMax=str(3 * MIB))
    budget = memory_of(target)
    pulls = pulls_of_a_large_message(target)
    peers = []

    def flood() -> None:
        for _ in range(8):
            peer = RawPeer(target.broker_address, receive_bytes=4_096)
            peers.append(peer)
            peer.send(pulls)
        target.wait_for(lambda: reached(target, "connectionMemoryPerAddressMax") > 0)

    assert peak_bytes_of(flood) < 12 * MIB
    assert _is_served(target)
    for peer in peers:
        peer.close()
    target.wait_for(lambda: budget.bytes < 64 * 1024)


def test_connection_that_reads_nothing_is_closed_after_the_idle_time(start_target: Start) -> None:
    """Silence of a peer that is not read from counts only if it does not read responses: then the pause is its own."""
    target = start_target()
    server = listener_of(target)
    pulls = pulls_of_a_large_message(target)
    with RawPeer(target.broker_address, receive_bytes=4_096) as deaf, RawPeer(target.broker_address) as paused:
        paused.ask(28)
        deaf.send(pulls)
        connection = connection_to(server, deaf)
        target.wait_for(lambda: connection.is_slow)
        waiting = connection_to(server, paused)
        target._loop.call_soon_threadsafe(waiting._backpressure.pause_reading, waiting._transport)
        target.wait_for(lambda: waiting._backpressure.is_reading_paused)
        later = target._loop.time() + server.limits.idle_seconds + 1
        server.limits = server.limits._replace(idle_seconds=0.0)
        assert connection.idle_seconds(later) > 0 and connection.is_waiting_for_peer
        assert not waiting.is_waiting_for_peer, "this end does not read: the peer is not to blame"
        target._loop.call_soon_threadsafe(server._watch_idle)
        target.wait_for(lambda: connection.is_closed)
        assert not waiting.is_closed
        server.limits = server.limits._replace(idle_seconds=120.0)


def test_work_of_one_address_leaves_room_for_others(start_target: Start) -> None:
    target = start_target(connectionMemoryPerConnectionMax=str(MIB))
    server = listener_of(target)
    with RawPeer(target.broker_address) as greedy, RawPeer(target.broker_address) as honest:
        greedy.ask(28)
        memory = connection_to(server, greedy).memory
        target._loop.call_soon_threadsafe(memory.add_work, 2 * MIB)
        target.wait_for(lambda: memory.working_bytes >= 2 * MIB)
        greedy.send(raw_frame(28, opaque=5))
        target.wait_for(lambda: memory.received_bytes > 0)
        assert honest.ask(28).code == 0
        assert reached(target, "connectionMemoryPerConnectionMax") == 1
        target._loop.call_soon_threadsafe(memory.remove_work, 2 * MIB)
        target._loop.call_soon_threadsafe(connection_to(server, greedy).resume)
        assert greedy.receive().opaque == 5
    target.wait_for(lambda: not memory_of(target).working_bytes)


def test_held_requests_count_in_the_memory_budget(start_target: Start) -> None:
    target = start_target()
    budget = memory_of(target)
    with RawPeer(target.broker_address) as peer:
        peer.send(b"".join(raw_frame(11, HELD_PULL, bytes(4_000), opaque=number) for number in range(1, 101)))
        target.wait_for(lambda: budget.bytes >= 100 * HELD_REQUEST_BYTES)
        assert peer.ask(28).code == 0
    target.wait_for(lambda: budget.bytes < HELD_REQUEST_BYTES)


def test_connections_leave_descriptors_to_the_store(start_target: Start) -> None:
    """The system gives out the lowest free number: a connection with a high one is closed, and files still open."""
    highest = len(list(Path("/proc/self/fd").iterdir()))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 200, hard))
    peers = []
    try:
        target = start_target(descriptorReserve="100")
        with pytest.raises(OSError):
            while True:
                peers.append(RawPeer(target.broker_address))
                if peers[-1].socket.fileno() > highest + 100 and len(peers) % 5 == 0:
                    peers[-1].ask(28)
        with (target.store / "still_opens").open("wb"):
            pass
        for peer in peers:
            peer.close()
        target.wait_for(lambda: _is_served(target))
        assert reached(target, "descriptorReserve") > 0
        with RawPeer(target.broker_address) as peer:
            assert peer.ask(310, SEND, b"body").code == 0
    finally:
        for peer in peers:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_end_of_a_peer_is_seen_while_it_is_not_read_from(start_target: Start) -> None:
    target = start_target()
    with RawPeer(target.broker_address) as peer:
        peer.ask(28)
        connection = connection_to(listener_of(target), peer)
        target._loop.call_soon_threadsafe(connection._backpressure.pause_reading, connection._transport)
        target.wait_for(lambda: connection._backpressure.is_reading_paused)
        peer.socket.shutdown(socket.SHUT_RDWR)
        target.wait_for(lambda: connection.is_closed)


def test_requests_of_one_read_are_handled_in_several_turns_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_requests, "_now_s", lambda: 1.0)  # their number decides, not their time
    handled: Counter[int] = Counter()
    turn = 0

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count_turns)

    def handle(_: Connection, request: Command) -> Answer:
        handled[turn] += 1
        return response_to(request, 0)

    async def test() -> None:
        async with serving(handle) as server:
            connection = cast(Connection, server._accept())
            transport = FakeTransport(keeps=True)
            transport.connection = connection
            connection.connection_made(cast(asyncio.Transport, transport))
            count_turns()
            connection.data_received(b"".join(raw_frame(1, opaque=number) for number in range(1_000)))
            assert transport.kept is not None and connection.unanswered == 1_000 - REQUESTS_PER_TURN
            while connection.unanswered:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            opaques = [int(text) for text in re.findall(rb'"opaque":(\d+)', b"".join(transport.kept))]
            assert opaques == list(range(1_000)), "in order"
            assert not server._flow.memory.bytes
            transport.close()

    run(test(), plain=True)
    assert max(handled.values()) == REQUESTS_PER_TURN and sum(handled.values()) == 1_000


def test_connection_with_slow_requests_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of two addresses, each of which takes longer than a connection's time in a turn of the event loop."""
    now_s, order = 0.0, list[str]()

    def handle(connection: Connection, request: Command) -> Answer:
        nonlocal now_s
        now_s += 2 * incoming_requests.TURN_SECONDS
        order.append(connection.remote_address[0])
        return response_to(request, 0)

    def connect(server: RemotingServer, address: str) -> Connection:
        connection = cast(Connection, server._accept())
        transport = FakeTransport()
        transport.connection = connection
        connection.connection_made(cast(asyncio.Transport, transport))
        connection.remote_address = (address, 1)
        return connection

    async def test() -> None:
        async with serving(handle) as server:
            connections = [connect(server, "greedy") for _ in range(5)] + [connect(server, "honest")]
            frames = b"".join(raw_frame(1, opaque=number) for number in range(10))
            for connection in connections:
                connection.data_received(frames)
            while any(connection.unanswered for connection in connections):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            for connection in connections:
                connection.abort()

    monkeypatch.setattr(incoming_requests, "_now_s", lambda: now_s)
    run(test(), plain=True)
    assert order[:6] == ["greedy"] * 5 + ["honest"], "a read handles one slow request at once"
    last = max(place for place, address in enumerate(order) if address == "honest")
    assert last < 6 + 2 * 9 + 2, "then the addresses take turns, not their connections"


def test_requests_of_many_addresses_share_the_time_of_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four addresses send at once; each of their requests takes a third of what all get in a turn."""
    now_s, turn, taken_s = 100.0, 0, Counter[int]()
    request_s = REQUEST_TURN_MICROS.default / 1e6 / 3
    served: list[str] = []

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count_turns)

    def handle(connection: Connection, request: Command) -> Answer:
        nonlocal now_s
        now_s += request_s
        taken_s[turn] += request_s
        served.append(connection.remote_address[0])
        return response_to(request, 0)

    def connect(server: RemotingServer, address: str) -> Connection:
        connection, transport = cast(Connection, server._accept()), FakeTransport(peer=(address, 1))
        transport.connection = connection
        connection.connection_made(cast(asyncio.Transport, transport))
        return connection

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop_slices._TURNS[loop] = loop_slices.LoopTurns(loop, lambda: now_s)
        async with serving(handle) as server:
            connections = [connect(server, f"greedy {number}") for number in range(4)]
            honest = connect(server, "honest")
            count_turns()
            for connection in connections:
                connection.data_received(b"".join(raw_frame(1, opaque=number) for number in range(50)))
            while len(served) < 60:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            before = len(served)
            honest.data_received(raw_frame(1))
            while honest.unanswered:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert served.index("honest") == before, "it has used no time, so it is next"
            while any(connection.unanswered for connection in connections):  # noqa: ASYNC110
                await asyncio.sleep(0)
            for connection in (*connections, honest):
                connection.abort()

    monkeypatch.setattr(incoming_requests, "_now_s", lambda: now_s)
    run(test(), plain=True)
    assert len(served) == 201
    assert max(taken_s.values()) < 6 * request_s


@pytest.mark.parametrize("code", [11, 200054])
def test_long_polls_before_a_malformed_frame_do_not_keep_the_connection(
    code: int, start_target: Callable[..., RunningBroker]
) -> None:
    poll = {**HELD_PULL, "pollTime": "600000", "bornTime": "0"}
    with RawPeer(start_target().broker_address) as peer:
        peer.send(raw_frame(code, poll, opaque=1) + raw_frame(code, poll, opaque=2) + b"\xff" * 64)
        assert {peer.receive().opaque, peer.receive().opaque} == {1, 2}
        assert peer.is_closed_by_server()
