"""Whole tables: encodes responses with all topics, groups or offsets of a server, large ones in a thread.

A hundred thousand topics take a second to encode. One table at a time is copied and encoded: a peer that asks often
waits, and costs the memory of one copy. A thread that encodes contends with the event loop for the interpreter lock, so
it rests for nine times as long afterwards, up to half a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orbitlog.errors import RequestRefused
from orbitlog.formats.tables.json_records import JsonRecord
from orbitlog.remoting.loop_slices import STEP_ITEMS
from orbitlog.remoting.thread_pace import ThreadPace
from orbitlog.wire.bodies.body_json import encode_body, encode_table
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, response_to

BODY_BYTES_MAX = 16 * 1024 * 1024 - 256 * 1024
"""A frame has 16 MiB, with its header."""


class WholeTables:
    """Answers requests for whole tables, one after the other."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._pace = ThreadPace()

    async def answer(self, request: Command, item_count: int, copy: Callable[[], Callable[[], JsonRecord]]) -> Command:
        """Return the response with a table; raise `RequestRefused` if it does not fit a frame.

        `copy` copies the table on the event loop, and returns a function that makes the record, maybe in a thread.
        """
        if item_count <= STEP_ITEMS:
            return table_response(request, encode_body(copy()()))
        async with self._turn:
            await self._pace.rest()
            make = copy()
            body = await asyncio.to_thread(self._pace.paced(lambda: encode_table(make())))
        return table_response(request, body)


def table_response(request: Command, body: bytes) -> Command:
    """Return the response with an encoded table; raise `RequestRefused` if it does not fit a frame."""
    if len(body) > BODY_BYTES_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the table has {len(body)} bytes, and a response at most {BODY_BYTES_MAX}; ask for single entries",
        )
    return response_to(request, ResponseCode.SUCCESS, body=body)
