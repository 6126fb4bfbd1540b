"""Format strings of `-f`."""

from __future__ import annotations

import pytest

from orbitlog.cli.main import WrongUse
from orbitlog.cli.output.row_format import RowFormat

FIELDS = ("topic", "queueId", "body", "properties", "ordered", "attributes")
ROW = {"topic": "Orders", "queueId": 3, "body": "{x}", "properties": {"colour": "green"}, "ordered": True}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{topic} {queueId} {body}", "Orders 3 {x}\n"),
        ("{queue_id}/{queueid}/{QUEUE-ID}", "3/3/3\n"),
        (r"{topic}\t{queueId}\n", "Orders\t3\n"),
        (r"{body}\0", "{x}\0"),
        (r"\\ \x41 {{}} {ordered}", "\\ A {} yes\n"),
        ("{properties.colour}|{properties.none}|{properties}", "green||colour=green\n"),
        ("[{topic:>8}] [{queueId:3}] [{topic:^10}]", "[  Orders] [3  ] [  Orders  ]\n"),
        ("{attributes}", "\n"),
        ("", "\n"),
        ("no fields", "no fields\n"),
    ],
)
def test_a_template_is_filled(template: str, text: str) -> None:
    assert RowFormat(template, FIELDS).text(ROW) == text


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{nonsense}", "unknown field 'nonsense'; available: topic, queueId, body"),
        ("{topic", "unbalanced brace"),
        ("topic}", "unbalanced brace"),
        ("{topic.__class__}}", "unbalanced brace"),
        ("{0}", "unbalanced brace"),
        (r"\q", "is not a valid escape"),
        ("\\", "is not a valid escape"),
    ],
)
def test_a_template_that_cannot_be_understood(template: str, sentence: str) -> None:
    with pytest.raises(WrongUse) as caught:
        RowFormat(template, FIELDS)
    assert sentence in caught.value.message


def test_a_template_reaches_into_nothing_but_objects_of_json() -> None:
    assert RowFormat("{topic.__class__}", FIELDS).text(ROW) == "\n"
