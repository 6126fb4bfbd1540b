"""YAML subset: the values that PyYAML reads, or a refusal with the line."""

from __future__ import annotations

import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.access import yaml_subset
from orbitlog.access.yaml_scalars import Scalar, unquoted
from orbitlog.access.yaml_subset import BadYaml, YamlValue, read_yaml
from tests.support.yaml_reference import reference_values

SEED = 20261119
PIECES = (
    *("a", "b: ", "a: ", "- ", "-", "\n", "\n  ", "\n ", "\n    ", "[", "]", "{", "}", ",", ", ", ":", ": ", "\r\n"),
    *('"', "'", "#", " #", " ", "\\", "\\n", "\\\n", "x y", "1", "~", "''", "\t", "é", "%", "\\x41", "\\u263A", "\\ "),
    *("&a ", "*a", "! ", "| ", "> ", "? ", "---", "...", "--- ", "true", "12:30", "<<", "=", "10.0.0.*", "a=PUB|SUB"),
)
SCALARS = (
    *("accessKey", "12345678", "0123", "é x", "long text " * 12, "a: b", "- x", "#c", " x ", "it's", 'q"q', "\\", "\n"),
    *("a\nb", "true", True, 7, None, 1.5, "", "10.0.0.*", "a=PUB|SUB", "*", "x\ty", "%R", "a#b", "a:b", "\U0001f600"),
    *("\x07", "a\n\n b ", "1234e10", "2020-01-01", "1_000", "~", "<<", "0x1F"),
)
CHANGES = (b"", b" ", b"\n", b"  ", b"- ", b": ", b",", b'"', b"#", b" #", b"[", b"}")


def result(data: bytes) -> YamlValue | str:
    try:
        return read_yaml(data)
    except BadYaml as error:
        return f"refused: {error}"


def agrees(data: bytes) -> bool:
    """Return whether a text is read; fail if it is read in another way than by both parsers of PyYAML."""
    value = result(data)
    if isinstance(value, str):
        return False
    assert [value, value] == reference_values(data), data
    return True


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def written(chance: random.Random) -> bytes:
    """Return a document as emitters write them: any style, width and indentation."""

    def value(depth: int) -> object:
        kind = chance.random() if depth < 4 else 1
        if kind < 0.25:
            return [value(depth + 1) for _ in range(chance.randint(0, 4))]
        if kind < 0.5:
            return {f"{chance.choice(SCALARS[:11])}{index}": value(depth + 1) for index in range(chance.randint(0, 4))}
        return chance.choice(SCALARS)

    text = yaml.dump(
        value(0),
        Dumper=_Dumper,
        default_flow_style=chance.choice((None, True, False)),
        default_style=chance.choice((None, None, '"', "'")),
        width=chance.choice((20, 80, 1000)),
        indent=chance.choice((2, 4)),
        allow_unicode=chance.random() < 0.5,
        explicit_start=chance.random() < 0.2,
        line_break=chance.choice(("\n", "\r\n")),
    )
    return text.encode()


def test_documents_of_an_emitter_are_read_as_by_pyyaml() -> None:
    """Java writes account files with an emitter that PyYAML's was translated from, and folds lines after 80 columns."""
    chance = random.Random(SEED)
    documents = [written(chance) for _ in range(600)]
    refused = [data for data in documents if not agrees(data)]
    # Keys of quoted text on several lines are in flow collections of this narrow width alone.
    assert all(any(isinstance(value, str) for value in reference_values(data)) for data in refused), refused


def test_changed_documents_are_read_as_by_pyyaml_or_refused() -> None:
    chance = random.Random(SEED)
    read = 0
    for _ in range(600):
        data = bytearray(written(chance))
        for _ in range(chance.randint(1, 3)):
            position = chance.randrange(len(data) + 1)
            data[position : position + chance.randint(0, 3)] = chance.choice(CHANGES)
        read += agrees(bytes(data))
    assert read > 200


def test_random_texts_are_read_as_by_pyyaml_or_refused() -> None:
    chance = random.Random(SEED)
    assert sum(agrees("".join(chance.choices(PIECES, k=chance.randint(1, 12))).encode()) for _ in range(4000)) > 1000


@given(st.lists(st.sampled_from(PIECES), max_size=20).map(lambda pieces: "".join(pieces).encode()))
def test_generated_texts_are_read_as_by_pyyaml_or_refused(data: bytes) -> None:
    agrees(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("# nothing\n", None),
        ("---\n...\n", None),
        ("\ufeffa: b", {"a": "b"}),
        ("--- {a: b}", {"a": "b"}),
        ("a: b # c\r\nd:\r\n  - e\r\n  -  - f\r\n", {"a": "b", "d": ["e", ["f"]]}),
        ("a:\n- b\n- c: d\n  e: f\ng:", {"a": ["b", {"c": "d", "e": "f"}], "g": None}),
        ("a: [b, 'c d',\n  {e: f, g}, ]", {"a": ["b", "c d", {"e": "f", "g": None}]}),
        ("a: one\n  two\n\n  three\nb: x#y:z", {"a": "one two\nthree", "b": "x#y:z"}),
        ('a: "one\n  two \\\n  three\\x21"', {"a": "one two three!"}),
        ("'a b' : 'it''s'", {"a b": "it's"}),
    ],
)
def test_values_of_documents(text: str, expected: object) -> None:
    def texts(value: YamlValue) -> object:
        if isinstance(value, Scalar):
            return value.text
        if isinstance(value, list):
            return [texts(item) for item in value]
        return {key: texts(item) for key, item in value.items()} if isinstance(value, dict) else None

    assert texts(read_yaml(text.encode())) == expected
    assert agrees(text.encode())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: |\n  b", "line 1: texts that start with"),
        ("a:\n  ? b", "line 2: a value does not start with this character"),
        ("%YAML 1.1\n---\na: b", "line 1: a value does not start"),
        ("a: b: c", "line 1: unexpected text after a value"),
        ("a: 'b' c", "line 1: unexpected text after a value"),
        ("a: b\n c: d", "line 2: unexpected text after a value"),
        ("a:\n  b: c\n d: e", "line 3: wrong indentation"),
        ("a: b\n  - c: d", "line 2: unexpected text"),
        ("- a\nb: c", "line 2: wrong indentation, or text after the end"),
        ("a: b\nc", "line 2: expected a key and a colon"),
        ("a: [b: c]", "expected a comma or ]"),
        ("a: [b?c]", "a question mark or a colon inside of brackets"),
        ("a: {b\n: c}", "line 2: a key and its colon are on different lines"),
        ("{[a]: b}", "a key is not text"),
        ("~: b", "a key is not text"),
        ("a: [b\n", "line 2: a bracket is not closed"),
        ("a: [b\n---\n]", "line 2: a bracket is not closed"),
        ("a: 'b", "a quoted text is not closed"),
        ('a: "b\\"', "a quoted text is not closed"),
        ("a: 'b\n--- c'", "line 2: a document ends inside of a quoted text"),
        ('a: "\\q"', "an unknown escape"),
        ('a: "\\ud800"', "an escape of an invalid character"),
        ('a: "\\UFFFFFFFF"', "an escape of an invalid character"),
        ("a:\tb", "a tab outside of quotes"),
        ("a: 'b'#c", "a comment needs a space"),
        ("a: b\rc: d", "line 1: a control character or an unusual line break"),
        ("a: b\nc: \x85", "line 2: a control character or an unusual line break"),
        ("k" * 1024 + ": a", "a key of more than 1024 bytes"),
        ("a: b\n...\nc: d", "text after the end of the document"),
    ],
)
def test_refusals_name_line_and_reason(text: str, problem: str) -> None:
    with pytest.raises(BadYaml) as refused:
        read_yaml(text.encode())
    assert problem in str(refused.value)


def test_text_that_is_not_utf8_is_refused() -> None:
    for data in ("a: b".encode("utf-16"), b"a: \xff", b"a: " + b"x" * 70_000 + b"\xc3"):
        with pytest.raises(BadYaml, match=r"not UTF-8|control character"):
            read_yaml(data)


def test_more_values_than_the_maximum_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_subset, "_NODES_MAX", 1000)
    assert len(read_yaml(b"[" + b"a," * 999 + b"]")) == 999
    with pytest.raises(BadYaml, match="too many values"):
        read_yaml(b"[" + b"a," * 1000 + b"]")


def test_lines_of_scalars_are_counted_through_every_kind_of_line_break() -> None:
    value = read_yaml(b'# 1\n\na: "x\n  y"\nb: u\n  v\n\nc: [1,\n\n 2]\nd: e')
    assert isinstance(value, dict)
    assert [item.line if isinstance(item, Scalar) else 0 for item in value.values()] == [3, 5, 0, 11]


@pytest.mark.parametrize(
    ("raw", "expected"), [("a\\\\\n b", "a\\ b"), ("a\\ \n b", "a  b"), ("\n\n", "\n"), ("a  ", "a  ")]
)
def test_double_quoted_lines_are_folded(raw: str, expected: str) -> None:
    assert unquoted(raw, '"') == expected
