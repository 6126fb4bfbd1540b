from __future__ import annotations

from dataclasses import replace

import pytest

from orbitlog.errors import BadField
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.tables.topic_config import (
    DataVersion,
    QueueMappingItem,
    TopicConfig,
    TopicCount,
    TopicQueueMapping,
    TopicTable,
    decode_timer_metrics,
    decode_topic_queue_mapping,
    decode_topics,
    decode_transaction_metrics,
    encode_timer_metrics,
    encode_topic_queue_mapping,
    encode_topics,
    encode_transaction_metrics,
)
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import java_text

# Written by the Java classes of 5.5.0.
MAPPING = java_text(
    """
{
→"dataVersion":{
→→"counter":0,
→→"stateVersion":0,
→→"timestamp":1700000000000
→},
→"topicQueueMappingInfoMap":{
→→"StaticT":{
→→→"bname":"broker-a",
→→→"currIdMap":{
→→→→0:2,
→→→→3:0
→→→},
→→→"dirty":false,
→→→"epoch":1700000000001,
→→→"hostedQueues":{
→→→→0:[
→→→→→{
→→→→→→"bname":"broker-a",
→→→→→→"endOffset":100,
→→→→→→"gen":0,
→→→→→→"logicOffset":0,
→→→→→→"queueId":1,
→→→→→→"startOffset":0,
→→→→→→"timeOfEnd":-1,
→→→→→→"timeOfStart":-1
→→→→→},
→→→→→{
→→→→→→"bname":"broker-b",
→→→→→→"endOffset":-1,
→→→→→→"gen":1,
→→→→→→"logicOffset":100,
→→→→→→"queueId":2,
→→→→→→"startOffset":0,
→→→→→→"timeOfEnd":-1,
→→→→→→"timeOfStart":-1
→→→→→}
→→→→],
→→→→3:[
→→→→→{
→→→→→→"bname":"broker-a",
→→→→→→"endOffset":-1,
→→→→→→"gen":0,
→→→→→→"logicOffset":0,
→→→→→→"queueId":0,
→→→→→→"startOffset":0,
→→→→→→"timeOfEnd":-1,
→→→→→→"timeOfStart":5
→→→→→}
→→→→]
→→→},
→→→"scope":"__global__",
→→→"topic":"StaticT",
→→→"totalQueues":4
→→}
→}
}
"""
)


def test_golden_topics_are_those_the_broker_has(golden_497: GoldenStore, golden_550_crash: GoldenStore) -> None:
    for golden in (golden_497, golden_550_crash):
        table = decode_topics((golden.store / "config" / "topics.json").read_text("utf-8"))
        recorded = golden.manifest["config"]["topics"]
        assert table.topics.keys() <= recorded.keys()
        for name, topic in table.topics.items():
            assert topic.topic == name
            assert recorded[name]["read"] == topic.read_queue_count
            assert recorded[name]["write"] == topic.write_queue_count
            assert recorded[name]["perm"] == topic.permission
            assert recorded[name]["order"] == topic.ordered
            assert recorded[name]["sysFlag"] == topic.sys_flag


def test_fields_of_5x_come_and_go_with_compat(golden_550_crash: GoldenStore) -> None:
    text = (golden_550_crash.store / "config" / "topics.json").read_bytes().decode()
    table = decode_topics(text)
    older = encode_topics(table, COMPAT_4_9)
    assert "attributes" in text
    assert "stateVersion" in text
    assert "attributes" not in older
    assert "stateVersion" not in older
    assert encode_topics(decode_topics(older), COMPAT_5_5) == text


def test_a_new_table_has_java_s_defaults() -> None:
    table = TopicTable({"T": TopicConfig("T", attributes={"message.type": "FIFO"})}, DataVersion(1, 2, 3))
    expected = """
{
→"dataVersion":{
→→"counter":1,
→→"stateVersion":3,
→→"timestamp":2
→},
→"topicConfigTable":{
→→"T":{
→→→"attributes":{
→→→→"message.type":"FIFO"
→→→},
→→→"order":false,
→→→"perm":6,
→→→"readQueueNums":16,
→→→"topicFilterType":"SINGLE_TAG",
→→→"topicName":"T",
→→→"topicSysFlag":0,
→→→"writeQueueNums":16
→→}
→}
}
"""
    assert encode_topics(table, COMPAT_5_5) == java_text(expected)
    assert decode_topics(java_text(expected)) == table


def test_fields_of_a_newer_broker_survive() -> None:
    text = '{"topicConfigTable":{"T":{"topicName":"T","perm":2,"zebra":[1,{"a":{0:1}}],"alpha":"x"}},"new":{"b":true}}'
    table = decode_topics(text)
    assert table.unknown == {"new": {"b": True}}
    changed = replace(table, topics={"T": replace(table.topics["T"], permission=6)})
    again = decode_topics(encode_topics(changed, COMPAT_4_9))
    assert again.unknown == table.unknown
    assert again.topics["T"].unknown == {"zebra": [1, {"a": {0: 1}}], "alpha": "x"}
    assert again.topics["T"].permission == 6


def test_a_topic_without_a_name_is_refused() -> None:
    with pytest.raises(BadField, match=r"topics\.json\.topicConfigTable\.T\.topicName"):
        decode_topics('{"topicConfigTable":{"T":{"perm":6}}}')


def test_topic_queue_mapping() -> None:
    table = decode_topic_queue_mapping(MAPPING)
    assert encode_topic_queue_mapping(table, COMPAT_5_5) == MAPPING
    mapping = table.mappings["StaticT"]
    assert mapping == TopicQueueMapping(
        topic="StaticT",
        broker_name="broker-a",
        total_queue_count=4,
        epoch=1700000000001,
        current_queue_ids={0: 2, 3: 0},
        hosted_queues=mapping.hosted_queues,
    )
    assert mapping.hosted_queues[0] == (
        QueueMappingItem(0, 1, "broker-a", 0, 0, 100),
        QueueMappingItem(1, 2, "broker-b", 100),
    )
    assert mapping.hosted_queues[3][0].start_time_ms == 5


def test_golden_metrics(golden_550_crash: GoldenStore) -> None:
    config = golden_550_crash.store / "config"
    timer_text, transaction_text = (config / "timermetrics").read_text(), (config / "transactionMetrics").read_text()
    timer, transaction = decode_timer_metrics(timer_text), decode_transaction_metrics(transaction_text)
    assert timer.counts["CrashDelay"] == TopicCount(3, 1794732273008)
    assert transaction.counts == {"CrashTx": TopicCount(2, 1794732308382)}
    assert transaction.data_version == DataVersion(counter=20, timestamp_ms=1794732308382)
    assert encode_timer_metrics(timer, COMPAT_5_5) == timer_text
    assert encode_transaction_metrics(transaction, COMPAT_5_5) == transaction_text
