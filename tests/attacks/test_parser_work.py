"""Work of every parser and filter of outside text: at most a constant number of steps for each input byte."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from orbitlog.errors import OrbitlogError
from orbitlog.filters.sql_filter import SqlFilter
from orbitlog.formats.records.properties import decode_properties
from orbitlog.settings.properties_file import parse_properties
from orbitlog.wire.bodies.body_json import read_request_body
from orbitlog.wire.command_decoding import WireLimits, decode_binary_header, decode_json_header
from orbitlog.wire.pop_receipt import acknowledged_offsets, parse_receipt
from tests.support.work_counters import steps_of

STEPS_PER_BYTE_MAX = 60
STEPS_MIN = 3_000
SIZES = (64, 512, 4_096)
EXAMPLES = 12
SEED = 20260611

PIECES: dict[str, tuple[bytes, ...]] = {
    "JSON": (b"{", b"}", b"[", b"]", b":", b",", b'"', b"a", b"1", b"\\", b'{"$ref":"$.a"}', b"'", b"/*", b"-", b"e"),
    "SQL": (b"a", b" ", b"=", b"1", b"(", b")", b"AND ", b"OR ", b"NOT ", b"'", b"-", b".", b"e", b"IN ", b"--", b"/*"),
    "properties": (b"a", b"\x01", b"\x02", b"KEYS", b" ", b"=", b"\\", b"\n", b"1"),
}


def _filtered(data: bytes) -> None:
    text = data.decode("latin-1")
    SqlFilter(text).matches({"a": "1"})


def _compared(data: bytes) -> None:
    SqlFilter("a > 1.5 OR a IN ('x') OR a CONTAINS 'y'").matches({"a": data.decode("latin-1")})


PARSERS: dict[str, tuple[str, Callable[[bytes], object]]] = {
    "JSON body": ("JSON", read_request_body),
    "JSON header": ("JSON", lambda data: decode_json_header(data, b"", WireLimits())),
    "binary header": ("properties", lambda data: decode_binary_header(data, b"", WireLimits())),
    "SQL expression": ("SQL", _filtered),
    "property in an SQL filter": ("SQL", _compared),
    "message properties": ("properties", decode_properties),
    "settings": ("properties", lambda data: parse_properties(data.decode("latin-1"))),
    "POP receipt": ("properties", lambda data: parse_receipt(data.decode("latin-1"))),
    "batch acknowledgement": ("JSON", lambda data: acknowledged_offsets(0, data)),
}


def inputs(pieces: tuple[bytes, ...], size: int) -> Iterator[bytes]:
    """Yield repetitions of one piece, of two, and random texts."""
    chance = random.Random(SEED)
    for piece in pieces:
        yield (piece * size)[:size]
    for _ in range(EXAMPLES):
        pair = chance.choice(pieces) + chance.choice(pieces)
        yield (pair * size)[: size - 1] + chance.choice(pieces)[:1]
        yield b"".join(chance.choices(pieces, k=size))[:size]


@pytest.mark.parametrize("name", PARSERS)
def test_steps_grow_at_most_with_the_input(name: str) -> None:
    kind, parse = PARSERS[name]

    def tried(data: bytes) -> None:
        try:
            parse(data)
        except (OrbitlogError, ValueError):
            pass

    tried(b"")  # imports
    tried(b"a = 1")
    for size in SIZES:
        for data in inputs(PIECES[kind], size):
            steps = steps_of(lambda data=data: tried(data))
            assert steps <= STEPS_MIN + STEPS_PER_BYTE_MAX * size, f"{steps} steps for {data[:60]!r}... of {size} bytes"
