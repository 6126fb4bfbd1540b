"""Selection of list rows: filters by words and columns, sorting with unknown values last, and pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orbitlog.console.views.answers import ConsoleError, ListQuery

Row = TypeVar("Row")
_CONDITION = re.compile(r"(?P<column>[A-Za-z]+):(?P<sign>[<>]?)(?P<value>.+)")


@dataclass(frozen=True, slots=True)
class Selection(Generic[Row]):
    """The rows of one page, the number of all matching rows, and the start of the next page."""

    rows: list[Row]
    total: int
    next: str | None


def select(rows: Iterable[Row], query: ListQuery, columns: Sequence[str], default_sort: str) -> Selection[Row]:
    """Return the page that the query asks for; raise `ConsoleError` for an unknown column or page."""
    chosen = [row for row in rows if all(test(row) for test in _tests(query.q, columns))]
    sort = query.sort or default_sort
    column, descending = sort.removeprefix("-"), sort.startswith("-")
    if column not in columns:
        raise ConsoleError(400, f"unknown column {column!r} to sort by; columns are {', '.join(columns)}")
    known = [row for row in chosen if _value(row, column) is not None]
    unknown = [row for row in chosen if _value(row, column) is None]
    known.sort(key=lambda row: _sort_key(_value(row, column)), reverse=descending)
    ordered = known + unknown
    if query.after and not query.after.isdecimal():
        raise ConsoleError(400, "`after` is not a page of this list; take it from `next` of the page before")
    start = int(query.after or 0)
    end = start + query.limit
    return Selection(ordered[start:end], len(ordered), str(end) if end < len(ordered) else None)


def _tests(text: str, columns: Sequence[str]) -> list[Callable[[Any], bool]]:
    return [_test(word, columns) for word in text.split()]


def _test(word: str, columns: Sequence[str]) -> Callable[[Any], bool]:
    match = _CONDITION.fullmatch(word)
    if match is None:
        return lambda row: word.casefold() in str(_value(row, columns[0])).casefold()
    column, sign, value = match["column"], match["sign"], match["value"]
    if column not in columns:
        raise ConsoleError(400, f"unknown column {column!r} in the filter; columns are {', '.join(columns)}")
    if not sign:
        return lambda row: value.casefold() in str(_value(row, column)).casefold()
    try:
        limit = float(value)
    except ValueError:
        raise ConsoleError(400, f"{value!r} is not a number in the filter {word!r}") from None

    def compare(row: Any) -> bool:
        number = _value(row, column)
        if not isinstance(number, int | float):
            return False
        return number > limit if sign == ">" else number < limit

    return compare


def _value(row: Any, column: str) -> Any:
    return getattr(row, re.sub(r"([A-Z])", lambda match: "_" + match[1].lower(), column))


def _sort_key(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value
