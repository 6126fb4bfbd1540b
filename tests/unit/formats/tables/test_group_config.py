from __future__ import annotations

from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.tables.group_config import (
    BloomData,
    CustomizedRetry,
    ExponentialRetry,
    FilterData,
    FilterTable,
    GroupConfig,
    GroupRetryPolicy,
    GroupTable,
    RequestMode,
    SimpleSubscription,
    TopicFilters,
    decode_filters,
    decode_groups,
    decode_request_modes,
    encode_filters,
    encode_groups,
    encode_request_modes,
)
from orbitlog.formats.tables.topic_config import DataVersion
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import java_text

# Written by the Java classes of 5.5.0; the second also by those of 4.9.7.
GROUPS = java_text(
    """
{
→"dataVersion":{
→→"counter":0,
→→"stateVersion":0,
→→"timestamp":1700000000000
→},
→"forbiddenTable":{
→→"g1":{
→→→"t1":3,
→→→"t2":0
→→}
→},
→"subscriptionGroupTable":{
→→"g1":{
→→→"attributes":{
→→→→"consume.mode":"x"
→→→},
→→→"brokerId":0,
→→→"consumeBroadcastEnable":true,
→→→"consumeEnable":true,
→→→"consumeFromMinEnable":true,
→→→"consumeMessageOrderly":false,
→→→"consumeTimeoutMinute":15,
→→→"groupName":"g1",
→→→"groupRetryPolicy":{
→→→→"exponentialRetryPolicy":{
→→→→→"initial":1000,
→→→→→"max":60000,
→→→→→"multiplier":3
→→→→},
→→→→"type":"EXPONENTIAL"
→→→},
→→→"groupSysFlag":0,
→→→"notifyConsumerIdsChangedEnable":true,
→→→"retryMaxTimes":16,
→→→"retryQueueNums":1,
→→→"subscriptionDataSet":[
→→→→{
→→→→→"expression":"a || b",
→→→→→"expressionType":"TAG",
→→→→→"topic":"t1",
→→→→→"version":7
→→→→}
→→→],
→→→"whichBrokerWhenConsumeSlowly":1
→→},
→→"g2":{
→→→"attributes":{},
→→→"brokerId":0,
→→→"consumeBroadcastEnable":true,
→→→"consumeEnable":true,
→→→"consumeFromMinEnable":true,
→→→"consumeMessageOrderly":false,
→→→"consumeTimeoutMinute":15,
→→→"groupName":"g2",
→→→"groupRetryPolicy":{
→→→→"customizedRetryPolicy":{
→→→→→"next":[1000,5000]
→→→→},
→→→→"type":"CUSTOMIZED"
→→→},
→→→"groupSysFlag":0,
→→→"notifyConsumerIdsChangedEnable":true,
→→→"retryMaxTimes":16,
→→→"retryQueueNums":1,
→→→"whichBrokerWhenConsumeSlowly":1
→→}
→}
}
"""
)
FILTERS = java_text(
    """
{
→"filterDataByTopic":{
→→"Orders":{
→→→"groupFilterData":{
→→→→"CID_sql":{
→→→→→"bloomFilterData":{
→→→→→→"bitNum":112,
→→→→→→"bitPos":[78,78,20]
→→→→→},
→→→→→"bornTime":1700000000000,
→→→→→"clientVersion":1700000000001,
→→→→→"consumerGroup":"CID_sql",
→→→→→"dead":false,
→→→→→"deadTime":0,
→→→→→"expression":"a > 5 AND b = 'x'",
→→→→→"expressionType":"SQL92",
→→→→→"topic":"Orders"
→→→→}
→→→},
→→→"topic":"Orders"
→→}
→}
}
"""
)


def test_groups_with_retry_policies() -> None:
    table = decode_groups(GROUPS)
    assert encode_groups(table, COMPAT_5_5) == GROUPS
    exponential = GroupRetryPolicy("EXPONENTIAL", exponential=ExponentialRetry(1000, 60000, 3))
    customized = GroupRetryPolicy("CUSTOMIZED", customized=CustomizedRetry((1000, 5000)))
    assert table == GroupTable(
        groups={
            "g1": GroupConfig(
                "g1",
                retry_policy=exponential,
                subscriptions=(SimpleSubscription("t1", "TAG", "a || b", 7),),
                attributes={"consume.mode": "x"},
            ),
            "g2": GroupConfig("g2", retry_policy=customized),
        },
        forbidden={"g1": {"t1": 3, "t2": 0}},
        data_version=DataVersion(timestamp_ms=1700000000000),
    )


def test_golden_groups_are_those_the_broker_has(golden_497: GoldenStore, golden_550_crash: GoldenStore) -> None:
    for golden in (golden_497, golden_550_crash):
        table = decode_groups((golden.store / "config" / "subscriptionGroup.json").read_text("utf-8"))
        recorded = golden.manifest["config"]["subscriptionGroups"]
        assert table.groups.keys() == recorded.keys()
        for name, group in table.groups.items():
            assert group.group == name
            assert group.retry_times_max == recorded[name]["retryMaxTimes"]
            assert group.retry_queue_count == recorded[name]["retryQueueNums"]
            assert group.consume_enabled == recorded[name]["consumeEnable"]
            assert group.consume_broadcast_enabled == recorded[name]["consumeBroadcastEnable"]
            assert group.slow_consume_broker_id == recorded[name]["whichBrokerWhenConsumeSlowly"]
            assert group.consume_timeout_minutes == recorded[name].get("consumeTimeoutMinute", 15)


def test_a_group_of_4_9_has_the_defaults_of_5x(golden_497: GoldenStore) -> None:
    table = decode_groups((golden_497.store / "config" / "subscriptionGroup.json").read_text("utf-8"))
    newer = encode_groups(table, COMPAT_5_5)
    assert newer.count('"consumeTimeoutMinute":15') == len(table.groups)
    assert newer.count('"forbiddenTable":{}') == 1
    assert decode_groups(newer) == table


def test_filters_both_ways() -> None:
    table = decode_filters(FILTERS)
    assert encode_filters(table, COMPAT_5_5) == FILTERS
    assert encode_filters(table, COMPAT_4_9) == FILTERS
    data = FilterData(
        group="CID_sql",
        topic="Orders",
        expression="a > 5 AND b = 'x'",
        expression_type="SQL92",
        born_time_ms=1700000000000,
        bloom=BloomData(112, (78, 78, 20)),
        client_version=1700000000001,
    )
    assert table == FilterTable({"Orders": TopicFilters("Orders", {"CID_sql": data})})


def test_death_is_computed_and_not_read() -> None:
    lively = decode_filters('{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bornTime":5,"dead":true}}}}}')
    assert not lively.topics["T"].filters["g"].is_dead
    dead = FilterTable({"T": TopicFilters("T", {"g": FilterData("g", born_time_ms=5, dead_time_ms=5)})})
    assert '"dead":true' in encode_filters(dead, COMPAT_5_5)


def test_golden_request_modes(golden_550_crash: GoldenStore) -> None:
    text = (golden_550_crash.store / "config" / "messageRequestMode.json").read_text()
    table = decode_request_modes(text)
    [(group, mode)] = table.modes["CrashCustom"].items()
    assert mode == RequestMode("CrashCustom", group, "POP", 2)
    assert encode_request_modes(table, COMPAT_5_5) == text
