"""SQL92 filters, as brokers run them: compiled once, asked for every message."""

from __future__ import annotations

from orbitlog.filters.sql_nodes import Properties
from orbitlog.filters.sql_parser import parse_expression


class SqlFilter:
    """One compiled expression; raises `BadExpression` for what is none.

    >>> SqlFilter("price BETWEEN 10 AND 20 AND colour IN ('red', 'blue')").matches({"price": "12", "colour": "red"})
    True
    """

    __slots__ = ("_evaluate", "expression")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._evaluate = parse_expression(expression).evaluate

    def matches(self, properties: Properties) -> bool:
        """Tell whether a message with these properties is wanted: unknown and nonsense are not."""
        try:
            return self._evaluate(properties) is True
        except ValueError:
            return False

    def answer(self, properties: Properties) -> bool | None:
        """Return the truth with its third value; a `ValueError` says that the values cannot be compared."""
        value = self._evaluate(properties)
        return value if value is None else bool(value)
