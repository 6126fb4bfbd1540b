"""The table of changes: every function of the API that changes something, and the page of each."""

from __future__ import annotations

from orbitlog.console.changes import (
    group_changes,
    letter_changes,
    message_changes,
    setting_changes,
    store_changes,
    topic_changes,
    waiting_changes,
)
from orbitlog.console.changes.planned_change import ChangeKind
from orbitlog.console.session.console_roles import Role

_CLUSTER = "/clusters/{cluster}"
_TOPIC, _GROUP, _MESSAGE = (
    f"{_CLUSTER}/topics/{{topic}}",
    f"{_CLUSTER}/groups/{{group}}",
    f"{_CLUSTER}/messages/{{message}}",
)

TOPIC_CHANGES = (
    ChangeKind(
        "PUT",
        _TOPIC,
        f"{_TOPIC}/change",
        "putTopic",
        "Create a topic, or change its queues, permission or type.",
        topic_changes.PutTopicRequest,
        topic_changes.prepare_put_topic,
        "Create or change topic {topic}",
        "topics",
        Role.ADMIN,
    ),
    ChangeKind(
        "DELETE",
        _TOPIC,
        f"{_TOPIC}/delete",
        "deleteTopic",
        "Delete a topic and its messages.",
        topic_changes.DeleteTopicRequest,
        topic_changes.prepare_delete_topic,
        "Delete topic {topic}",
        "topics",
        Role.ADMIN,
    ),
    ChangeKind(
        "POST",
        f"{_TOPIC}/messages",
        f"{_TOPIC}/send",
        "sendMessage",
        "Send one message.",
        message_changes.SendRequest,
        message_changes.prepare_send,
        "Send to {topic}",
        "topics",
    ),
)
GROUP_CHANGES = (
    ChangeKind(
        "PUT",
        _GROUP,
        f"{_GROUP}/change",
        "putGroup",
        "Create a group, change its settings, or switch consuming on and off.",
        group_changes.PutGroupRequest,
        group_changes.prepare_put_group,
        "Create or change group {group}",
        "groups",
        Role.ADMIN,
    ),
    ChangeKind(
        "DELETE",
        _GROUP,
        f"{_GROUP}/delete",
        "deleteGroup",
        "Delete a group.",
        group_changes.DeleteGroupRequest,
        group_changes.prepare_delete_group,
        "Delete group {group}",
        "groups",
        Role.ADMIN,
    ),
    ChangeKind(
        "POST",
        f"{_GROUP}/moves",
        f"{_GROUP}/move",
        "moveGroup",
        "Move a group to the earliest or latest message, a time or an offset.",
        group_changes.MoveRequest,
        group_changes.prepare_move,
        "Move group {group}",
        "groups",
    ),
)
MESSAGE_CHANGES = (
    ChangeKind(
        "POST",
        f"{_MESSAGE}/copies",
        f"{_MESSAGE}/copy",
        "copyMessage",
        "Send a copy of a message as a new message.",
        message_changes.CopyRequest,
        message_changes.prepare_copy,
        "Send a copy of {message}",
        "messages",
    ),
    ChangeKind(
        "POST",
        f"{_MESSAGE}/deliveries",
        f"{_MESSAGE}/deliver",
        "deliverMessage",
        "Have one member of a group consume a message again.",
        message_changes.DeliveryRequest,
        message_changes.prepare_delivery,
        "Deliver {message}",
        "messages",
    ),
)
WAITING_CHANGES = (
    ChangeKind(
        "POST",
        f"{_CLUSTER}/dead-letters/{{group}}/replays",
        f"{_CLUSTER}/dead-letters/{{group}}/replay",
        "replayDeadLetters",
        "Send dead letters of a group again as new messages.",
        letter_changes.ReplayRequest,
        letter_changes.prepare_replay,
        "Replay dead letters of {group}",
        "dead-letters",
    ),
    ChangeKind(
        "DELETE",
        f"{_CLUSTER}/later/{{message}}",
        f"{_CLUSTER}/later/{{message}}/recall",
        "recallMessage",
        "Recall a scheduled message, so that it is never delivered.",
        waiting_changes.RecallRequest,
        waiting_changes.prepare_recall,
        "Recall message {message}",
        "later",
    ),
    ChangeKind(
        "POST",
        f"{_CLUSTER}/transactions/{{message}}/checks",
        f"{_CLUSTER}/transactions/{{message}}/check",
        "checkTransaction",
        "Have the broker check a pending transaction again.",
        waiting_changes.CheckRequest,
        waiting_changes.prepare_check,
        "Check transaction {message}",
        "transactions",
    ),
)
BROKER_CHANGES = (
    ChangeKind(
        "PUT",
        f"{_CLUSTER}/brokers/{{address}}/settings",
        f"{_CLUSTER}/brokers/{{address}}/change",
        "changeSetting",
        "Change a setting of a running broker.",
        setting_changes.SettingRequest,
        setting_changes.prepare_setting,
        "Change a setting of {address}",
        "brokers",
        Role.ADMIN,
    ),
)
_STORE = "/stores/{store}"
STORE_CHANGES = (
    ChangeKind(
        "POST",
        f"{_STORE}/repairs",
        f"{_STORE}/repair",
        "repairStore",
        "Repair a damaged store.",
        store_changes.RepairRequest,
        store_changes.prepare_repair,
        "Repair store {store}",
        "stores",
        Role.ADMIN,
    ),
    ChangeKind(
        "POST",
        f"{_STORE}/rebuilds",
        f"{_STORE}/rebuild",
        "rebuildStore",
        "Rebuild queues, index or checkpoint of a store from its log.",
        store_changes.RebuildRequest,
        store_changes.prepare_rebuild,
        "Rebuild store {store}",
        "stores",
        Role.ADMIN,
    ),
)
CHANGES: tuple[ChangeKind, ...] = (
    *TOPIC_CHANGES,
    *GROUP_CHANGES,
    *MESSAGE_CHANGES,
    *WAITING_CHANGES,
    *BROKER_CHANGES,
    *STORE_CHANGES,
)
