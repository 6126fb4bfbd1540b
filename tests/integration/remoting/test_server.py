"""A server over real sockets: order, backpressure, malformed frames, limits, idle peers, shutdown."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import resource
import socket
import struct
from collections import deque
from contextlib import AsyncExitStack

import pytest

from orbitlog.errors import BadRequest, ConnectionLost, RequestRefused, RequestTimeout
from orbitlog.remoting.connection import NO_ANSWER, Answer, Connection
from orbitlog.remoting.flow import RemotingLimits
from orbitlog.remoting.incoming_requests import LongPoll
from orbitlog.remoting.memory_budget import MemoryLimits
from orbitlog.remoting.request_dispatch import Dispatch
from orbitlog.remoting.server import RemotingServer
from orbitlog.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command, encode_command, response_to
from orbitlog.wire.command_decoding import WireLimits
from orbitlog.wire.frames import Frame, FrameDecoder
from tests.support.loops import raw_client, run, serving, until


def echo(_: Connection, request: Command) -> Answer:
    return response_to(request, 0, ext_fields=request.ext_fields, body=request.body)


def request(opaque: int, code: int = 1, body: bytes = b"") -> Command:
    return Command(code, opaque, body=body)


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_pipelined_requests_are_answered_in_one_write(plain: bool) -> None:
    async def test() -> None:
        async with serving(echo) as server, raw_client(server) as client:
            await client.send(*(request(number, body=b"%d" % number) for number in range(500)))
            answers = await client.answers(500)
            assert [(answer.opaque, answer.body) for answer in answers] == [(n, b"%d" % n) for n in range(500)]
            assert all(answer.flag == FLAG_RESPONSE for answer in answers)

    run(test(), plain=plain)


def test_responses_are_sent_in_the_order_in_which_they_are_ready() -> None:
    async def test() -> None:
        gates = {number: asyncio.Event() for number in range(3)}
        held: list[tuple[Connection, Command]] = []

        async def wait(asked: Command) -> Command:
            await gates[asked.opaque].wait()
            return response_to(asked, 0)

        def handler(connection: Connection, asked: Command) -> object:
            if asked.opaque == 1:
                held.append((connection, asked))
                return None
            return wait(asked) if asked.opaque in gates else response_to(asked, 0)

        async with serving(handler) as server, raw_client(server) as client:  # type: ignore[arg-type]
            await client.send(*map(request, range(4)))
            assert [answer.opaque for answer in await client.answers(1)] == [3]
            gates[2].set()
            assert [answer.opaque for answer in await client.answers(1)] == [2]
            connection, asked = held[0]
            connection.respond(asked, encode_command(response_to(asked, 7)))
            assert [(answer.opaque, answer.code) for answer in await client.answers(1)] == [(1, 7)]
            assert connection.unanswered == 1
            gates[0].set()
            assert [answer.opaque for answer in await client.answers(1)] == [0]
            assert connection.unanswered == 0
            assert server.working_bytes == 0

    run(test())


def test_respond_all_answers_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        held: list[tuple[Connection, Command]] = []

        def handler(connection: Connection, asked: Command) -> Answer:
            if asked.opaque != 4:
                held.append((connection, asked))
                return None
            connection.respond_all([(each, response_to(each, 0)) for _, each in held[:2]])  # within: before its own
            return response_to(asked, 0)

        async with serving(handler) as server, raw_client(server) as client:
            await client.send(*map(request, range(5)))
            assert [answer.opaque for answer in await client.answers(3)] == [0, 1, 4]
            connection, _ = held[0]
            written: list[bytes] = []
            write = connection.write_frames
            monkeypatch.setattr(connection, "write_frames", lambda frames: (written.extend(frames[:1]), write(frames)))
            connection.respond_all([(each, response_to(each, 7)) for _, each in held[2:]])
            assert len(written) == 1
            assert [(answer.opaque, answer.code) for answer in await client.answers(2)] == [(2, 7), (3, 7)]
            large = b"x" * 200_000
            connection.respond_all(
                [(request(number), response_to(request(number), 0, body=large)) for number in (8, 9)]
            )
            assert len(written) == 3, "large frames are not joined"
            assert [len(answer.body) for answer in await client.answers(2)] == [len(large)] * 2
            connection.respond_all([(Command(1, opaque=3, flag=2), response_to(request(3), 0))])  # one way
            assert len(written) == 3
            assert connection.unanswered == 0 and server.working_bytes == 0

    run(test())


def test_when_answered_calls_back_after_the_response() -> None:
    async def test() -> None:
        told: list[int] = []
        held: list[tuple[Connection, Command]] = []

        def handler(connection: Connection, asked: Command) -> Answer:
            connection.when_answered(asked, lambda: told.append(asked.opaque))
            if asked.opaque == 0:
                return response_to(asked, 0)
            held.append((connection, asked))
            return None

        async with serving(handler) as server, raw_client(server) as client:
            await client.send(*map(request, range(3)))
            assert [answer.opaque for answer in await client.answers(1)] == [0]
            assert told == [0]
            (connection, first), (_, second) = held
            connection.forget(second)
            connection.respond(first, response_to(first, 0))
            assert told == [0, 1]
            assert [answer.opaque for answer in await client.answers(1)] == [1]
            assert not connection.incoming._answer_callbacks

    run(test())


def test_response_from_within_the_handler_counts() -> None:
    async def test() -> None:
        def handler(connection: Connection, asked: Command) -> Answer:
            if asked.opaque == 2:
                connection.forget(asked)
            else:
                connection.respond(asked, response_to(asked, 0))
            return None

        async with serving(handler) as server, raw_client(server) as client:
            await client.send(*map(request, range(4)))
            assert [answer.opaque for answer in await client.answers(3)] == [0, 1, 3]
            assert [connection.unanswered for connection in server.connections] == [0]
            assert server.working_bytes == 0

    run(test())


def test_oneway_requests_are_handled_and_not_answered() -> None:
    async def test() -> None:
        heard: list[int] = []

        async def later(asked: Command) -> Command:
            heard.append(asked.opaque)
            return response_to(asked, 0)

        def handler(_: Connection, asked: Command) -> object:
            heard.append(asked.opaque)
            return {1: response_to(asked, 0), 2: None, 3: NO_ANSWER}.get(asked.code) or later(asked)

        def fail(asked: Command) -> Answer:
            raise ValueError("nobody hears of it")

        table = {1: handler, 4: handler, 5: lambda _, asked: fail(asked), 6: echo}
        async with serving(Dispatch(table)) as server, raw_client(server) as client:  # type: ignore[arg-type]
            oneway = [Command(code, code, FLAG_ONEWAY) for code in (1, 4, 5, 99)]
            await client.send(*oneway, request(9, 6))
            assert [answer.opaque for answer in await client.answers(1)] == [9]
            assert heard[:2] == [1, 4]
            await until(lambda: not server.working_bytes)

    run(test())


def test_handler_failure_becomes_a_response_and_the_connection_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def fails_late(asked: Command) -> Answer:
        raise ZeroDivisionError("late")

    def fail(error: Exception) -> object:
        def handler(_: Connection, asked: Command) -> Answer:
            raise error

        return handler

    table = {
        1: fail(RequestRefused(17, "no such topic")),
        2: fail(BadRequest("the custom field <topic> is null", field="topic")),
        3: fail(KeyError("secret")),
        4: lambda _, asked: fails_late(asked),
        5: lambda _, asked: response_to(asked, 0, ext_fields={"a": "x" * 2**24}),
        6: echo,
    }

    async def test() -> None:
        async with serving(Dispatch(table)) as server, raw_client(server) as client:  # type: ignore[arg-type]
            await client.send(*(request(code, code) for code in (1, 2, 3, 4, 5, 6, 7)))
            answers = {answer.opaque: answer for answer in await client.answers(7)}
            assert (answers[1].code, answers[1].remark) == (17, "no such topic")
            assert (answers[2].code, answers[2].remark) == (1, "the custom field <topic> is null")
            for opaque, text in ((3, "'secret'"), (4, "late")):
                found = re.match(r"internal error ([0-9a-f]{8});", answers[opaque].remark or "")
                assert answers[opaque].code == 1 and found and text not in (answers[opaque].remark or "")
                assert any(found[1] in record.getMessage() for record in caplog.records)
            assert answers[5].code == 1
            assert answers[6].code == 0
            assert (answers[7].code, answers[7].remark) == (3, " request type 7 not supported")

    run(test())
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR, logging.ERROR]


def test_malformed_frame_closes_the_connection_after_earlier_responses() -> None:
    async def test() -> None:
        async with serving(echo) as server:
            async with raw_client(server) as client:
                await client.send(request(1), request(2), b"\xff" * 100, request(3))
                assert [answer.opaque for answer in await client.answers(2)] == [1, 2]
                assert await client.is_closed()
            async with raw_client(server) as client:
                await client.send(request(4))
                assert [answer.opaque for answer in await client.answers(1)] == [4]

    run(test())


def test_malformed_frames_over_sockets_never_hang_a_connection() -> None:
    async def test() -> None:
        chance = random.Random(7)
        whole = encode_command(Command(310, 1, ext_fields={"a": "g", "b": "t"}, body=b"body"))
        async with serving(echo) as server:
            for _ in range(300):
                damaged = bytearray(whole)
                for _ in range(3):
                    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
                async with raw_client(server) as client:
                    await client.send(bytes(damaged))
                    client.writer.write_eof()
                    assert await client.is_closed()
            await until(lambda: not server.connections)
            assert server.working_bytes == 0

    run(test())


def test_half_closed_peer_gets_its_responses() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        ended = asyncio.Event()

        async def wait(asked: Command) -> Command:
            await gate.wait()
            return response_to(asked, 0)

        def first(connection: Connection, asked: Command) -> Answer:
            connection.on_end_of_requests(lambda _: ended.set())
            return echo(connection, asked)

        handler = Dispatch({1: first, 2: lambda _, asked: wait(asked)})
        async with serving(handler) as server, raw_client(server) as client:
            await client.send(request(1), request(2, 2), request(3, 2))
            client.writer.write_eof()
            assert [answer.opaque for answer in await client.answers(1)] == [1]
            await ended.wait()
            gate.set()
            assert sorted(answer.opaque for answer in await client.answers(2)) == [2, 3]
            assert await client.is_closed()

    run(test())


def test_reading_pauses_while_the_peer_reads_slowly() -> None:
    served = 0

    def large(_: Connection, asked: Command) -> Answer:
        nonlocal served
        served += 1
        return response_to(asked, 0, body=bytes(256 * 1024))

    async def test() -> None:
        async with serving(large) as server, raw_client(server) as client:
            count = 400
            for number in range(count):
                client.writer.write(encode_command(request(number)))
            await asyncio.sleep(0.2)
            held = served
            assert held < 100, "the server continued to answer a peer that does not read"
            answers = await client.answers(count)
            assert [answer.opaque for answer in answers] == list(range(count))

    run(test())


def test_too_many_bytes_in_flight_pause_all_connections() -> None:
    async def test() -> None:
        held: list[tuple[Connection, Command]] = []

        def hold(connection: Connection, asked: Command) -> Answer:
            held.append((connection, asked))
            return None

        limits = RemotingLimits(memory=MemoryLimits(total=1_000_000))
        async with (
            serving(hold, limits) as server,
            raw_client(server) as first,
            raw_client(server) as second,
        ):
            await first.send(*(request(number, body=bytes(100_000)) for number in range(40)))
            await until(lambda: len(held) >= 10)
            await second.send(request(100))
            await asyncio.sleep(0.05)
            assert len(held) == 10
            for _ in range(41):
                await until(lambda: held)
                connection, asked = held.pop(0)
                connection.respond(asked, response_to(asked, 0))
            assert len(await first.answers(40)) == 40
            assert [answer.opaque for answer in await second.answers(1)] == [100]
            assert server.working_bytes == 0

    run(test())


def test_unfinished_large_frames_close_their_connection() -> None:
    async def test() -> None:
        begun = (8 * 1024 * 1024).to_bytes(4) + (100).to_bytes(4) + bytes(300_000)
        limits = RemotingLimits(memory=MemoryLimits(total=1_000_000))
        async with serving(echo, limits) as server:
            async with AsyncExitStack() as clients:
                honest = await clients.enter_async_context(raw_client(server))
                for _ in range(6):
                    attacker = await clients.enter_async_context(raw_client(server))
                    attacker.writer.write(begun)
                await until(lambda: server._flow.memory.bytes and len(server.connections) <= 4)
                await honest.send(request(1, body=bytes(50_000)))
                assert len(await honest.answers(1)) == 1
            await until(lambda: not server.connections)

    run(test())


def test_requests_in_flight_of_a_connection_are_limited() -> None:
    async def test() -> None:
        held: list[tuple[Connection, Command]] = []

        def hold(connection: Connection, asked: Command) -> Answer:
            held.append((connection, asked))
            return None

        async with serving(hold, RemotingLimits(unanswered_per_connection=5)) as server:
            async with raw_client(server) as first, raw_client(server) as second:
                await first.send(*map(request, range(20)))
                await second.send(request(99))
                await until(lambda: len(held) >= 6)
                await asyncio.sleep(0.02)
                assert len(held) == 6
                for _ in range(21):
                    await until(lambda: held)
                    connection, asked = held.pop()
                    connection.forget(asked) if asked.opaque == 99 else connection.respond(asked, response_to(asked, 0))
                assert sorted(answer.opaque for answer in await first.answers(20)) == list(range(20))

    run(test())


def test_stop_answers_requests_in_flight() -> None:
    async def test() -> None:
        gate = asyncio.Event()
        taken = asyncio.Event()

        async def wait(asked: Command) -> Command:
            taken.set()
            await gate.wait()
            return response_to(asked, 0)

        server = RemotingServer(lambda _, asked: wait(asked))
        await server.start()
        async with raw_client(server) as client:
            await client.send(request(1), request(2))
            await taken.wait()
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0.02)
            assert not stopping.done()
            with pytest.raises(OSError):
                await asyncio.open_connection(*client.writer.get_extra_info("peername"))
            gate.set()
            assert sorted(answer.opaque for answer in await client.answers(2)) == [1, 2]
            assert await client.is_closed()
            await stopping

    run(test())


def test_stop_ends_after_the_grace_time(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        held: list[Command] = []
        cancelled: list[int] = []

        async def never(asked: Command) -> Answer:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(asked.opaque)
                raise
            return None

        def handler(_: Connection, asked: Command) -> object:
            held.append(asked)
            return None if asked.opaque == 1 else never(asked)

        server = RemotingServer(handler)  # type: ignore[arg-type]
        await server.start()
        async with raw_client(server) as client:
            await client.send(request(1), request(2))
            await until(lambda: len(held) >= 2)
            await server.stop(grace_seconds=0.05)
            assert await client.is_closed()
            assert cancelled == [2]

    run(test())
    assert "2 requests unanswered" in caplog.text


def test_idle_connections_are_closed_and_active_ones_are_not() -> None:
    async def test() -> None:
        async with serving(echo, RemotingLimits(idle_seconds=0.2)) as server:
            async with raw_client(server) as silent, raw_client(server) as talking:
                closing = asyncio.create_task(silent.is_closed())
                number = 0
                while not closing.done():
                    number += 1
                    await talking.send(request(number))
                    assert [answer.opaque for answer in await talking.answers(1)] == [number]
                    await asyncio.sleep(0.02)

    run(test())


def test_connection_that_waits_for_a_response_is_not_idle() -> None:
    """Silence counts from the response on: 5,000 changes of topics, sent at once, took longer than the idle time."""

    async def test() -> None:
        ready = asyncio.Event()

        async def answer(_: Connection, command: Command) -> Command:
            await ready.wait()
            return response_to(command, 0)

        limits = RemotingLimits(idle_seconds=0.1)
        async with serving(answer, limits) as server, raw_client(server) as waiting:
            await waiting.send(request(1))
            for _ in range(2):
                async with raw_client(server) as silent:
                    assert await silent.is_closed()
            ready.set()
            assert [answer.opaque for answer in await waiting.answers(1)] == [1]
            assert await waiting.is_closed()

    run(test())


def test_connections_past_the_limit_are_closed_at_once() -> None:
    async def test() -> None:
        async with serving(echo, RemotingLimits(connections=2)) as server:
            async with raw_client(server) as first, raw_client(server), raw_client(server) as third:
                await first.send(request(1))
                assert len(await first.answers(1)) == 1
                assert await third.is_closed()
            await until(lambda: not server.connections)
            async with raw_client(server) as again:
                await again.send(request(2))
                assert len(await again.answers(1)) == 1

    run(test())


def test_frames_past_the_limit_are_refused_by_their_length() -> None:
    async def test() -> None:
        limits = RemotingLimits(wire=WireLimits(frame_bytes_max=1000))
        async with serving(echo, limits) as server, raw_client(server) as client:
            await client.send((5000).to_bytes(4) + bytes(4))
            assert await client.is_closed()

    run(test())


@pytest.mark.slow
def test_two_thousand_idle_connections() -> None:
    count = 2000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"the system allows {hard} open files, and {wanted} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))

    async def test() -> None:
        async with serving(echo) as server:
            loop = asyncio.get_running_loop()
            sockets = [socket.socket() for _ in range(count)]
            try:
                for each in sockets:
                    each.setblocking(False)
                    await loop.sock_connect(each, server.address)
                async with raw_client(server) as client:
                    await client.send(request(1))
                    assert len(await client.answers(1)) == 1
                    assert len(server.connections) == count + 1
            finally:
                for each in sockets:
                    each.close()
            await until(lambda: not server.connections)

    try:
        run(test())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_server_sends_a_request_to_its_client() -> None:
    async def test() -> None:
        connections: list[Connection] = []

        def handler(connection: Connection, asked: Command) -> Answer:
            connections.append(connection)
            return response_to(asked, 0)

        async with serving(handler) as server, raw_client(server) as client:
            await client.send(request(1))
            await client.answers(1)
            connection = connections[0]
            assert connection.remote_address == client.writer.get_extra_info("sockname")
            assert connection.local_address == server.address
            asking = asyncio.create_task(connection.request(Command(307, body=b"?"), timeout=5))
            (asked,) = await client.answers(1)
            assert (asked.code, asked.body, asked.is_response) == (307, b"?", False)
            # The response is known by its flag: a request of the client may have the same opaque number.
            await client.send(request(asked.opaque), response_to(asked, 0, body=b"!"))
            assert (await asking).body == b"!"
            assert len(await client.answers(1)) == 1
            connection.request_oneway(Command(40))
            (told,) = await client.answers(1)
            assert (told.code, told.is_oneway) == (40, True)
            with pytest.raises(RequestTimeout, match=r"did not answer request 307 within 0\.02 s"):
                await connection.request(Command(307), timeout=0.02)
            late = (await client.answers(1))[0]
            await client.send(response_to(late, 0), request(5))
            assert [answer.opaque for answer in await client.answers(1)] == [5]

    run(test())


def test_failed_close_callback_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        closed: list[Connection] = []

        def fail(_: Connection) -> None:
            raise ValueError("oops")

        def handler(connection: Connection, asked: Command) -> Answer:
            connection.on_end_of_requests(fail)
            connection.on_close(fail)
            connection.on_close(closed.append)
            return response_to(asked, 0)

        async with serving(handler) as server:
            async with raw_client(server) as client:
                await client.send(request(1))
                await client.answers(1)
            await until(lambda: closed)
            assert not server.connections

    run(test())
    assert caplog.text.count("ValueError: oops") == 2


def test_handler_that_closes_the_connection_sends_no_response() -> None:
    async def test() -> None:
        def hang_up(connection: Connection, asked: Command) -> Answer:
            if asked.opaque == 2:
                connection.close()
            return response_to(asked, 0)

        async with serving(hang_up) as server, raw_client(server) as client:
            await client.send(request(1))
            await client.answers(1)
            await client.send(request(2), request(3))
            assert await client.is_closed()

    run(test())


def test_pending_requests_fail_when_the_connection_is_lost() -> None:
    async def test() -> None:
        connections: list[Connection] = []
        closed: list[Connection] = []

        def handler(connection: Connection, asked: Command) -> Answer:
            connections.append(connection)
            connection.on_close(closed.append)
            return None

        async with serving(handler) as server:
            async with raw_client(server) as client:
                await client.send(request(1))
                await until(lambda: connections)
                asking = asyncio.create_task(connections[0].request(Command(307), timeout=30))
                await client.answers(1)
            with pytest.raises(ConnectionLost):
                await asking
            connection = connections[0]
            await until(lambda: closed)
            assert closed == [connection]
            connection.on_close(closed.append)
            assert closed == [connection, connection]
            assert connection.is_closed and connection.unanswered == 0 and server.working_bytes == 0
            connection.respond(request(1), response_to(request(1), 0))
            connection.respond_all([(request(1), response_to(request(1), 0))])
            with pytest.raises(ConnectionLost):
                await connection.request(Command(1), timeout=1)
            with pytest.raises(ConnectionLost):
                connection.request_oneway(Command(1))

    run(test())


def test_fast_path_gets_frames_before_the_handler() -> None:
    """The fast path takes what it can from the front; the handler gets the rest, and responses keep their order."""
    shown: list[int] = []

    def quick(_: Connection, backlog: deque[Frame], outgoing: list[bytes]) -> None:
        shown.append(len(backlog))
        while backlog and re.search(rb'"opaque":[1-6]', backlog[0][1]):
            command = FrameDecoder().receive_data(encode_frame(backlog.popleft()))[0]
            outgoing.append(encode_command(response_to(command, 5)))

    async def test() -> None:
        server = RemotingServer(echo, fast_path=quick)
        await server.start()
        try:
            async with raw_client(server) as client:
                await client.send(*(request(number) for number in (1, 2, 7, 3, 70, 71, 4)))
                answers = await client.answers(7)
                assert [(answer.opaque, answer.code) for answer in answers] == [
                    *((1, 5), (2, 5), (7, 0), (3, 5), (70, 0), (71, 0), (4, 5)),
                ]
                assert shown[0] == 7
                header = b'{"code":"none"}'
                bad = encode_frame((0, header, b""))
                await client.send(request(7), bad, request(7))
                assert [answer.opaque for answer in await client.answers(1)] == [7]
                assert await client.is_closed()
        finally:
            await server.stop(grace_seconds=0.5)

    run(test())


def owing(connection: Connection, backlog: deque[Frame], _: list[bytes]) -> None:
    """Take requests until congested, and owe their responses."""
    while backlog and not connection.is_congested:
        backlog.popleft()
        connection.owe(1)


def answer_to(opaque: int) -> bytes:
    return encode_command(response_to(request(opaque), 0))


def test_owed_responses_count_as_unanswered() -> None:
    async def test() -> None:
        server = RemotingServer(echo, limits=RemotingLimits(unanswered_per_connection=5), fast_path=owing)
        await server.start()
        try:
            async with raw_client(server) as client:
                await client.send(*map(request, range(1, 21)))
                await until(lambda: server.connections)
                (connection,) = server.connections
                await until(lambda: connection.unanswered == 19)  # one past the limit was answered by the slow path
                assert connection.is_congested and connection.incoming.owed_count == 5
                assert server.working_bytes > 0
                first = await client.answers(1)
                while connection.unanswered:
                    connection.respond_owed([answer_to(7)] * connection.incoming.owed_count)
                assert len(first + await client.answers(19)) == 20
                assert server.working_bytes == 0
                assert not connection.is_congested
        finally:
            await server.stop(grace_seconds=0.5)

    run(test())


def test_stop_waits_for_owed_responses() -> None:
    async def test() -> None:
        server = RemotingServer(echo, fast_path=owing)
        await server.start()
        async with raw_client(server) as client, raw_client(server) as lost:
            await lost.send(request(9))
            await until(lambda: [each.unanswered for each in server.connections].count(1) == 1)
            (gone,) = [each for each in server.connections if each.unanswered]
            await client.send(request(1), request(2))
            await until(lambda: [each.unanswered for each in server.connections].count(2) == 1)
            (connection,) = [each for each in server.connections if each is not gone]
            gone.abort()
            await until(lambda: gone.is_closed)
            gone.respond_owed([answer_to(9)])
            assert gone.unanswered == 0 and server.working_bytes == 2 * 512, "bytes owed to a lost peer are freed"
            stopping = asyncio.create_task(server.stop(grace_seconds=60))
            await asyncio.sleep(0.01)
            assert not stopping.done() and connection.unanswered == 2
            connection.respond_owed([answer_to(1), answer_to(2)])
            assert [answer.opaque for answer in await client.answers(2)] == [1, 2]
            await stopping

    run(test())


def encode_frame(frame: Frame) -> bytes:
    kind, header, body = frame
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def test_malformed_frame_in_the_backlog_closes_the_connection() -> None:
    async def test() -> None:
        held: list[tuple[Connection, Command]] = []

        def handler(connection: Connection, asked: Command) -> Answer:
            held.append((connection, asked))
            return None

        limits = RemotingLimits(unanswered_per_connection=1)
        async with serving(handler, limits) as server, raw_client(server) as client:
            await client.send(request(1), encode_frame((0, b"{}", b"")), request(2))
            await until(lambda: held)
            connection, asked = held[0]
            assert not connection.is_closed
            connection.respond(asked, response_to(asked, 0))
            assert [answer.opaque for answer in await client.answers(1)] == [1]
            assert await client.is_closed()
            assert len(held) == 1

    run(test())


@pytest.mark.parametrize(("is_poll", "slow"), [(False, 1), (True, 0)])
def test_wait_of_a_long_poll_is_not_a_slow_request(is_poll: bool, slow: int, caplog: pytest.LogCaptureFixture) -> None:
    async def answer(asked: Command) -> Answer:
        await asyncio.sleep(0.1)
        return response_to(asked, 0)

    def handler(_: Connection, asked: Command) -> object:
        return LongPoll(answer(asked)) if is_poll else answer(asked)

    async def test() -> None:
        async with (
            serving(handler, RemotingLimits(slow_seconds=0.02)) as server,  # type: ignore[arg-type]
            raw_client(server) as client,
        ):
            await client.send(request(1))
            assert [each.opaque for each in await client.answers(1)] == [1]

    with caplog.at_level(logging.WARNING):
        run(test())
    assert sum("slow request" in record.getMessage() for record in caplog.records) == slow
