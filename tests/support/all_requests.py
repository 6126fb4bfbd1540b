"""Every request code with fields and body that name everything, and what a refused request must not change."""

from __future__ import annotations

from orbitlog.access.request_needs import ROWS
from orbitlog.wire.codes import RequestCode
from tests.support.broker_desk import Desk
from tests.support.secured_broker import NOBODY, ROOT, WRITER, send

# Every name that a handler reads, so that an admitted request would have an effect.
FIELDS = {
    **dict.fromkeys(("topic", "b", "defaultTopic", "c", "topicList"), "Orders"),
    **dict.fromkeys(("group", "consumerGroup", "groupName", "a", "producerGroup", "srcGroup", "destGroup"), "G"),
    **dict.fromkeys(("compareGroup", "filterGroups"), "G"),
    **dict.fromkeys(("queueId", "e", "offset", "commitOffset", "queueOffset", "sysFlag", "f", "h", "flag", "j"), "0"),
    **dict.fromkeys(("d", "defaultTopicQueueNums", "readQueueNums", "writeQueueNums", "perm", "l", "maxMsgNums"), "4"),
    **dict.fromkeys(("g", "bornTimestamp", "timestamp", "beginTimestamp", "endTimestamp", "popTime"), "1"),
    **dict.fromkeys(("commitLogOffset", "tranStateTableOffset", "delayLevel", "index", "subVersion", "count"), "0"),
    **dict.fromkeys(("k", "m", "order", "isForce", "unitMode", "batch"), "false"),
    "commitOrRollback": "8",
    "clientID": "client",
    "clientId": "client",
    "properties": "",
    "i": "",
    "extraInfo": "0 0 60000 0 0 broker-a 0 0",
    "invisibleTime": "1000",
    "username": ROOT.access_key,
    "subject": "User:root-user",
    "accessKey": "account-1",
    "secretKey": "secret-1",
    "msgId": "7F00000100002A9F0000000000000000",
    "topicFilterType": "SINGLE_TAG",
    "maxNum": "1",
    "key": "K",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "Orders",
}
BODIES: dict[int, object] = {
    34: {"clientID": "c", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "Orders"}]}]},
    41: {"consumerGroup": "G", "clientId": "c", "mqSet": [{"topic": "Orders", "brokerName": "broker-a", "queueId": 0}]},
    42: {"consumerGroup": "G", "clientId": "c", "mqSet": [{"topic": "Orders", "brokerName": "broker-a", "queueId": 0}]},
    46: {"clientId": "c", "group": "G", "subscriptionData": {"topic": "Orders", "expressionType": "SQL92"}},
    18: {"topicConfigList": [{"topicName": "Made", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]},
    200: {"groupName": "Made"},
    225: {"groupConfigList": [{"groupName": "Made"}]},
    400: {"topic": "Orders", "consumerGroup": "G", "clientId": "c"},
    401: {"topic": "Orders", "consumerGroup": "G", "mode": "POP"},
    200151: {"brokerName": "broker-a", "acks": [{"c": "G", "t": "Orders"}]},
    3001: {"password": "p", "userType": "Super"},
    3006: {"policies": [{"entries": [{"actions": ["All"], "decision": "Allow", "resource": "*"}]}]},
}
CODES = sorted({*map(int, RequestCode), *ROWS, 0, -1, 54, 3442, 99999, 200056, 2**31 - 1})


async def add_users(desk: Desk) -> None:
    await send(desk, ROOT, queue_id=0)  # creates the topic and the first record
    access = desk.broker._access
    assert access is not None
    for user in (WRITER, NOBODY):
        access.change_users(lambda table, user=user: table.create_user(user.access_key, {"password": user.secret_key}))
    entries = [{"actions": ["Pub"], "decision": "Allow", "resource": "Topic:Orders"}]
    policy = {"policies": [{"entries": entries, "policyType": "Custom"}]}
    access.change_users(lambda table: table.put_acl("User:writer", policy))


def state_of(desk: Desk) -> dict[str, object]:
    """Return everything that a refused request must not change."""
    state = desk.broker.state
    access = desk.broker._access
    assert access is not None
    return {
        "log": state.store.written_to,
        "topics": dict(state.topics.table),
        "groups": dict(state.groups.table),
        "offsets": state.offsets.find("Orders", "G", 0),
        "settings": state.settings.effective(),
        "users": (dict(access.users.users), dict(access.users.acls)),
        "consumers": state.clients.consumer_group("G"),
        "producers": state.clients.producers("P"),
    }
