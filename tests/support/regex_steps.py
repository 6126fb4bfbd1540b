"""Steps of a regular expression: how many attempts a backtracking matcher makes for a text, counted in Python.

Python's own matcher runs inside one C function, so its work cannot be counted from outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

Then = Callable[[int], bool]
_CATEGORIES = {
    op.CATEGORY_DIGIT: str.isdecimal,
    op.CATEGORY_NOT_DIGIT: lambda letter: not letter.isdecimal(),
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda letter: not letter.isspace(),
    op.CATEGORY_WORD: lambda letter: letter.isalnum() or letter == "_",
    op.CATEGORY_NOT_WORD: lambda letter: not (letter.isalnum() or letter == "_"),
}
_SINGLE = frozenset((op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN))


class TooManySteps(Exception):
    """The limit was exceeded."""


class UnknownPart(Exception):
    """The pattern has a part that is not counted."""


def letters_of(pattern: re.Pattern[str]) -> list[str]:
    """Return letters that the pattern mentions, and some that it may not."""
    found = {"x", "1", " ", "é"}

    def look(nodes: Any) -> None:
        if isinstance(nodes, tuple) and len(nodes) == 2 and nodes[0] in (op.LITERAL, op.NOT_LITERAL):
            found.add(chr(nodes[1]))
        elif isinstance(nodes, tuple) and len(nodes) == 2 and nodes[0] is op.RANGE:
            found.update(map(chr, nodes[1]))
        elif isinstance(nodes, tuple | list | parser.SubPattern):
            for node in nodes:
                look(node)

    look(parser.parse(pattern.pattern, pattern.flags))
    return sorted(found)


def regex_steps(pattern: re.Pattern[str], text: str, limit: int) -> int:
    """Return the steps of `pattern.fullmatch(text)`; raise `TooManySteps` over the limit."""
    counter = _Counter(text, bool(pattern.flags & re.IGNORECASE), limit)
    counter.run(list(parser.parse(pattern.pattern, pattern.flags)), 0, 0, lambda position: position == len(text))
    return counter.count


class _Counter:
    def __init__(self, text: str, ignores_case: bool, limit: int) -> None:
        self._text = text.lower() if ignores_case else text
        self._ignores_case = ignores_case
        self._limit = limit
        self.count = 0

    def run(self, nodes: Sequence[Any], index: int, position: int, then: Then) -> bool:
        """Return whether the nodes from `index` on match at `position`, and what follows them matches as well."""
        self._step()
        if index == len(nodes):
            return then(position)
        kind, argument = nodes[index]

        def following(next_position: int) -> bool:
            return self.run(nodes, index + 1, next_position, then)

        if kind in _SINGLE:
            return self._fits(kind, argument, position) and following(position + 1)
        if kind is op.SUBPATTERN:
            return self.run(list(argument[3]), 0, position, following)
        if kind is op.BRANCH:
            return any(self.run(list(branch), 0, position, following) for branch in argument[1])
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, repeated = argument
            return self._repeat(list(repeated), (least, most), position, following, is_greedy=kind is op.MAX_REPEAT)
        if kind is op.POSSESSIVE_REPEAT:
            return self._possess(list(argument[2]), argument[:2], position, following)
        if kind is op.ATOMIC_GROUP:
            end = self._end_of(list(argument), position)
            return end is not None and following(end)
        if kind in (op.ASSERT, op.ASSERT_NOT):
            start = position if argument[0] == 1 else position - argument[1].getwidth()[0]
            is_met = start >= 0 and self._end_of(list(argument[1]), start) is not None
            return is_met == (kind is op.ASSERT) and following(position)
        if kind is op.AT:
            at_end = argument in (op.AT_END, op.AT_END_STRING)
            return position == (len(self._text) if at_end else 0) and following(position)
        raise UnknownPart(str(kind))

    def _step(self) -> None:
        self.count += 1
        if self.count > self._limit:
            raise TooManySteps

    def _fits(self, kind: Any, argument: Any, position: int) -> bool:
        self._step()
        if position >= len(self._text):
            return False
        letter = self._text[position]
        if kind is op.ANY:
            return letter != "\n"
        if kind is op.IN:
            is_negated = argument[0][0] is op.NEGATE
            return any(self._in(item, letter) for item in argument if item[0] is not op.NEGATE) != is_negated
        return (letter == self._plain(argument)) == (kind is op.LITERAL)

    def _in(self, item: Any, letter: str) -> bool:
        kind, argument = item
        if kind is op.LITERAL:
            return letter == self._plain(argument)
        if kind is op.RANGE:
            both = (letter, letter.upper()) if self._ignores_case else (letter,)
            return any(argument[0] <= ord(each) <= argument[1] for each in both if len(each) == 1)
        return bool(_CATEGORIES[argument](letter))

    def _plain(self, code: int) -> str:
        return chr(code).lower() if self._ignores_case else chr(code)

    def _repeat(self, nodes: list[Any], bounds: tuple[int, int], position: int, then: Then, *, is_greedy: bool) -> bool:
        least, most = bounds
        if is_greedy and len(nodes) == 1 and nodes[0][0] in _SINGLE:
            found = 0
            while found < most and self._fits(nodes[0][0], nodes[0][1], position + found):
                found += 1
            return any(then(position + count) for count in range(found, least - 1, -1))

        def more(count: int, at: int) -> bool:
            def again() -> bool:
                return count < most and self.run(nodes, 0, at, lambda end: end > at and more(count + 1, end))

            def enough() -> bool:
                return count >= least and then(at)

            return again() or enough() if is_greedy else enough() or again()

        return more(0, position)

    def _possess(self, nodes: list[Any], bounds: tuple[int, int], position: int, then: Then) -> bool:
        least, most = bounds
        count = 0
        while count < most and (end := self._end_of(nodes, position)) is not None and end > position:
            position, count = end, count + 1
        return count >= least and then(position)

    def _end_of(self, nodes: list[Any], position: int) -> int | None:
        """Return where the nodes end if they match; what follows does not change it."""
        ends: list[int] = []

        def take(end: int) -> bool:
            ends.append(end)
            return True

        return ends[0] if self.run(nodes, 0, position, take) else None
