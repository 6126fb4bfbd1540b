"""Parser of SQL92 filter expressions, with the grammar and the oddities of Java's SelectorParser.

Nothing is evaluated as code: an expression becomes nested functions over a message's properties. Length and nesting are
limited, which bounds the cost of an expression.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitlog.errors import BadExpression
from orbitlog.filters import java_numbers as numbers
from orbitlog.filters import sql_nodes as nodes
from orbitlog.filters.sql_nodes import NUMBERS, Kind, Node
from orbitlog.filters.sql_tokens import END, FLOATING, NAME, STRING, WHOLE, Token, cut_tokens

EXPRESSION_CHARACTERS_MAX = 16 * 1024
NESTING_MAX = 64

_ORDERS: dict[str, Callable[[int], bool]] = {
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
}
_TEXT_TESTS = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))
_NEGATABLE = _TEXT_TESTS | {"BETWEEN", "IN"}


def parse_expression(expression: str) -> Node:
    """Compile an expression to a boolean node; raise `BadExpression` if it is invalid."""
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise BadExpression(f"longer than {EXPRESSION_CHARACTERS_MAX} characters", expression)
    return _Parser(expression).parse()


class _Parser:
    """A recursive descent parser with two tokens of look-ahead."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = cut_tokens(expression)
        self._ahead: list[Token] = []
        self._nesting = 0

    def parse(self) -> Node:
        # Java's grammar does not require the end of input: anything after a complete expression is ignored.
        return self._boolean(self._either())

    # Tokens

    def _peek(self, distance: int = 0) -> Token:
        while len(self._ahead) <= distance:
            self._ahead.append(next(self._tokens))
        return self._ahead[distance]

    def _take(self, kind: str | None = None) -> Token:
        token = self._peek()
        if kind is not None and token.kind != kind:
            raise self._error(f"{kind} expected instead of {token.text or END!r}", token)
        return self._ahead.pop(0)

    def _error(self, problem: str, token: Token | None = None) -> BadExpression:
        position = (token or self._peek()).position
        return BadExpression(problem, self._expression, position)

    def _checked(self, node: Node) -> Node:
        if node.depth > NESTING_MAX:
            raise self._error(f"nests deeper than {NESTING_MAX}")
        return node

    def _boolean(self, node: Node) -> Node:
        if node.is_boolean:
            return node
        if node.name is not None:
            return nodes.boolean_cast(node)
        raise self._error("expected a condition instead of a value")

    # The grammar, weakest binding first

    def _either(self) -> Node:
        return self._chain("OR", self._both, nodes.any_of)

    def _both(self) -> Node:
        return self._chain("AND", self._equality, nodes.all_of)

    def _chain(self, kind: str, operand: Callable[[], Node], join: Callable[[list[Node]], Node]) -> Node:
        """Parse operands with one operator between them; a single operand need not be a condition."""
        parts = [operand()]
        while self._peek().kind == kind:
            self._take()
            parts.append(operand())
        return parts[0] if len(parts) == 1 else self._checked(join(list(map(self._boolean, parts))))

    def _equality(self) -> Node:
        left = self._comparison()
        while (kind := self._peek().kind) in {"=", "<>", "IS"}:
            self._take()
            if kind == "IS":
                left = self._null_test(left)
            else:
                same = self._equal(left, self._comparison())
                left = same if kind == "=" else nodes.opposite(same)
            self._checked(left)
        return left

    def _null_test(self, left: Node) -> Node:
        is_negative = self._peek().kind == "NOT"
        if is_negative:
            self._take()
        self._take("NULL")
        is_null = nodes.equal(left, nodes.constant(Kind.NULL, None))
        return nodes.opposite(is_null) if is_negative else is_null

    def _equal(self, left: Node, right: Node) -> Node:
        for side in (left, right):
            if side.is_constant and side.kind is Kind.NULL:
                raise self._error("NULL is compared with IS NULL")
        if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
            raise self._error("TRUE and FALSE can be compared only with booleans")
        return nodes.equal(left, right)

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            kind = self._peek().kind
            if kind in _ORDERS:
                self._take()
                left = self._order(left, kind, self._unary())
            elif kind in _NEGATABLE:
                left = self._special(left, negative=False)
            elif kind == "NOT":
                if self._peek(1).kind not in _NEGATABLE:
                    raise self._error("NOT must be followed by IN, BETWEEN, CONTAINS, STARTSWITH or ENDSWITH here")
                self._take()
                left = self._special(left, negative=True)
            else:
                return left
            self._checked(left)

    def _special(self, left: Node, *, negative: bool) -> Node:
        kind = self._take().kind
        if kind == "BETWEEN":
            return self._between(left, negative=negative)
        if kind == "IN":
            return self._membership(left, negative=negative)
        searched = self._text()
        test = {
            "CONTAINS": lambda value: searched in value,
            "STARTSWITH": lambda value: value.startswith(searched),
            "ENDSWITH": lambda value: value.endswith(searched),
        }[kind]
        return nodes.text_test(left, test, searched=searched, negative=negative)

    def _order(self, left: Node, kind: str, right: Node) -> Node:
        for side in (left, right):
            if side.is_boolean or (side.is_constant and side.kind not in NUMBERS):
                raise self._error(f"only numbers can be compared by {kind}")
        return nodes.ordered(left, right, _ORDERS[kind])

    def _between(self, value: Node, *, negative: bool) -> Node:
        low = self._unary()
        self._take("AND")
        high = self._unary()
        if negative:
            return nodes.any_of([self._order(value, "<", low), self._order(value, ">", high)])
        within = nodes.all_of([self._order(value, ">=", low), self._order(value, "<=", high)])
        if low.is_constant and high.is_constant:
            compare = nodes.comparison(high.kind, low.kind)
            if compare(high.evaluate({}), low.evaluate({})) < 0:
                raise self._error("BETWEEN needs its lower bound first")
        return within

    def _membership(self, left: Node, *, negative: bool) -> Node:
        self._take("(")
        texts = [self._text()]
        while self._peek().kind == ",":
            self._take()
            texts.append(self._text())
        self._take(")")
        if left.name is None:
            raise self._error("IN needs a property on its left")
        return nodes.member_of(left, texts, negative=negative)

    def _unary(self) -> Node:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self._error(f"nests deeper than {NESTING_MAX}")
        kind = self._peek().kind
        if kind == "+":
            self._take()
            node = self._unary()
        elif kind == "-":
            self._take()
            node = nodes.negated(self._unary())
        elif kind == "NOT":
            self._take()
            node = nodes.opposite(self._boolean(self._unary()))
        else:
            node = self._primary()
        self._nesting -= 1
        return self._checked(node)

    def _primary(self) -> Node:
        kind = self._peek().kind
        if kind == "(":
            self._take()
            node = self._either()
            self._take(")")
            return node
        if kind == NAME:
            return nodes.property_named(self._take().text)
        return self._literal(kind)

    def _literal(self, kind: str) -> Node:
        if kind == STRING:
            return nodes.constant(Kind.TEXT, self._text())
        if kind == WHOLE:
            return self._whole(self._take())
        if kind == FLOATING:
            return self._floating(self._take())
        if kind in {"TRUE", "FALSE"}:
            return nodes.constant(Kind.BOOLEAN, self._take().kind == "TRUE")
        if kind == "NULL":
            self._take()
            return nodes.constant(Kind.NULL, None)
        raise self._error(f"a property or a value expected instead of {self._peek().text or END!r}")

    def _text(self) -> str:
        return self._take(STRING).text[1:-1].replace("''", "'")

    def _whole(self, token: Token) -> Node:
        try:
            number = numbers.parse_long(token.text.rstrip("lL"))
        except ValueError:
            raise self._error(f"{token.text} does not fit 64 bits", token) from None
        kind = Kind.INTEGER if number <= numbers.INTEGER_MAX else Kind.LONG
        return nodes.constant(kind, number)

    def _floating(self, token: Token) -> Node:
        number = float(token.text)
        # Java also refuses 0.0: it uses Double.MIN_VALUE, the smallest positive double, as the lower bound.
        if number == float("inf") or number <= 0:
            raise self._error(f"{token.text} is out of range for a double", token)
        return nodes.constant(Kind.DOUBLE, number)
