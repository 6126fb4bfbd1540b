"""Dataclasses whose methods are compiled at their first call do what others do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field, replace
from typing import Any

import pytest

from orbitlog.cli.light_dataclasses import compile_dataclass_methods_lazily

pytestmark = pytest.mark.skipif(
    not hasattr(dataclasses, "_create_fn"), reason="compiles what belongs to a class at once"
)


@pytest.fixture(autouse=True)
def _light() -> Iterator[None]:
    with compile_dataclass_methods_lazily():
        yield


def is_placeholder(kind: type, name: str) -> bool:
    return bool(kind.__dict__[name].__code__.co_name == "placeholder")


@pytest.fixture
def point() -> Any:
    @dataclass(frozen=True, slots=True, order=True)
    class Point:
        x: int
        y: int = 7
        seen: list[int] = field(default_factory=list, compare=False, repr=False)

    return Point


def test_each_method_is_compiled_at_its_first_call_and_once(point: Any) -> None:
    assert all(is_placeholder(point, name) for name in ("__init__", "__eq__", "__hash__", "__lt__", "__setattr__"))
    one = point(1)
    assert not is_placeholder(point, "__init__") and is_placeholder(point, "__eq__")
    compiled = point.__init__
    assert point(2).x == 2 and point.__init__ is compiled
    assert compiled.__qualname__.endswith("Point.__init__") and compiled.__name__ == "__init__"
    assert one == point(1) and not is_placeholder(point, "__eq__")


def test_they_do_what_others_do(point: Any) -> None:
    assert (point(1).y, point(1, 2).y, point(y=3, x=1).y) == (7, 2, 3)
    assert point(1) == point(1) != point(2) and point(1) != 1
    assert point(1) < point(1, 8) <= point(2) and {point(1): "a"}[point(1)] == "a"
    assert repr(point(1)).endswith("Point(x=1, y=7)")
    assert point(1).seen is not point(1).seen
    assert replace(point(1), y=2) == point(1, 2) and copy.copy(point(1)) == point(1)
    assert [each.name for each in dataclasses.fields(point)] == ["x", "y", "seen"]
    for wrong in (lambda: point(), lambda: point(1, z=2), lambda: point(1) < 1):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(FrozenInstanceError):
        point(1).x = 2
    with pytest.raises(FrozenInstanceError):
        del point(1).x


def test_classes_below_have_the_methods_of_those_above() -> None:
    @dataclass
    class Above:
        x: int

        def __post_init__(self) -> None:
            self.twice = 2 * self.x

    @dataclass(init=False)
    class Below(Above):
        y: int = 1

    class Undecorated(Above):
        pass

    assert Undecorated(2).twice == 4 and not is_placeholder(Above, "__init__")
    below = Below(3)
    assert (below.twice, below.y, below == Below(3)) == (6, 1, True)
    assert "__init__" not in Undecorated.__dict__ and "__init__" not in Below.__dict__


def test_instances_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = dataclasses.make_dataclass("Kept", [("x", int)], frozen=True, slots=True)
    kind.__module__ = __name__
    monkeypatch.setattr(sys.modules[__name__], "Kept", kind, raising=False)
    assert pickle.loads(pickle.dumps(kind(4))) == kind(4)


def test_classes_made_outside_of_the_block_are_as_ever() -> None:
    before = dataclasses._create_fn  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError), compile_dataclass_methods_lazily():
        assert dataclasses._create_fn is not before  # type: ignore[attr-defined]
        raise ZeroDivisionError
    assert dataclasses._create_fn is before  # type: ignore[attr-defined]
