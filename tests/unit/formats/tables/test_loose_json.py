from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField, FormatError, LimitExceeded
from orbitlog.formats.java import LONG_MAX, LONG_MIN
from orbitlog.formats.tables.loose_json import Json, read_json
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import repeatable

scalars = st.none() | st.booleans() | st.integers(LONG_MIN, LONG_MAX) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:1}", {0: 1}),
        ('{"0":1}', {"0": 1}),
        ("{-5 : 1,\n\t9999999999\n:2}", {-5: 1, 9999999999: 2}),
        ('{"t@g":{0:1,1:2\n\t},"u":{}}', {"t@g": {0: 1, 1: 2}, "u": {}}),
        ('[{0:[1,{2:3}]},"x"]', [{0: [1, {2: 3}]}, "x"]),
        ("{a:1,$b_2:true}", {"a": 1, "$b_2": True}),
        ("{null:1,true:2}", {"null": 1, "true": 2}),
        ("{'a':'x\"y'}", {"a": 'x"y'}),
        ('{"a":1,}', {"a": 1}),
        ('{,"a":1,,"b":2}', {"a": 1, "b": 2}),
        ("[1,]", [1]),
        ("[,1,,2]", [1, 2]),
        ('{/*x*/"a":1 // c\n}// end', {"a": 1}),
        ('{"a":"x\ty\nz"}', {"a": "x\ty\nz"}),
        (r"""{'a':'\x41\'\v\0\7\u00e9\/\"'}""", {"a": "A'\v\x00\x07é/\""}),
        ("\ufeff{}", {}),
        ('{"a":1,"a":2}', {"a": 2}),
        ("{1:1,1:2}", {1: 2}),
        ("[1.5,-2e3,1E-2,true,false,null]", [1.5, -2000.0, 0.01, True, False, None]),
        (f"{{{LONG_MAX}:{LONG_MIN}}}", {LONG_MAX: LONG_MIN}),
        ('{0:"\\ud83d\\ude00\\ud800"}', {0: "😀\ud800"}),
        (" \r\n\t7 ", 7),
        # Strings that look like keys, and a text that holds the mark put on keys.
        ('{"a,1:b":{0:"{2:3},4:5"}}', {"a,1:b": {0: "{2:3},4:5"}}),
        ('{0:"\ufdd0","\ufdd05":1}', {0: "\ufdd0", "\ufdd05": 1}),
        ('{0:1,"\\uFDD05":1}', {0: 1, "\ufdd05": 1}),
        ('{"a\\"":{0:1},"\\\\":{1:2}}', {'a"': {0: 1}, "\\": {1: 2}}),
    ],
)
def test_what_fastjson_writes_and_takes(text: str, value: Json) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{", 1, 2),
        ('{"a":1', 1, 7),
        ('{"a"\n1}', 2, 1),
        ('{"a":1 "b":2}', 1, 8),
        ('{"a":1;"b":2}', 1, 7),
        ("[1 2]", 1, 4),
        ('{\n\t"a":1,\n\t"b":x\n}', 3, 6),
        ('{"a":1}}', 1, 8),
        ('{"a":1}x', 1, 8),
        ('{"a":"x', 1, 6),
        ("{'a':1", 1, 7),
        ('{"a":"\\q"}', 1, 6),
        ('{"a":"\\u12"}', 1, 6),
        ('{"a":NaN}', 1, 6),
        ('{"a":-Infinity}', 1, 6),
        ('{"a":-}', 1, 6),
        ('{"a":+1}', 1, 6),
        ('{"a":0x1F}', 1, 7),
        ("{1.5:1}", 1, 2),
        ("{[1]:1}", 1, 2),
        ("{}/*", 1, 3),
        ("]", 1, 1),
        (":", 1, 1),
    ],
)
def test_errors_name_the_place(text: str, line: int, column: int) -> None:
    with pytest.raises(FormatError, match=re.escape(f"line {line} column {column}: ")):
        read_json(text)


def test_the_position_counts_bytes() -> None:
    with pytest.raises(FormatError) as caught:
        read_json('{"é😀":x}')
    assert caught.value.position == len('{"é😀":'.encode())


@pytest.mark.parametrize("number", ["9223372036854775808", "-9223372036854775809", "1" * 5000, "1e999", "-1e999"])
@pytest.mark.parametrize("template", ["{}", '{{"a":[1,{}]}}', "{{a:{}}}"])
def test_numbers_must_fit(number: str, template: str) -> None:
    with pytest.raises(BadField, match="does not fit in 64 bits"):
        read_json(template.format(number))


def test_keys_must_fit() -> None:
    with pytest.raises(BadField, match="does not fit in 64 bits"):
        read_json('{"a":{9223372036854775808:1}}')


def test_size_limit() -> None:
    assert read_json("[ 1 ]", characters_max=5) == [1]
    with pytest.raises(LimitExceeded):
        read_json("[ 1 ]", characters_max=4)


@pytest.mark.parametrize(
    ("opening", "inside", "closing"),
    [("[", "", "]"), ('{"a":', "1", "}"), ("{0:", "1", "}"), ("{a:", "1", "}"), ("[1,", "", "]")],
)
def test_depth_limit(opening: str, inside: str, closing: str) -> None:
    read_json(opening * 64 + inside + closing * 64)
    for depth in (65, 150, 100_000):
        with pytest.raises(LimitExceeded):
            read_json(opening * depth + inside + closing * depth)
        with pytest.raises(FormatError):
            read_json(opening * depth)


@pytest.mark.parametrize(
    "piece", ['"', "'", "\\", '\\"', "\\'", "/*", "//", ",", ", ", "{1", ",1 ", '",', "'\"", "1", "[", "{a:", "/", "\n"]
)
@pytest.mark.parametrize("start", ["", '"', "'", "{0:", '{0:"', "[", "{a:'"])
def test_a_hostile_text_is_refused_in_linear_time(start: str, piece: str) -> None:
    """With quadratic behaviour anywhere this test takes minutes instead of a second."""
    try:
        read_json(start + piece * 100_000)
    except FormatError:
        pass


def test_every_golden_config_file_reads(golden_497: GoldenStore, golden_550_crash: GoldenStore) -> None:
    """The same value comes out whichever of the ways through the module a text takes."""
    count = 0
    for golden in (golden_497, golden_550_crash):
        for path in sorted((golden.store / "config").iterdir()):
            if path.name == "timercheck":
                continue
            text = path.read_text("utf-8")
            assert isinstance(read_json(text), dict)
            assert read_json("// only the loose reader takes this\n" + text) == read_json(text)
            count += 1
    assert count == 27


@repeatable
@given(values)
def test_plain_json_reads_as_the_standard_library_reads_it(value: Json) -> None:
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert read_json(text) == json.loads(text)
        assert read_json("//\n" + text) == json.loads(text)


@repeatable
@given(st.text(st.sampled_from("{}[]:,\"'\\/*0123-.eEtrufalsn \nu"), max_size=30) | st.text())
def test_any_text_gives_a_value_or_a_format_error(text: str) -> None:
    try:
        read_json(text)
    except FormatError:
        pass
