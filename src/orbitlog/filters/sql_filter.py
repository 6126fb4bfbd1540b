"""SQL92 filters: an expression is compiled once and evaluated for every message."""

from __future__ import annotations

from orbitlog.filters.sql_nodes import Properties
from orbitlog.filters.sql_parser import parse_expression


class SqlFilter:
    """A compiled expression; raises `BadExpression` if it is invalid.

    >>> SqlFilter("price BETWEEN 10 AND 20 AND colour IN ('red', 'blue')").matches({"price": "12", "colour": "red"})
    True
    """

    __slots__ = ("_evaluate", "expression")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._evaluate = parse_expression(expression).evaluate

    def matches(self, properties: Properties) -> bool:
        """Return whether a message with these properties matches; unknown results and invalid comparisons do not."""
        try:
            return self._evaluate(properties) is True
        except ValueError:
            return False

    def answer(self, properties: Properties) -> bool | None:
        """Return True, False or None (unknown); raise `ValueError` if the values are not comparable."""
        value = self._evaluate(properties)
        return value if value is None else bool(value)
