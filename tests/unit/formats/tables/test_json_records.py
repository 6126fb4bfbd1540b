from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import ClassVar

import pytest

from orbitlog.errors import BadField
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.tables.json_records import (
    BOOL,
    INT,
    INT_KEY,
    LONG,
    TEXT,
    TEXT_KEY,
    Computed,
    JsonFile,
    JsonRecord,
    decode_record,
    encode_record,
    java,
    json_record,
    list_of,
    map_of,
    optional,
    record,
)
from orbitlog.formats.tables.loose_json import Json


@json_record
class Leaf(JsonRecord):
    size: int = field(default=7, metadata=java("size", INT))


@json_record
class Bean(JsonRecord):
    name: str = field(metadata=java("beanName", TEXT))
    flag: bool = field(default=False, metadata=java("flag", BOOL))
    total: int = field(default=0, metadata=java("total", LONG, since_5x=True))
    note: str | None = field(default=None, metadata=java("note", optional(TEXT)))
    leaves: tuple[Leaf, ...] = field(default=(), metadata=java("leaves", list_of(record(Leaf))))
    by_id: Mapping[int, str] = field(default_factory=dict, metadata=java("byId", map_of(INT_KEY, TEXT)))
    by_name: Mapping[str, int] = field(default_factory=dict, metadata=java("byName", map_of(TEXT_KEY, INT)))

    COMPUTED: ClassVar[Mapping[str, Computed]] = {"leafCount": Computed("leaf_count")}

    @property
    def leaf_count(self) -> int:
        return len(self.leaves)


def decode(value: Json) -> Bean:
    return decode_record(Bean, value, "file")


def test_names_defaults_and_order() -> None:
    bean = decode({"beanName": "b", "leaves": [{"size": 1}, {}], "byId": {3: "x", "4": "y"}, "byName": {5: 1}})
    assert bean == Bean("b", leaves=(Leaf(1), Leaf(7)), by_id={3: "x", 4: "y"}, by_name={"5": 1})
    written = encode_record(bean, COMPAT_5_5)
    assert list(written) == ["beanName", "byId", "byName", "flag", "leafCount", "leaves", "note", "total"]
    assert written["leafCount"] == 2
    assert written["byId"] == {3: "x", 4: "y"}


def test_unknown_fields_are_kept_in_order_and_our_own_win() -> None:
    bean = decode({"beanName": "b", "later": {"x": [1]}, 0: "odd", "leafCount": 99})
    assert bean.unknown == {"later": {"x": [1]}, 0: "odd"}
    written = encode_record(bean, COMPAT_4_9)
    assert list(written) == [0, "beanName", "byId", "byName", "flag", "later", "leafCount", "leaves", "note"]
    assert encode_record(Bean("b", unknown={"beanName": "other", "leafCount": 5}), COMPAT_4_9)["beanName"] == "b"


def test_null_means_not_given() -> None:
    assert decode({"beanName": "b", "flag": None, "note": None, "byId": {1: None}}) == Bean("b")
    with pytest.raises(BadField, match=r"file\.beanName at byte 0: is missing"):
        decode({"beanName": None})


def test_what_fastjson_casts() -> None:
    bean = decode({"beanName": "b", "flag": "true", "total": "-5"})
    assert bean == Bean("b", flag=True, total=-5)
    assert decode({"beanName": "b", "flag": "false"}).flag is False


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("beanName", 5, "file.beanName"),
        ("flag", 1, "file.flag"),
        ("total", True, "file.total"),
        ("total", 1.0, "file.total"),
        ("total", "", "file.total"),
        ("total", "1" * 30, "file.total"),
        ("total", {}, "file.total"),
        ("leaves", {}, "file.leaves"),
        ("leaves", [{}, {"size": 2**31}], "file.leaves[1].size"),
        ("leaves", [None], "file.leaves[0]"),
        ("byId", {"x": "y"}, "file.byId"),
        ("byId", [], "file.byId"),
        ("byName", {"a": "b"}, "file.byName.a"),
    ],
)
def test_errors_name_the_path(name: str, value: Json, path: str) -> None:
    with pytest.raises(BadField) as caught:
        decode({"beanName": "b", name: value})
    assert caught.value.field == path


@pytest.mark.parametrize("text", ["[]", "5", "null", '"x"'])
def test_a_file_holds_a_map(text: str) -> None:
    with pytest.raises(BadField, match="is not a map"):
        JsonFile("f", Leaf).decode(text)


def test_a_compact_file() -> None:
    file = JsonFile("f", Leaf, pretty=False)
    assert file.encode(Leaf(1), COMPAT_5_5) == '{"size":1}'
    assert file.decode('{"size":1}') == Leaf(1)


def test_a_record_is_what_a_frozen_dataclass_is() -> None:
    """Its methods stand once, in `JsonRecord`; they do what the generated ones would."""

    @dataclass(frozen=True, slots=True)
    class Plain:
        number: int
        names: list[str] = field(default_factory=list)

    @json_record
    class Record(JsonRecord):
        number: int
        names: list[str] = field(default_factory=list)

    for kind in (Plain, Record):
        made = kind(3, names=["a"])
        assert made == kind(number=3, names=["a"]) != kind(3)
        assert kind(3) == kind(3) and kind(3).names is not kind(3).names
        assert replace(made, number=4) == kind(4, ["a"])
        assert "number=3, names=['a']" in repr(made)
        assert copy.deepcopy(made) == made and copy.copy(made) == made
        wrong: list[tuple[tuple[object, ...], dict[str, int]]] = [((), {}), ((1, [], 2), {}), ((1,), {"number": 2})]
        for values, named in [*wrong, ((1,), {"other": 2})]:
            with pytest.raises(TypeError):
                kind(*values, **named)  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            made.number = 5  # type: ignore[misc]
        with pytest.raises(FrozenInstanceError):
            del made.number  # type: ignore[misc]
    assert Record(3, unknown={"x": 1}) != Record(3)
    assert Record(3) != Plain(3)
