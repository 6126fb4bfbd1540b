"""Tokenizer of SQL92 filter expressions, as in Java's SelectorParser: the longest match wins.

Tokens are produced on demand: as in Java, text after a complete expression is never tokenized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from orbitlog.errors import BadExpression

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
END = "end"
NAME, STRING, WHOLE, FLOATING = "name", "string", "whole", "floating"

# Alternatives are ordered longest first if two could match at one position.
_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\n\r\f]++ | --[^\n\r]*+(?:\r\n|\n|\r) | /\*[^*]*+\*(?:\*|[^*/][^*]*+\*)*+/)
    | (?P<floating>[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)? | \.[0-9]++(?:[eE][+-]?[0-9]++)? | [0-9]++[eE][+-]?[0-9]++)
    | (?P<whole>0|[1-9][0-9]*+[lL]?)
    | (?P<string>'(?:''|[^'])*+')
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*+)
    | (?P<sign><>|>=|<=|[=><(),+-])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """`kind` is a keyword in capitals, a sign as it is written, or one of the kinds above."""

    kind: str
    text: str
    position: int


def cut_tokens(expression: str) -> Iterator[Token]:
    """Yield the tokens of an expression, then END forever."""
    position = 0
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            raise BadExpression(f"{expression[position]!r} is not valid in SQL92", expression, position)
        kind, text = str(match.lastgroup), match.group()
        if kind == "sign":
            yield Token(text, text, position)
        elif kind == NAME and text.upper() in KEYWORDS:
            yield Token(text.upper(), text, position)
        elif kind != "space":
            yield Token(kind, text, position)
        position = match.end()
    while True:
        yield Token(END, "", len(expression))
