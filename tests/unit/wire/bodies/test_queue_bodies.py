"""Bodies that tools take apart, spelled as the protocol has them."""

from __future__ import annotations

import pytest

from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.json_records import JsonRecord
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.client_bodies import (
    BatchAck,
    BatchAckBody,
    BrokerStats,
    ClientConnection,
    ConsumeDirectlyResult,
    ConsumerConnection,
    ProducerInfo,
    ProducerTable,
    QueueAssignment,
    QueueAssignments,
    StatsItem,
)
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData
from orbitlog.wire.bodies.list_bodies import ConsumerList, GroupList, KvTable, TopicList
from orbitlog.wire.bodies.queue_bodies import (
    ConsumeOffset,
    ConsumerStatus,
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    LockRequestBody,
    LockResponseBody,
    QueueOffsetList,
    QueueTimeSpan,
    QueueUnit,
    QueueUnits,
    QueueWithOffset,
    TopicOffset,
    TopicStats,
)
from orbitlog.wire.bodies.route_bodies import BrokerData, ClusterInfo, QueueData, TopicRoute

QUEUE = MessageQueue("T", "b", 0)
KEY = b'{"brokerName":"b","queueId":0,"topic":"T"}'

WRITTEN: list[tuple[JsonRecord, bytes]] = [
    (
        LockRequestBody("G", "c", (QUEUE,)),
        b'{"clientId":"c","consumerGroup":"G","mqSet":[' + KEY + b'],"onlyThisBroker":false}',
    ),
    (LockResponseBody((QUEUE,)), b'{"lockOKMQSet":[' + KEY + b"]}"),
    (
        TopicStats({QUEUE: TopicOffset(1, 9, 5)}),
        b'{"offsetTable":{' + KEY + b':{"lastUpdateTimestamp":5,"maxOffset":9,"minOffset":1}},"topicPutTps":0.0}',
    ),
    (
        ConsumeStats({QUEUE: ConsumeOffset(9, 7, 8, 5)}, 1.5),
        b'{"consumeTps":1.5,"offsetTable":{'
        + KEY
        + b':{"brokerOffset":9,"consumerOffset":7,"lastTimestamp":5,"pullOffset":8}}}',
    ),
    (
        ConsumeStatsList(({"G": (ConsumeStats({QUEUE: ConsumeOffset()}),)},), "h:1", 3),
        b'{"brokerAddr":"h:1","consumeStatsList":[{"G":[{"consumeTps":0.0,"offsetTable":{'
        + KEY
        + b':{"brokerOffset":0,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}]}],"totalDiff":3,'
        b'"totalInflightDiff":0}',
    ),
    (ConsumerStatus(clients={"c": {QUEUE: 4}}), b'{"consumerTable":{"c":{' + KEY + b':4}},"messageQueueTable":{}}'),
    (
        QueueOffsetList((QueueWithOffset("T", "b", 0, 123),)),
        b'{"offsetTable":[{"brokerName":"b","offset":123,"queueId":0,"topic":"T"}]}',
    ),
    (CorrectionOffsets({0: 12}), b'{"correctionOffsets":{"0":12}}'),
    (
        ConsumeTimeSpans((QueueTimeSpan(QUEUE, 1, 2, 3, 4),)),
        b'{"consumeTimeSpanSet":[{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":2,"messageQueue":'
        + KEY
        + b',"minTimeStamp":1}]}',
    ),
    (
        QueueUnits((QueueUnit(1, 2, 3),), 0, 9),
        b'{"maxQueueIndex":9,"minQueueIndex":0,"queueData":[{"eval":false,"physicOffset":1,"physicSize":2,'
        b'"tagsCode":3}]}',
    ),
    (TopicList(("a", "b")), b'{"topicList":["a","b"]}'),
    (GroupList(("G",)), b'{"groupList":["G"]}'),
    (ConsumerList(("c1", "c2")), b'{"consumerIdList":["c1","c2"]}'),
    (KvTable({"k": "v"}), b'{"table":{"k":"v"}}'),
    (
        ConsumerConnection(
            (ClientConnection("c", "h:1", "JAVA", 409),),
            {"T": SubscriptionData("T")},
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_LAST_OFFSET",
        ),
        b'{"connectionSet":[{"clientAddr":"h:1","clientId":"c","language":"JAVA","version":409}],'
        b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        b'"subscriptionTable":{"T":{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*",'
        b'"subVersion":0,"tagsSet":[],"topic":"T"}}}',
    ),
    (
        ProducerTable({"P": (ProducerInfo("c", "h:1", "GO", 317, 5),)}),
        b'{"data":{"P":[{"clientId":"c","language":"GO","lastUpdateTimestamp":5,"remoteIP":"h:1","version":317}]}}',
    ),
    (
        BrokerStats(StatsItem(1, 2.0, 3.0)),
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsMinute":{"avgpt":3.0,"sum":1,"tps":2.0}}',
    ),
    (
        ConsumeDirectlyResult("CR_SUCCESS", spent_ms=3),
        b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}',
    ),
    (
        QueueAssignments((QueueAssignment(QUEUE, "POP"),)),
        b'{"messageQueueAssignments":[{"messageQueue":' + KEY + b',"mode":"POP"}]}',
    ),
    (
        BatchAckBody("b", (BatchAck("G", "T", "0", 1, 2, 3, 4, 5, "AQ=="),)),
        b'{"acks":[{"b":"AQ==","c":"G","it":5,"pt":4,"q":2,"r":"0","rq":3,"so":1,"t":"T"}],"brokerName":"b"}',
    ),
    (
        ClusterInfo({"b": BrokerData("b", "C", {0: "h:1", 1: "h:2"})}, {"C": ("b",)}),
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{"0":"h:1","1":"h:2"},"brokerName":"b","cluster":"C",'
        b'"enableActingMaster":false}},"clusterAddrTable":{"C":["b"]}}',
    ),
    (
        TopicRoute((BrokerData("b", "C", {0: "h:1"}),), (QueueData("b", 8, 4, 6, 1),), order_topic_conf="b:4"),
        b'{"brokerDatas":[{"brokerAddrs":{"0":"h:1"},"brokerName":"b","cluster":"C","enableActingMaster":false}],'
        b'"filterServerTable":{},"orderTopicConf":"b:4","queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":8,'
        b'"topicSynFlag":1,"topicSysFlag":1,"writeQueueNums":4}]}',
    ),
]


@pytest.mark.parametrize(("record", "body"), WRITTEN, ids=lambda value: type(value).__name__)
def test_body_is_encoded_like_java(record: JsonRecord, body: bytes) -> None:
    assert encode_body(record) == body
    assert decode_body(type(record), body) == record


def test_result_of_go_is_a_number() -> None:
    assert decode_body(ConsumeDirectlyResult, b'{"consumeResult":1}').result == "CR_LATER"


def test_route_of_java_4_is_decoded() -> None:
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"b","cluster":"C"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":8,"topicSynFlag":0,"writeQueueNums":8}]}'
    )
    route = decode_body(TopicRoute, body)
    assert route.brokers == (BrokerData("b", "C", {0: "h:1", 1: "h:2"}),)
    assert route.queues == (QueueData("b", 8, 8, 6),)
