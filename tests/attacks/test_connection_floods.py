"""Floods of connections and buffers: the greediest are closed, others are served."""

from __future__ import annotations

import socket
from collections.abc import Callable

import orjson

from orbitlog.testing.running_broker import RunningBroker
from tests.support.raw_peer import RawPeer

Start = Callable[..., RunningBroker]
MIB = 1024 * 1024


def reached(target: RunningBroker, key: str) -> int:
    with RawPeer(target.broker_address) as peer:
        return int(orjson.loads(peer.ask(28).body)["table"][f"limitReached_{key}"])


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
    target = start_target(connectionBufferBytesMax=str(MIB))
    begun = (4 * MIB).to_bytes(4) + (0).to_bytes(4)[:0] + (200).to_bytes(4)
    peers = []
    for _ in range(40):
        peer = RawPeer(target.broker_address)
        peer.send(begun[:8] + b'{"code":310,"opaque":1,"flag":0,"extFields":{}}'.ljust(200) + bytes(60_000))
        peers.append(peer)
    target.wait_for(lambda: reached(target, "connectionBufferBytesMax") > 0)
    assert _is_served(target)
    for peer in peers:
        peer.close()


def test_end_of_a_peer_is_seen_while_it_is_not_read_from(start_target: Start) -> None:
    target = start_target()
    broker = target._broker
    assert broker is not None
    with RawPeer(target.broker_address) as peer:
        peer.ask(28)
        (connection,) = [
            each for each in broker._listeners.main.connections if each.remote_address == peer.socket.getsockname()
        ]
        target._loop.call_soon_threadsafe(connection._backpressure.pause_reading, connection._transport)
        target.wait_for(lambda: connection._backpressure.is_reading_paused)
        peer.socket.shutdown(socket.SHUT_RDWR)
        target.wait_for(lambda: connection.is_closed)
