"""Subscriptions by SQL92, as the broker evaluates them."""

from __future__ import annotations

import time

import pytest

from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import java_clients

pytestmark = pytest.mark.interop

EXPRESSIONS = {
    "n > 3": {4, 5, 6, 7, 8, 9},
    "n between 2 and 4": {2, 3, 4},
    "n not between 2 and 8": {0, 1, 9},
    "n in ('1', '7')": {1, 7},
    "name = 'item-5' or n <= 0": {0, 5},
    "name <> 'item-5' and n >= 8": {8, 9},
    "TAGS = 'B' and n < 6": {1, 3, 5},
    "missing is null and n = 2": {2},
    "missing is not null": set(),
    "not (n > 0)": {0},
}


@java_clients
def test_expressions_choose_what_they_say(client: Client) -> None:
    topic = client.topic("Sql", queues=1)
    pushes = {
        text: client.push(topic, client.group(f"sql{number}"), sql=text) for number, text in enumerate(EXPRESSIONS)
    }
    client.send(
        client.producer(), topic, count=10, body="n", tags="A,B", **{"property.n": "{}", "property.name": "item-{}"}
    )
    for text, wanted in EXPRESSIONS.items():
        pushes[text].wait_for(len(wanted))
    time.sleep(1)
    found = {text: {int(one["body"].split()[1]) for one in push.messages} for text, push in pushes.items()}
    assert found == EXPRESSIONS


@java_clients
def test_an_expression_that_is_none_is_refused(client: Client) -> None:
    topic = client.topic("NoSql", queues=1)
    with pytest.raises(Refused) as refused:
        client.push(topic, client.group("nosql"), sql="n >")
    assert refused.value.code == 23
