"""Nodes of a compiled SQL92 expression: functions of a message's properties, with Java's types and null logic.

All types are known when an expression is compiled, because a property is always text, so each comparison is compiled
for its two types. A truth value is True, False or None (unknown). A `ValueError` during evaluation corresponds to
Java's exception: the message does not match.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orbitlog.filters import java_numbers as numbers

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]
Truth = Callable[[Properties], "bool | None"]


class Kind(enum.Enum):
    """Java's class of a value."""

    TEXT = "String"
    INTEGER = "Integer"
    LONG = "Long"
    DOUBLE = "Double"
    BOOLEAN = "Boolean"
    NULL = "null"


NUMBERS = frozenset((Kind.INTEGER, Kind.LONG, Kind.DOUBLE))
_PARSERS: dict[Kind, Callable[[str], Any]] = {
    Kind.INTEGER: numbers.parse_integer,
    Kind.LONG: numbers.parse_long,
    Kind.DOUBLE: numbers.parse_double,
    Kind.BOOLEAN: numbers.parse_boolean,
}


@dataclass(frozen=True, slots=True)
class Node:
    """A node that evaluates to a value of one kind, or null.

    `is_constant` and `name` record how it was written, on which Java's rules depend. `depth` is the nesting depth.
    """

    kind: Kind
    evaluate: Evaluate
    is_constant: bool = False
    name: str | None = None
    depth: int = 1

    @property
    def is_boolean(self) -> bool:
        return self.kind is Kind.BOOLEAN or (self.kind is Kind.NULL and self.is_constant)


def constant(kind: Kind, value: object) -> Node:
    return Node(kind, lambda _: value, is_constant=True)


def property_named(name: str) -> Node:
    return Node(Kind.TEXT, lambda properties: properties.get(name), name=name)


def truth(evaluate: Truth, *parts: Node) -> Node:
    return Node(Kind.BOOLEAN, evaluate, depth=1 + max(part.depth for part in parts))


def negated(part: Node) -> Node:
    """Return the negated number; Java makes null of anything else."""
    depth = part.depth + 1
    if part.kind not in NUMBERS:
        return Node(Kind.NULL, lambda _: None, depth=depth)
    evaluate = part.evaluate
    return Node(part.kind, lambda properties: -evaluate(properties), depth=depth)


def boolean_cast(part: Node) -> Node:
    """Return a property as a condition: text is never true."""
    evaluate = part.evaluate
    return truth(lambda properties: None if evaluate(properties) is None else False, part)


def opposite(part: Node) -> Node:
    evaluate = part.evaluate

    def is_not(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return truth(is_not, part)


def any_of(parts: list[Node]) -> Node:
    evaluations = [part.evaluate for part in parts]

    def is_any(properties: Properties) -> bool | None:
        answer: bool | None = False
        for evaluate in evaluations:
            value = evaluate(properties)
            if value:
                return True
            if value is None:
                answer = None
        return answer

    return truth(is_any, *parts)


def all_of(parts: list[Node]) -> Node:
    evaluations = [part.evaluate for part in parts]

    def is_all(properties: Properties) -> bool | None:
        answer: bool | None = True
        for evaluate in evaluations:
            value = evaluate(properties)
            if value is None:
                answer = None
            elif not value:
                return False
        return answer

    return truth(is_all, *parts)


def equal(left: Node, right: Node) -> Node:
    left_value, right_value, compare = left.evaluate, right.evaluate, comparison(left.kind, right.kind)

    def is_equal(properties: Properties) -> bool | None:
        first, second = left_value(properties), right_value(properties)
        if first is None:
            return True if second is None else None
        if second is None:
            return False
        return compare(first, second) == 0

    return truth(is_equal, left, right)


def ordered(left: Node, right: Node, accepts: Callable[[int], bool]) -> Node:
    """Return one of the four order comparisons; two texts are compared as numbers."""
    left_value, right_value, compare = left.evaluate, right.evaluate, comparison(left.kind, right.kind)
    if left.kind is right.kind is Kind.TEXT:
        compare = _compare_texts_as_doubles

    def is_ordered(properties: Properties) -> bool | None:
        first = left_value(properties)
        if first is None:
            return None
        second = right_value(properties)
        return None if second is None else accepts(compare(first, second))

    return truth(is_ordered, left, right)


def member_of(part: Node, texts: list[str], *, negative: bool) -> Node:
    evaluate, wanted = part.evaluate, frozenset(texts)

    def is_member(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else (value in wanted) != negative

    return truth(is_member, part)


def text_test(part: Node, test: Callable[[str], bool], *, searched: str, negative: bool) -> Node:
    """Return CONTAINS, STARTSWITH or ENDSWITH: false, even negated, for an empty search or a value that is not text."""
    evaluate = part.evaluate
    if not searched or part.kind is not Kind.TEXT:
        return truth(lambda _: False, part)

    def passes(properties: Properties) -> bool:
        value = evaluate(properties)
        return value is not None and test(value) != negative

    return truth(passes, part)


def comparison(left: Kind, right: Kind) -> Callable[[Any, Any], int]:
    """Return Java's comparison of two kinds: negative, zero or positive; always negative for unrelated kinds."""
    if left is right:
        return numbers.compare_doubles if left is Kind.DOUBLE else _compare
    kinds = {left, right}
    if kinds <= NUMBERS:
        return _compare_as_doubles if Kind.DOUBLE in kinds else _compare
    if left is Kind.BOOLEAN and right is Kind.TEXT:
        return _refuse  # Java throws a ClassCastException here
    if right is Kind.TEXT and left in _PARSERS:
        parse_right, compare = _PARSERS[left], comparison(left, left)
        return lambda first, second: compare(first, parse_right(second))
    if left is Kind.TEXT and right in _PARSERS:
        parse_left, compare = _PARSERS[right], comparison(right, right)
        return lambda first, second: compare(parse_left(first), second)
    return lambda first, second: -1


def _compare(first: Any, second: Any) -> int:
    return int(first > second) - int(first < second)


def _compare_as_doubles(first: float, second: float) -> int:
    return numbers.compare_doubles(float(first), float(second))


def _compare_texts_as_doubles(first: str, second: str) -> int:
    return numbers.compare_doubles(numbers.parse_double(first), numbers.parse_double(second))


def _refuse(first: object, second: object) -> int:
    raise ValueError(f"{first} cannot be compared with {second!r}")
