"""SQL filter cases with the answers of Java."""

from __future__ import annotations

import json
from pathlib import Path

from orbitlog.errors import BadExpression
from orbitlog.filters.sql_filter import SqlFilter
from tests.support.sql_cases import PROPERTIES

JAVA_ANSWERS: dict[str, str] = json.loads(Path(__file__).with_name("java_answers.json").read_text())
LETTERS = {True: "t", False: "f", None: "n"}
WORDS = [
    *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"),
    *("a", "b", "zz", "1", "0", "2.5", "1L", "'x'", "''", "(", ")", ",", "=", "<>", "<", "<=", ">", ">=", "+", "-"),
    *("--", "/*", "*/", "\n", "#", "'", ".", "1e999", "99999999999999999999"),
]


def our_answer(expression: str) -> str:
    try:
        compiled = SqlFilter(expression)
    except BadExpression:
        return "refused"
    return "".join(letter(compiled, properties) for properties in PROPERTIES)


def letter(compiled: SqlFilter, properties: dict[str, str]) -> str:
    try:
        return LETTERS[compiled.answer(properties)]
    except ValueError:
        return "x"
