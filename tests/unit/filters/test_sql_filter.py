"""SQL92 filters answer as Java's do, and no expression can hurt."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadExpression
from orbitlog.filters.sql_filter import SqlFilter
from orbitlog.filters.sql_parser import EXPRESSION_CHARACTERS_MAX, NESTING_MAX
from tests.support.sql_answers import JAVA_ANSWERS, WORDS, our_answer
from tests.support.sql_cases import EXPRESSIONS


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_answers_as_java(expression: str) -> None:
    assert our_answer(expression) == JAVA_ANSWERS[expression]


def test_every_answer_of_java_is_asked_for() -> None:
    assert set(JAVA_ANSWERS) == set(EXPRESSIONS)
    assert len(EXPRESSIONS) > 300
    assert {letter for answer in JAVA_ANSWERS.values() if answer != "refused" for letter in answer} == set("tfnx")


def test_what_cannot_be_compared_does_not_match() -> None:
    assert not SqlFilter("a > 1 OR TRUE").matches({"a": "many"})


def test_error_states_where() -> None:
    with pytest.raises(BadExpression, match=r"at character 4, near 'a = #'.*'#' is not valid in SQL92"):
        SqlFilter("a = #")
    with pytest.raises(BadExpression, match="BETWEEN needs its lower bound first"):
        SqlFilter("a BETWEEN 2 AND 1")


@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join))
def test_any_words_are_an_expression_or_a_clear_error(expression: str) -> None:
    our_answer(expression)


@given(st.text(max_size=200))
def test_any_text_is_an_expression_or_a_clear_error(expression: str) -> None:
    our_answer(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 5000 + "a = 1" + ")" * 5000,
        "NOT " * 4000 + "a",
        "-" * 5000 + "1 = 1",
        "- " * 5000 + "1 = 1",
        "a = 1" + " = TRUE" * 2000,
        "a" + " IS NULL" * 1500,
        "a = '" + "''" * 7000,
        "(" * 8000,
        "/*" * 8000,
        "a" + " > 1" * 4000,
    ],
)
def test_deep_nesting_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        SqlFilter(expression)


def test_long_rows_do_not_nest() -> None:
    row = " OR ".join(f"a = {number}" for number in range(1000))
    assert SqlFilter(row).matches({"a": "999"})
    assert not SqlFilter(row.replace(" OR ", " AND ")).matches({"a": "999"})


def test_limits() -> None:
    assert NESTING_MAX * 12 < sys.getrecursionlimit()
    with pytest.raises(BadExpression, match=f"longer than {EXPRESSION_CHARACTERS_MAX} characters"):
        SqlFilter("a = 1" + " " * EXPRESSION_CHARACTERS_MAX)
