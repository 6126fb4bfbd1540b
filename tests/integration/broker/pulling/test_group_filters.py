"""SQL92 subscriptions are kept for a day after their consumers, in the file of a Java broker."""

from __future__ import annotations

import json
from pathlib import Path

from orbitlog.broker.pulling.group_filters import KEPT_MS, GroupFilters
from orbitlog.filters.bloom_bits import bloom_bits, murmur3_low_64
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.group_config import BloomData, decode_filters, encode_filters
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData
from tests.support.broker_desk import Desk, at_desk, until

START_MS = 1_800_000_000_000


class Clock:
    """A clock that stands still until the test sets it."""

    now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


def wanted(expression: str = "a > 1", version: int = 5, topic: str = "Orders") -> SubscriptionData:
    return SubscriptionData(topic, expression, version=version, expression_type="SQL92")


def test_filter_bits_equal_those_of_java() -> None:
    assert murmur3_low_64(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
    assert murmur3_low_64(b"") == 0
    assert bloom_bits("CID_sql#Orders") == (78, 78, 20)


def test_filter_is_kept_for_a_day_after_its_last_consumer() -> None:
    clock = Clock()
    filters = GroupFilters(clock)
    assert filters.register("G", [wanted(), SubscriptionData("Tags", "a || b")])
    data = filters.find("Orders", "G")
    assert data is not None and not data.is_dead and data.expression == "a > 1"
    assert filters.find("Tags", "G") is None, "only expressions are kept"
    assert not filters.register("G", [wanted()]), "the next heartbeat changes nothing"
    clock.now_ms += 1_000
    assert filters.unregister("G") and not filters.unregister("G")
    clock.now_ms += KEPT_MS - 1
    assert "Orders" in filters.snapshot().topics
    clock.now_ms += 1
    assert not filters.snapshot().topics


def test_last_subscription_of_a_group_counts() -> None:
    filters = GroupFilters(Clock())
    filters.register("G", [wanted("a > 1", 5)])
    assert not filters.register("G", [wanted("a > 2", 4)])
    assert filters.register("G", [wanted("a > 3", 6)])
    data = filters.find("Orders", "G")
    assert data is not None and (data.expression, data.client_version) == ("a > 3", 6)
    assert filters.register("G", [wanted("a >", 7)]), "an invalid expression replaces the old one"
    assert filters.find("Orders", "G") is None


def test_filter_of_an_unsubscribed_topic_ends_and_can_return() -> None:
    clock = Clock()
    filters = GroupFilters(clock)
    filters.register("G", [wanted(), wanted(topic="Ticks")])
    assert filters.register("G", [wanted()])
    ticks = filters.find("Ticks", "G")
    assert ticks is not None and ticks.is_dead
    assert filters.register("G", [wanted(), wanted(topic="Ticks")])
    ticks = filters.find("Ticks", "G")
    assert ticks is not None and not ticks.is_dead and ticks.born_time_ms == START_MS


def test_filters_of_a_java_broker_are_ended_until_a_consumer_subscribes() -> None:
    text = (
        '{"filterDataByTopic":{"Orders":{"groupFilterData":{"G":{"bloomFilterData":{"bitNum":224,"bitPos":[1,2,3,4]},'
        f'"bornTime":{START_MS - 9000},"clientVersion":5,"consumerGroup":"G","dead":false,"deadTime":0,'
        '"expression":"a > 1","expressionType":"SQL92","topic":"Orders"}},"topic":"Orders"}}}'
    )
    filters = GroupFilters(Clock(), decode_filters(text))
    data = filters.find("Orders", "G")
    assert data is not None and data.is_dead and data.dead_time_ms == data.born_time_ms
    filters.register("Other", [wanted()])
    other = filters.find("Orders", "Other")
    assert other is not None and other.bloom == BloomData(224, bloom_bits("Other#Orders", 224, 4))
    assert filters.register("G", [wanted()])
    written = decode_filters(encode_filters(filters.snapshot(), COMPAT_5_5))
    assert not written.topics["Orders"].filters["G"].is_dead


def test_filter_file_is_saved_when_consumers_change(tmp_path: Path) -> None:
    path = tmp_path / "config" / "consumerFilter.json"

    def saved() -> dict[str, object]:
        table = json.loads(path.read_text())["filterDataByTopic"] if path.exists() else {}
        found: dict[str, object] = table.get("Orders", {}).get("groupFilterData", {}).get("G", {})
        return found

    async def work(desk: Desk) -> None:
        subscription = {"topic": "Orders", "subString": "a > 1", "subVersion": 5, "expressionType": "SQL92"}
        await desk.heartbeat(topics=(), subscriptionDataSet=[subscription])
        await until(lambda: saved().get("dead") is False)
        await desk.client.close()
        await until(lambda: saved().get("dead") is True)

    async def again(desk: Desk) -> None:
        assert desk.broker.state.filters.find("Orders", "G") is not None

    at_desk(tmp_path, work, enablePropertyFilter="true")
    at_desk(tmp_path, again)
