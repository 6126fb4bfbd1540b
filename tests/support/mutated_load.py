"""A load of mutated requests over live sockets, in a process of its own: counts responses, closes and hangs.

    python -m tests.support.mutated_load PLAN

PLAN is a JSON object with the fields of `Plan`. The process sends that many requests of each code over pipelined
connections, several at a time, and prints a JSON object: the `Tally` of each code. Each connection ends with a damaged
frame, and must be closed by the server.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import cast

import orjson

from tests.support.mutations import Mutations

BINARY_START = struct.Struct(">hbhii")
FRAMES_PER_WRITE = 250
IN_FLIGHT_MAX = 1_500
STALL_SECONDS = 0.5
HELD_SECONDS = 3.0  # then the end of the requests ends long polls
HANG_SECONDS = 60.0
CLOSE_SECONDS = 30.0
LONG_POLLS = {11, 361, 200050, 200052, 200054}
STAY_SILENT = {37}  # END_TRANSACTION with an unknown outcome: the transaction check asks the producer later


@dataclasses.dataclass
class Plan:
    """What to send: `per_code` requests of each code, at most `per_connection` of them over one connection."""

    addresses: list[str]
    codes: list[int]
    seed: int
    per_code: int
    per_connection: int
    at_once: int = 8
    seconds_max: float = 1e9
    progress: str = ""
    ended: str = ""
    """File with a line for each code that is done: a run that was interrupted continues with the others."""


@dataclasses.dataclass
class Tally:
    """What became of the requests of one code."""

    sent: int = 0
    answered: int = 0
    silent: int = 0  # a code that may stay silent
    held: int = 0  # long polls that ended with their connection
    closed: int = 0  # without a response, because the server closed the connection
    hung: int = 0  # neither a response nor a close
    connections: int = 0
    damaged: int = 0
    left_open: int = 0  # connections that the server did not close after a damaged frame and the end of the requests


class Link(asyncio.Protocol):
    """One connection: which requests wait for a response."""

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.answered = 0
        self.progress_s = time.monotonic()
        self.is_closed = False
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_closed = True
        self._changed.set()

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        """Take responses; requests of the server itself, and a response to a damaged frame, have no waiting number."""
        data = self._received + data if self._received else data
        position, end, waiting = 0, len(data), self.waiting
        before = len(waiting)
        while position + 8 <= end:
            size = int.from_bytes(data[position : position + 4])
            if position + 4 + size > end:
                break
            header_bytes = int.from_bytes(data[position + 5 : position + 8])
            header = data[position + 8 : position + 8 + header_bytes]
            if data[position + 4]:  # a binary header
                _, _, _, opaque, flag = BINARY_START.unpack_from(header)
            else:
                fields = orjson.loads(header)
                opaque, flag = fields["opaque"], fields["flag"]
            if flag & 1:
                waiting.discard(opaque)
            position += 4 + size
        self._received = data[position:]
        if len(waiting) < before:
            self.answered += before - len(waiting)
            self.progress_s = time.monotonic()
            self._changed.set()

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def end_requests(self) -> None:
        assert self._transport is not None
        if not self.is_closed:
            self._transport.write_eof()

    def abort(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    async def change(self, seconds: float) -> bool:
        """Wait for a response or a close; return whether there was one in time."""
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True


async def send_requests(link: Link, mutations: Mutations, count: int) -> int:
    """Send requests without waiting for single responses; return the number sent."""
    sent = 0
    while sent < count and not link.is_closed:
        if len(link.waiting) >= IN_FLIGHT_MAX and await link.change(STALL_SECONDS):
            continue  # after a stall more are sent: those in front may be long polls
        size = min(FRAMES_PER_WRITE, count - sent)
        link.waiting.update(range(sent + 1, sent + size + 1))
        link.write(b"".join(mutations.frames(size, sent + 1)))
        sent += size
        await asyncio.sleep(0)
    return sent


async def wait_for_responses(link: Link, code: int) -> None:
    """Wait until every request is answered, or nothing more is expected."""
    limit_s = HELD_SECONDS if code in LONG_POLLS else STALL_SECONDS if code in STAY_SILENT else HANG_SECONDS
    while link.waiting and not link.is_closed:
        left = link.progress_s + limit_s - time.monotonic()
        if left <= 0:
            return
        await link.change(left)


async def use_connection(address: str, mutations: Mutations, count: int, tally: Tally) -> None:
    """Send requests, wait for their responses, then send a damaged frame and wait for the close."""
    host, _, port = address.rpartition(":")
    _, link = await asyncio.get_running_loop().create_connection(Link, host, int(port))
    tally.connections += 1
    sent = await send_requests(link, mutations, count - 1)
    link.progress_s = time.monotonic()
    await wait_for_responses(link, mutations.code)
    was_closed = link.is_closed
    tally.sent += sent
    if not was_closed:
        link.write(mutations.damaged(sent + 1))
        tally.sent += 1
        tally.damaged += 1
        link.end_requests()
        ends = time.monotonic() + CLOSE_SECONDS
        while not link.is_closed and time.monotonic() < ends:
            await link.change(CLOSE_SECONDS)
        tally.left_open += not link.is_closed
    link.abort()
    tally.answered += link.answered
    left = len(link.waiting)
    if was_closed:
        tally.closed += left
    elif mutations.code in STAY_SILENT:
        tally.silent += left
    elif mutations.code in LONG_POLLS and link.is_closed:
        tally.held += left
    else:
        tally.hung += left


async def attack_with_code(plan: Plan, code: int, ends: float) -> Tally:
    """Send the requests of one code; every fourth connection is to the last address."""
    tally, mutations = Tally(), Mutations(code, plan.seed)
    first, last = plan.addresses[0], plan.addresses[-1]
    turns = itertools.cycle((first, last, first, first))
    while tally.sent < plan.per_code and time.monotonic() < ends:
        before = tally.sent
        await use_connection(next(turns), mutations, min(plan.per_connection, plan.per_code - tally.sent), tally)
        if tally.sent == before:
            await asyncio.sleep(0.01)
    if plan.progress:
        note_progress(Path(plan.progress), code, tally)
    return tally


def note_progress(path: Path, code: int, tally: Tally) -> None:
    """Append a line: a run of half an hour should show its progress."""
    with path.open("a") as file:
        file.write(f"{time.time():.0f} requests of code {code}: {tally.sent}\n")


def note_end(plan: Plan, code: int, tally: Tally) -> None:
    """Append the tally of a code that is done."""
    row = {"code": code, "seed": plan.seed, "per_code": plan.per_code, "tally": dataclasses.asdict(tally)}
    with Path(plan.ended).open("ab") as file:
        file.write(orjson.dumps(row) + b"\n")


def ended_codes(path: str, seed: int, per_code: int) -> dict[int, Tally]:
    """Return the tallies of codes that an earlier run with the same seed and count has done."""
    if not path or not Path(path).exists():
        return {}
    rows = [orjson.loads(line) for line in Path(path).read_bytes().splitlines()]
    return {row["code"]: Tally(**row["tally"]) for row in rows if (row["seed"], row["per_code"]) == (seed, per_code)}


async def attack(plan: Plan) -> dict[str, Tally]:
    """Carry out a plan, `at_once` codes at a time."""
    left, tallies = deque(plan.codes), {}
    ends = time.monotonic() + plan.seconds_max

    async def work() -> None:
        while left:
            code = left.popleft()
            tallies[str(code)] = tally = await attack_with_code(plan, code, ends)
            if plan.ended and tally.sent >= plan.per_code:
                note_end(plan, code, tally)

    async with asyncio.TaskGroup() as group:
        for _ in range(plan.at_once):
            group.create_task(work())
    return tallies


if __name__ == "__main__":
    results = asyncio.run(attack(Plan(**orjson.loads(sys.argv[1]))))
    sys.stdout.write(orjson.dumps(results).decode())
