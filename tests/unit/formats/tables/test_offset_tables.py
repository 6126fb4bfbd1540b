from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.java import INT_MAX, LONG_MAX
from orbitlog.formats.tables.offset_tables import (
    ConsumerOffsets,
    ConsumerOrderInfo,
    DelayOffsets,
    OrderInfo,
    TopicGroup,
    decode_consumer_offsets,
    decode_consumer_order_info,
    decode_delay_offsets,
    decode_lmq_consumer_offsets,
    encode_consumer_offsets,
    encode_consumer_order_info,
    encode_delay_offsets,
    encode_lmq_consumer_offsets,
    parse_topic_group,
)
from orbitlog.formats.tables.topic_config import DataVersion
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import java_text, repeatable

# Written by the Java classes of 5.5.0, the last by those of 4.9.7.
ORDER_INFO = java_text(
    """
{
→"orderInfoCount":2,
→"orderedConsumptionLevel":"QUEUE",
→"table":{
→→"Orders@GID_a":{
→→→0:{
→→→→"a":"attempt-1",
→→→→"cm":3,
→→→→"i":30000,
→→→→"l":1700000000123,
→→→→"o":[5,1,4],
→→→→"oc":{
→→→→→5:1,
→→→→→6:2
→→→→},
→→→→"ot":{
→→→→→9:1700000012345
→→→→},
→→→→"popTime":1700000000000
→→→},
→→→3:{
→→→→"cm":0,
→→→→"i":30000,
→→→→"l":1700000000124,
→→→→"o":[7],
→→→→"popTime":1700000000000
→→→}
→→},
→→"Empty@GID_b":{}
→}
}
"""
)
LMQ_5_5 = java_text(
    """
{
→"dataVersion":{
→→"counter":0,
→→"stateVersion":0,
→→"timestamp":1700000000000
→},
→"groupTopicMap":{
→→"g":[
→→→"T"
→→]
→},
→"lmqOffsetTable":{
→→"%LMQ%t@%LMQ%g":17
→},
→"offsetTable":{
→→"T@g@broadcast":{
→→→0:5
→→},
→→"T@g":{
→→→0:5,
→→→1:6
→→}
→},
→"pullOffsetTable":{}
}
"""
)
LMQ_4_9 = java_text(
    """
{
→"lmqOffsetTable":{
→→"%LMQ%t@%LMQ%g":17
→},
→"offsetTable":{
→→"T@g":{0:5,1:6
→→}
→}
}
"""
)


@pytest.mark.parametrize(
    ("key", "topic", "group"),
    [
        ("TopicTest@g", "TopicTest", "g"),
        ("%RETRY%g@g", "%RETRY%g", "g"),
        ("T@g@broadcast", "T", "g@broadcast"),
        ("T", "T", ""),
        ("", "", ""),
    ],
)
def test_keys_are_split(key: str, topic: str, group: str) -> None:
    assert parse_topic_group(key) == TopicGroup(topic, group)
    assert str(TopicGroup(topic, group)) == key


def test_golden_offsets_are_those_the_broker_has(golden_497: GoldenStore, golden_550_crash: GoldenStore) -> None:
    for golden, compat in ((golden_497, COMPAT_4_9), (golden_550_crash, COMPAT_5_5)):
        text = (golden.store / "config" / "consumerOffset.json").read_bytes().decode()
        table = decode_consumer_offsets(text)
        assert encode_consumer_offsets(table, compat) == text
        assert table.unknown == {}
        recorded = golden.manifest["config"]["consumerOffsets"]
        assert {
            str(key): {str(queue): n for queue, n in queues.items()} for key, queues in table.offsets.items()
        } == recorded
    assert table.offsets[TopicGroup("crash_single", "GID_orderly_crash")] == {0: 107}
    assert table.offsets[TopicGroup("rmq_sys_REVIVE_LOG_DefaultCluster", "CID_RMQ_SYS_REVIVE_GROUP")] == {0: 4, 2: 4}
    assert table.pull_offsets[TopicGroup("CrashOrders", "GID_retry_crash")] == {0: 30, 1: 36, 2: 48, 3: 27}


def test_the_map_of_groups_is_computed() -> None:
    """It follows the offsets, in the order of Java's HashMap; broadcast groups and keys without one are not in it."""
    offsets = {
        TopicGroup(*key): {0: 1} for key in (("B", "g2"), ("A", "g1"), ("A", "g2"), ("T", "g@broadcast"), ("T", ""))
    }
    table = ConsumerOffsets(offsets)
    text = encode_consumer_offsets(table, COMPAT_5_5)
    assert '"groupTopicMap":{\n\t\t"g1":[\n\t\t\t"A"\n\t\t],\n\t\t"g2":[\n\t\t\t"A",\n\t\t\t"B"\n\t\t]\n\t}' in text
    assert decode_consumer_offsets(text) == table
    assert "groupTopicMap" not in encode_consumer_offsets(table, COMPAT_4_9)


def test_a_4_9_table_is_one_line_a_key() -> None:
    table = ConsumerOffsets({TopicGroup("%RETRY%g", "g"): {0: 1}, TopicGroup("TopicTest", "g"): {0: 10, 1: 20, 2: 30}})
    expected = """
{
→"offsetTable":{
→→"%RETRY%g@g":{0:1
→→},
→→"TopicTest@g":{0:10,1:20,2:30
→→}
→}
}
"""
    assert encode_consumer_offsets(table, COMPAT_4_9) == java_text(expected)


@pytest.mark.parametrize("text", ['{"offsetTable":{"t@g":{"0":5}}}', '{"offsetTable":{"t@g":{0:"5"}}}'])
def test_quoted_numbers_are_numbers(text: str) -> None:
    assert decode_consumer_offsets(text).offsets == {TopicGroup("t", "g"): {0: 5}}


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":[]}',
        '{"offsetTable":{"t@g":5}}',
        '{"offsetTable":{"t@g":{"x":5}}}',
        '{"offsetTable":{"t@g":{2147483648:5}}}',
        '{"offsetTable":{"t@g":{0:1.5}}}',
        '{"offsetTable":{"t@g":{0:true}}}',
        '{"offsetTable":{"t@g":{0:"9223372036854775808"}}}',
        "[]",
        "null",
    ],
)
def test_what_is_no_table_of_offsets(text: str) -> None:
    with pytest.raises(BadField, match=r"consumerOffset\.json"):
        decode_consumer_offsets(text)


def test_lmq_offsets() -> None:
    newer, older = decode_lmq_consumer_offsets(LMQ_5_5), decode_lmq_consumer_offsets(LMQ_4_9)
    assert newer.lmq_offsets == older.lmq_offsets == {TopicGroup("%LMQ%t", "%LMQ%g"): 17}
    assert newer.offsets[TopicGroup("T", "g@broadcast")] == {0: 5}
    assert encode_lmq_consumer_offsets(newer, COMPAT_5_5) == LMQ_5_5
    assert encode_lmq_consumer_offsets(older, COMPAT_4_9) == LMQ_4_9


def test_golden_delay_offsets(golden_497: GoldenStore, golden_550_crash: GoldenStore) -> None:
    for golden, compat, offsets in (
        (golden_497, COMPAT_4_9, {1: 8, 2: 2, 3: 2}),
        (golden_550_crash, COMPAT_5_5, {1: 8, 2: 2, 3: 2, 17: 0, 18: 0}),
    ):
        text = (golden.store / "config" / "delayOffset.json").read_text()
        table = decode_delay_offsets(text)
        assert table.offsets == offsets
        assert encode_delay_offsets(table, compat) == text
    assert encode_delay_offsets(DelayOffsets({3: 5, 18: 7}), COMPAT_4_9) == '{\n\t"offsetTable":{3:5,18:7\n\t}\n}'


def test_order_info() -> None:
    info = decode_consumer_order_info(ORDER_INFO)
    assert encode_consumer_order_info(info, COMPAT_5_5) == ORDER_INFO
    first = OrderInfo(
        pop_time_ms=1700000000000,
        invisible_time_ms=30000,
        packed_queue_offsets=(5, 1, 4),
        next_visible_times_ms={9: 1700000012345},
        consumed_counts={5: 1, 6: 2},
        last_consume_timestamp_ms=1700000000123,
        committed_bits=3,
        attempt_id="attempt-1",
    )
    assert info.table[TopicGroup("Orders", "GID_a")][0] == first
    assert first.queue_offsets == (5, 6, 9)
    assert info.table[TopicGroup("Orders", "GID_a")][3].queue_offsets == (7,)
    assert info.table[TopicGroup("Empty", "GID_b")] == {}
    assert OrderInfo().queue_offsets == ()
    assert info.unknown == {}
    assert encode_consumer_order_info(ConsumerOrderInfo(), COMPAT_5_5).startswith('{\n\t"orderInfoCount":0,')


names = st.text(st.sampled_from("abz%_-"), min_size=1, max_size=6)
tables = st.dictionaries(
    st.builds(TopicGroup, names, names),
    st.dictionaries(st.integers(0, INT_MAX), st.integers(-1, LONG_MAX), max_size=4),
    max_size=5,
)


@repeatable
@given(tables, tables, st.integers(0, LONG_MAX))
def test_round_trip(
    offsets: dict[TopicGroup, dict[int, int]], pull_offsets: dict[TopicGroup, dict[int, int]], counter: int
) -> None:
    table = ConsumerOffsets(offsets, pull_offsets, DataVersion(counter, 1, 2))
    assert decode_consumer_offsets(encode_consumer_offsets(table, COMPAT_5_5)) == table
    assert decode_consumer_offsets(encode_consumer_offsets(table, COMPAT_4_9)) == ConsumerOffsets(offsets)
