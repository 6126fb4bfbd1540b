"""The wire and its server: frames of sends decoded, handled and answered, alone and over a socket.

Over the socket a second process pumps frames and counts the bytes that come back, so that one core is the server's.
The baseline there is a server that sends back what it gets and looks at nothing; both run on uvloop.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe

import orjson
import uvloop

from benchmarks.measure import Figure, Reading, Report, best_of
from orbitlog.remoting.connection import Connection
from orbitlog.remoting.server import RemotingServer
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, encode_command, response_to
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.frames import FrameDecoder
from orbitlog.wire.send_headers import SendMessageResponse, SendMessageV2Request

FRAMES_A_WRITE = 64
BODY_BYTES = 128
_PROPERTIES = "UNIQ_KEY\x010A000001000018B4AAC27DCE00000001\x02WAIT\x01true\x02TAGS\x01TagA\x02"
_SEND = SendMessageV2Request(
    producer_group="BenchProducers",
    topic="TopicBenchmark",
    default_topic="TBW102",
    default_topic_queue_count=4,
    queue_id=3,
    sys_flag=0,
    born_timestamp_ms=1_700_000_000_000,
    flag=0,
    properties=_PROPERTIES,
    broker_name="broker-a",
)
_PULL = PullMessageRequest(
    group="BenchConsumers",
    topic="TopicBenchmark",
    queue_id=3,
    queue_offset=123_456,
    message_count_max=32,
    sys_flag=2,
    commit_queue_offset=0,
    suspend_timeout_ms=15_000,
    subscription_version=1_700_000_000_000,
)


def run(report: Report, *, count: int) -> None:
    _alone(report, count)
    _over_a_socket(report, count)


def _request(opaque: int = 1) -> Command:
    return Command(
        RequestCode.SEND_MESSAGE_V2, opaque, ext_fields=_SEND.to_ext_fields(), body=bytes(BODY_BYTES), language="JAVA"
    )


def handle(_: Connection | None, request: Command) -> Command:
    """What a broker does for a send, but for the store."""
    header = SendMessageV2Request.from_ext_fields(request.ext_fields)
    answer = SendMessageResponse(
        "0A00000100002A9F00000000075BCD15", header.queue_id, 123_456, region="DefaultRegion", trace="true"
    )
    return response_to(request, ResponseCode.SUCCESS, ext_fields=answer.to_ext_fields())


def _alone(report: Report, count: int) -> None:
    group = f"wire: sends of {BODY_BYTES} B, {FRAMES_A_WRITE} frames at a time"
    frame = encode_command(_request())
    frames = frame * FRAMES_A_WRITE
    rounds = count // FRAMES_A_WRITE
    header = frame[8 : len(frame) - BODY_BYTES]
    decoder = FrameDecoder()
    commands = decoder.receive_data(frames)
    answers = [handle(None, command) for command in commands]
    pulls = _PULL.to_ext_fields()

    def measure(name: str, work: Callable[[], object]) -> None:
        seconds = best_of(lambda: [work() for _ in range(rounds)])
        report.add(Figure(group, name, seconds, rounds * FRAMES_A_WRITE, rounds * len(frames)))

    measure("baseline: orjson of the header alone", lambda: [orjson.loads(header) for _ in range(FRAMES_A_WRITE)])
    measure("decode frames", lambda: decoder.receive_data(frames))
    measure("read send headers", lambda: [SendMessageV2Request.from_ext_fields(c.ext_fields) for c in commands])
    measure("read pull headers", lambda: [PullMessageRequest.from_ext_fields(pulls) for _ in commands])
    measure("encode answers", lambda: list(map(encode_command, answers)))
    measure(
        "decode, read, answer, encode",
        lambda: b"".join([encode_command(handle(None, command)) for command in decoder.receive_data(frames)]),
    )


def _over_a_socket(report: Report, count: int) -> None:
    group = f"server: sends of {BODY_BYTES} B over a socket, {FRAMES_A_WRITE} in flight, one core"
    frame = encode_command(_request())
    answer_bytes = len(encode_command(handle(None, _request())))
    for name, serve, bytes_back in (
        ("baseline: echo of the same bytes", _serve_echo, len(frame)),
        ("decode, read, answer", _serve_sends, answer_bytes),
    ):
        rounds = count // FRAMES_A_WRITE
        runs = [uvloop.run(_measure(serve, frame, bytes_back, rounds)) for _ in range(3)]
        sends = rounds * FRAMES_A_WRITE
        report.add(Figure(group, name, min(wall for wall, _ in runs), sends, sends * len(frame)))
        cpu_us = min(cpu for _, cpu in runs) / sends * 1e6
        report.read(Reading(group, f"{name.removeprefix('baseline: ')}: processor time a frame", cpu_us, "µs"))


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


Stop = Callable[[], Awaitable[None]]


async def _serve_echo() -> tuple[int, Stop]:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)

    async def stop() -> None:
        server.close()
        await server.wait_closed()

    return server.sockets[0].getsockname()[1], stop


async def _serve_sends() -> tuple[int, Stop]:
    server = RemotingServer(handle)
    await server.start()
    return server.address[1], server.stop


async def _measure(
    serve: Callable[[], Awaitable[tuple[int, Stop]]], frame: bytes, bytes_back: int, rounds: int
) -> tuple[float, float]:
    """Return the seconds that passed, and those of the processor that the server took."""
    port, stop = await serve()
    mine, theirs = multiprocessing.Pipe()
    arguments = (theirs, port, frame * FRAMES_A_WRITE, bytes_back * FRAMES_A_WRITE, rounds)
    process = multiprocessing.get_context("spawn").Process(target=_pump, args=arguments)
    process.start()
    started_cpu = time.process_time()
    try:
        wall = await asyncio.get_running_loop().run_in_executor(None, mine.recv)
        return wall, time.process_time() - started_cpu
    finally:
        process.join()
        await stop()


def _pump(results: Pipe, port: int, frames: bytes, bytes_back: int, rounds: int) -> None:
    """Send all frames of a round and read their responses, `rounds` times; report the duration."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(1 << 20))
        ahead = 4  # rounds under way, so that neither side waits for the other
        sent = taken = 0
        started = time.perf_counter()
        while taken < rounds * bytes_back:
            while sent < rounds and sent * bytes_back - taken < ahead * bytes_back:
                connection.sendall(frames)
                sent += 1
            taken += connection.recv_into(buffer)
        results.send(time.perf_counter() - started)
