"""Work of every parser and filter of outside text: at most a constant number of steps for each input byte."""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import sys
from collections.abc import Callable, Iterator

import pytest

from orbitlog.access.access_file import decode_access_file
from orbitlog.access.plain_accounts import parse_plain_file
from orbitlog.errors import OrbitlogError
from orbitlog.filters.sql_filter import SqlFilter
from orbitlog.formats.records.properties import decode_properties
from orbitlog.settings.properties_file import parse_properties
from orbitlog.wire.bodies.body_json import read_request_body
from orbitlog.wire.command_decoding import WireLimits, decode_binary_header, decode_json_header
from orbitlog.wire.pop_receipt import acknowledged_offsets, parse_receipt
from tests.support.regex_steps import TooManySteps, letters_of, regex_steps
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
    "YAML": (
        b"a",
        b"1",
        b"- ",
        b"a: ",
        b"? ",
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b'"',
        b"'",
        b"\n",
        b"\n  ",
        b"&a ",
        b"*a ",
        b"| ",
    ),
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
    "accounts of 1.0": ("YAML", lambda data: parse_plain_file(data, "plain_acl.yml")),
    "users and policies": ("JSON", lambda data: decode_access_file(data, "access.json")),
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


# Regular expressions

ROOMS = ("access", "broker", "client", "filters", "formats", "nameserver", "observe", "remoting", "settings", "wire")
LETTERS = 120
REGEX_STEPS_PER_LETTER_MAX = 60


def patterns() -> dict[str, re.Pattern[str]]:
    """Return every pattern at the top of a module that meets text of peers, by module and name."""
    found = {}
    for room in ROOMS:
        package = importlib.import_module(f"orbitlog.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, re.Pattern) and value not in found.values():
                    found[f"{module.name.removeprefix('orbitlog.')}.{name}"] = value
    return found


def as_text(pattern: re.Pattern[str] | re.Pattern[bytes]) -> re.Pattern[str]:
    if isinstance(pattern.pattern, bytes):
        return re.compile(pattern.pattern.decode("latin-1"), pattern.flags & ~re.UNICODE | re.ASCII)
    return pattern  # type: ignore[return-value]


def texts(letters: list[str]) -> Iterator[str]:
    """Yield texts that begin like a match and end otherwise: the worst case of a pattern that backtracks."""
    chance = random.Random(SEED)
    for letter in letters:
        for end in ("", "!", "\0"):
            yield letter * LETTERS + end
    for _ in range(60):
        first, second, last = chance.choices(letters, k=3)
        yield first + second * LETTERS + last + "!"
        yield (first + second) * (LETTERS // 2) + "!"


def test_patterns_never_try_more_than_a_constant_number_of_ways_for_each_letter() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        checked = {name: as_text(pattern) for name, pattern in patterns().items()}
        assert len(checked) > 15 and "filters.java_numbers._DECIMAL" in checked
        for name, pattern in checked.items():
            for text in texts(letters_of(pattern)):
                try:
                    regex_steps(pattern, text, REGEX_STEPS_PER_LETTER_MAX * LETTERS)
                except TooManySteps:
                    pytest.fail(f"{name}: {pattern.pattern!r} needs too many steps for {text[:20]!r}...{text[-5:]!r}")
    finally:
        sys.setrecursionlimit(limit)


def test_pattern_that_backtracks_is_noticed() -> None:
    with pytest.raises(TooManySteps):
        regex_steps(re.compile(r"[0-9]+\.?[0-9]*"), "1" * LETTERS + "x", REGEX_STEPS_PER_LETTER_MAX * LETTERS)
    for pattern, text in ((r"a*b", "aaab"), (r"(?:ab|a)+c?", "abaabc"), (r"[^x]{2,4}+y", "zzzy")):
        assert regex_steps(re.compile(pattern), text, 1_000) > 3
