"""Words of a SQL92 filter expression, cut as Java's SelectorParser cuts them: the longest match wins.

Tokens are made one at a time, as the parser asks for them: what stands behind the end of an expression is never
looked at, by Java neither.
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

# Alternatives stand longest first wherever two could match at one place.
_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)
    | (?P<floating>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+)
    | (?P<whole>0|[1-9][0-9]*[lL]?)
    | (?P<string>'(?:''|[^'])*')
    | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
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
    """Cut an expression into tokens; the last one is the end, again and again."""
    position = 0
    while position < len(expression):
        found = _TOKEN.match(expression, position)
        if found is None:
            raise BadExpression(f"{expression[position]!r} is no part of SQL92", expression, position)
        kind, text = str(found.lastgroup), found.group()
        if kind == "sign":
            yield Token(text, text, position)
        elif kind == NAME and text.upper() in KEYWORDS:
            yield Token(text.upper(), text, position)
        elif kind != "space":
            yield Token(kind, text, position)
        position = found.end()
    while True:
        yield Token(END, "", len(expression))
