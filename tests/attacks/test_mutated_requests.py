"""Mutated requests of every code: each is answered or ends its connection, and the servers continue.

`ORBITLOG_ATTACK` multiplies the number of requests. At 400, the value of `make attack`, a million frames go over
sockets, and each code gets 100,000 without sockets.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import orjson
import pytest

from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.connection import Connection
from orbitlog.remoting.server import RemotingServer
from orbitlog.testing.running_broker import SETTINGS
from orbitlog.wire.codes import RequestCode
from tests.support.hot_path import FakeTransport
from tests.support.mutations import Mutations
from tests.support.raw_peer import RawPeer
from tests.support.serving_process import attacked

TIMES = int(os.environ.get("ORBITLOG_ATTACK", "1"))
SEED = int(os.environ.get("ORBITLOG_SEED", "20260612"))
SECONDS_MAX = float(os.environ.get("ORBITLOG_ATTACK_LIMIT", "inf"))
FRAMES = 2_500 * TIMES
PER_CODE = 250 * TIMES if TIMES > 1 else 20
FRAMES_PER_CONNECTION = 32
FRAMES_PER_BATCH = 250
PARTS = 24 if TIMES > 1 else 1
CODES = [int(code) for code in RequestCode]
MAY_STAY_SILENT = {37}  # END_TRANSACTION with an unknown outcome: the transaction check asks the producer later


def counted(kind: str, count: int) -> None:
    """Write the number of requests sent so far: a run of hours should show its progress."""
    if path := os.environ.get("ORBITLOG_ATTACK_COUNTS"):
        with Path(path).open("a") as file:
            file.write(f"{time.time():.0f} {kind} {count}\n")


def answered(data: bytes) -> Iterator[int]:
    """Yield the opaque numbers of responses; requests of the server itself are skipped."""
    position = 0
    while position + 8 <= len(data):
        size = int.from_bytes(data[position : position + 4])
        header_bytes = int.from_bytes(data[position + 5 : position + 8])
        header = orjson.loads(data[position + 8 : position + 8 + header_bytes])
        if header["flag"] & 1:
            yield header["opaque"]
        position += 4 + size


def check_answers(mutations: Mutations, count: int, received: bytes) -> None:
    missing = set(range(1, count + 1)) - set(answered(received))
    assert not missing or mutations.code in MAY_STAY_SILENT, (mutations.code, sorted(missing)[:5])


def attack_over_socket(address: str, mutations: Mutations) -> None:
    """Send requests over one connection and wait for the responses, then a damaged frame, and wait for the end.

    The end of the requests comes last: this half of a connection is closed soon after it, whatever is unanswered.
    """
    count = FRAMES_PER_CONNECTION - 1
    missing = set(range(1, count + 1))
    with RawPeer(address) as peer:
        try:
            peer.send(b"".join(mutations.frames(count)))
            if mutations.code not in MAY_STAY_SILENT:
                while missing:
                    answer = peer.receive()
                    missing -= {answer.opaque} if answer.flag & 1 else set()
            peer.send(mutations.damaged(count + 1))
            peer.socket.shutdown(1)
        except ConnectionError:
            return
        except TimeoutError:
            pytest.fail(f"code {mutations.code}: requests {sorted(missing)} have no response")
        assert peer.is_closed_by_server(), mutations.code


def test_mutated_frames_over_sockets_are_answered_or_end_their_connection(tmp_path: Path) -> None:
    options = ("up", "--store", str(tmp_path), "--name-server-port", "0", "--broker-port", "0")
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    ends = time.monotonic() + SECONDS_MAX
    with attacked(*options, *settings) as (process, ready):
        addresses = [ready["broker"], ready["name-server"]]
        all_mutations = [Mutations(code, SEED) for code in CODES]
        sent = 0
        while sent < FRAMES and time.monotonic() < ends:
            for mutations in all_mutations:
                attack_over_socket(addresses[sent // FRAMES_PER_CONNECTION % 2], mutations)
                sent += FRAMES_PER_CONNECTION
                if sent >= FRAMES:
                    break
            counted("frames over sockets", sent)
        for address, code in zip(addresses, (28, 206), strict=True):
            with RawPeer(address) as peer:
                peer.ask(code)
        assert process.poll() is None


async def attack_directly(server: RemotingServer, mutations: Mutations, count: int) -> None:
    """Feed requests to a connection without a socket, and check that each is answered."""
    transport = FakeTransport(keeps=True)
    connection = transport.connection = cast(Connection, server._accept())
    connection.connection_made(cast(asyncio.Transport, transport))
    connection.data_received(b"".join(mutations.frames(count)))
    turns = 0
    while connection.unanswered and turns < 2_000 and not connection.is_closed:
        turns += 1
        await asyncio.sleep(0 if turns < 200 else 0.002)
        if turns == 100:
            connection._call_back(connection._end_callbacks)  # long polls are answered now
    assert transport.kept is not None and not connection.unanswered
    check_answers(mutations, count, b"".join(transport.kept))
    transport.close()
    await asyncio.sleep(0)


async def attack_both(root: Path, codes: list[int], per_code: int) -> int:
    names = NameServer(NameServerSettings(listen_port=0))
    broker = Broker(BrokerSettings({**SETTINGS, "listenPort": "0"}), root)
    await names.start()
    await broker.start()
    ends, sent = time.monotonic() + SECONDS_MAX, 0
    try:
        for code in codes:
            mutations = Mutations(code, SEED + 1)
            for number, start in enumerate(range(0, per_code, FRAMES_PER_BATCH)):
                if time.monotonic() > ends:
                    return sent
                server = names._server if number % 4 == 3 else broker._listeners.main
                count = min(FRAMES_PER_BATCH, per_code - start)
                await attack_directly(server, mutations, count)
                sent += count
            counted(f"requests of code {code}", sent)
    finally:
        await broker.stop()
        await names.stop()
    return sent


@pytest.mark.parametrize("part", range(PARTS))
def test_mutated_headers_and_bodies_of_every_code_are_answered(part: int, tmp_path: Path) -> None:
    codes = CODES[part::PARTS]
    sent = asyncio.run(attack_both(tmp_path, codes, PER_CODE))
    assert sent == len(codes) * PER_CODE or SECONDS_MAX != float("inf")
