"""Round robin with brokers to avoid."""

from __future__ import annotations

from collections import Counter

from orbitlog.client.producer.queue_choice import FAILURE_MS, QueueChoice
from orbitlog.formats.message_queue import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(4)]


def test_every_queue_has_its_turn() -> None:
    choice = QueueChoice()
    assert Counter(choice.choose(QUEUES, 0) for _ in range(80)) == dict.fromkeys(QUEUES, 10)


def test_a_retry_goes_elsewhere() -> None:
    choice = QueueChoice()
    assert {choice.choose(QUEUES, 0, failed_broker="a").broker_name for _ in range(20)} == {"b"}


def test_a_broker_that_failed_is_left_out_for_a_while() -> None:
    choice = QueueChoice()
    choice.failed("a", 1_000)
    assert {choice.choose(QUEUES, 1_001).broker_name for _ in range(20)} == {"b"}
    assert {choice.choose(QUEUES, 1_000 + FAILURE_MS).broker_name for _ in range(20)} == {"a", "b"}


def test_a_slow_broker_is_left_out_until_it_is_quick_again() -> None:
    choice = QueueChoice()
    choice.sent("a", 2_000, 0)
    assert not choice.is_good("a", 100)
    choice.sent("a", 10, 100)
    assert choice.is_good("a", 100)


def test_all_failed_means_the_one_that_failed_longest_ago() -> None:
    choice = QueueChoice()
    choice.failed("b", 0)
    choice.failed("a", 5)
    assert choice.choose(QUEUES, 10).broker_name == "b"
    assert choice.choose(QUEUES[:4], 10, failed_broker="a").broker_name == "a"


def test_a_broker_with_another_master_is_chosen_at_once() -> None:
    choice = QueueChoice()
    choice.failed("a", 1_000)
    choice.moved("a")
    assert {choice.choose(QUEUES, 1_001).broker_name for _ in range(20)} == {"a", "b"}
    assert not choice.is_avoiding
