from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.formats.java import LONG_MAX, LONG_MIN
from orbitlog.formats.tables.fastjson_writer import write_compact, write_pretty
from orbitlog.formats.tables.loose_json import Json, read_json
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import java_text, repeatable

# A value, and what fastjson 1.2.83 and fastjson 2.0.59 write for it (the lists of integers being `long[]`).
VALUE: Json = {
    "dbl": 1.0,
    "dd": 1e20,
    "em": {},
    "empty": [],
    "flag": True,
    "hosted": {0: [{"bname": "b", "gen": 1}, {"bname": "b", "gen": 1}], 3: []},
    "longs": [1, 2],
    "lm": [{1: 2, 3: 4}],
    "m2": {0: {"bname": "b", "gen": 1}, 5: {"bname": "b", "gen": 1}},
    "m3": {-1: 5, 9999999999: 6},
    "nothing": None,
    "objs": [1, "a", True, None, 1.5],
    "off": {"t@g": {0: 1, 10: 20}, "u@g": {}},
    "strs": ["p", "q"],
}
FASTJSON_1 = java_text(
    """
{
→"dbl":1.0,
→"dd":1.0E20,
→"em":{},
→"empty":[],
→"flag":true,
→"hosted":{0:[
→→→{
→→→→"bname":"b",
→→→→"gen":1
→→→},
→→→{
→→→→"bname":"b",
→→→→"gen":1
→→→}
→→],3:[]
→},
→"longs":[1,2],
→"lm":[
→→{1:2,3:4
→→}
→],
→"m2":{0:{
→→→"bname":"b",
→→→"gen":1
→→},5:{
→→→"bname":"b",
→→→"gen":1
→→}
→},
→"m3":{-1:5,9999999999:6
→},
→"objs":[
→→1,
→→"a",
→→true,
→→null,
→→1.5
→],
→"off":{
→→"t@g":{0:1,10:20
→→},
→→"u@g":{}
→},
→"strs":[
→→"p",
→→"q"
→]
}
"""
)
FASTJSON_2 = java_text(
    """
{
→"dbl":1.0,
→"dd":1.0E20,
→"em":{},
→"empty":[],
→"flag":true,
→"hosted":{
→→0:[
→→→{
→→→→"bname":"b",
→→→→"gen":1
→→→},
→→→{
→→→→"bname":"b",
→→→→"gen":1
→→→}
→→],
→→3:[]
→},
→"longs":[1,2],
→"lm":[
→→{
→→→1:2,
→→→3:4
→→}
→],
→"m2":{
→→0:{
→→→"bname":"b",
→→→"gen":1
→→},
→→5:{
→→→"bname":"b",
→→→"gen":1
→→}
→},
→"m3":{
→→-1:5,
→→9999999999:6
→},
→"objs":[
→→1,
→→"a",
→→true,
→→null,
→→1.5
→],
→"off":{
→→"t@g":{
→→→0:1,
→→→10:20
→→},
→→"u@g":{}
→},
→"strs":[
→→"p",
→→"q"
→]
}
"""
)
COMPACT = (
    '{"dbl":1.0,"dd":1.0E20,"em":{},"empty":[],"flag":true,"hosted":{0:[{"bname":"b","gen":1},{"bname":"b","gen":1}],'
    '3:[]},"longs":[1,2],"lm":[{1:2,3:4}],"m2":{0:{"bname":"b","gen":1},5:{"bname":"b","gen":1}},'
    '"m3":{-1:5,9999999999:6},"objs":[1,"a",true,null,1.5],"off":{"t@g":{0:1,10:20},"u@g":{}},"strs":["p","q"]}'
)

# Every character up to U+00A0 and a few beyond, as both write them.
CHARACTERS = "".join(map(chr, range(0xA1))) + "\u2028\u2029\ufeff\uffff中😀\ud800x\udc00"
_CONTROLS_2 = (
    r"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f"
    r"\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f"
)
_CONTROLS_1 = _CONTROLS_2.replace("b\\f", "B\\f").replace("00e", "00E").replace("00f", "00F")
for _digit in "abcdef":
    _CONTROLS_1 = _CONTROLS_1.replace(f"001{_digit}", f"001{_digit.upper()}")
_ASCII = r""" !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"""
_C1 = "".join(map(chr, range(0x7F, 0xA0)))
ESCAPED_1 = (
    _CONTROLS_1
    + _ASCII
    + "".join(f"\\u{ord(character):04X}" for character in _C1)
    + "\u00a0\\u2028\\u2029\ufeff\uffff中😀\ud800x\udc00"
)
ESCAPED_2 = _CONTROLS_2 + _ASCII + _C1 + "\u00a0\u2028\u2029\ufeff\uffff中😀\ud800x\udc00"


def test_pretty_is_what_java_writes() -> None:
    assert write_pretty(VALUE, int_keys_on_own_line=False) == FASTJSON_1
    assert write_pretty(VALUE, int_keys_on_own_line=True) == FASTJSON_2


def test_compact_is_what_java_writes() -> None:
    assert write_compact(VALUE) == COMPACT
    assert write_compact(VALUE, int_keys_on_own_line=False) == COMPACT


@pytest.mark.parametrize(("own_line", "escaped"), [(False, ESCAPED_1), (True, ESCAPED_2)])
def test_escapes_are_java_s(own_line: bool, escaped: str) -> None:
    assert write_compact(CHARACTERS, int_keys_on_own_line=own_line) == f'"{escaped}"'
    assert write_pretty(CHARACTERS, int_keys_on_own_line=own_line) == f'"{escaped}"'
    assert write_compact({CHARACTERS: 1}, int_keys_on_own_line=own_line) == f'{{"{escaped}":1}}'
    assert read_json(f'"{escaped}"') == CHARACTERS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "null"),
        (float("inf"), "null"),
    ],
)
def test_doubles_are_java_s(value: float, text: str) -> None:
    assert write_compact(value) == text


@pytest.mark.parametrize(
    ("value", "one_line", "own_lines"),
    [
        ({0: 1, 10: 20}, "{0:1,10:20\n}", "{\n→0:1,\n→10:20\n}"),
        ([1, 2], "[1,2]", "[1,2]"),
        ([], "[]", "[]"),
        ({}, "{}", "{}"),
        ({"a": None}, "{}", "{}"),
        (None, "null", "null"),
    ],
)
def test_small_values(value: Json, one_line: str, own_lines: str) -> None:
    assert write_pretty(value, int_keys_on_own_line=False) == one_line.replace("→", "\t")
    assert write_pretty(value, int_keys_on_own_line=True) == own_lines.replace("→", "\t")


def test_golden_config_files_are_written_again(golden_497: GoldenStore, golden_550_crash: GoldenStore) -> None:
    written = 0
    for golden, own_line in ((golden_497, False), (golden_550_crash, True)):
        for path in sorted((golden.store / "config").iterdir()):
            if path.name != "timercheck":
                assert _written_again(path, own_line) == path.read_bytes(), path.name
                written += 1
    assert written == 27


def _written_again(path: Path, own_line: bool) -> bytes:
    value = read_json(path.read_bytes().decode())
    if "etrics" in path.name:
        return write_compact(value).encode()
    return write_pretty(value, int_keys_on_own_line=own_line).encode()


leaves = st.booleans() | st.integers(LONG_MIN, LONG_MAX) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
keys = st.text() | st.integers(LONG_MIN, LONG_MAX)
values = st.recursive(
    leaves, lambda inner: st.lists(inner | st.none(), max_size=4) | st.dictionaries(keys, inner, max_size=4)
)


@repeatable
@given(values, st.booleans())
def test_what_is_written_reads_back(value: Json, own_line: bool) -> None:
    assert read_json(write_pretty(value, int_keys_on_own_line=own_line)) == value
    assert read_json(write_compact(value, int_keys_on_own_line=own_line)) == value
