"""Names of topics and groups: reserved ones, and the rules for all others.

Mirrors Java `TopicValidator`, `MixAll` and `Validators`. A name becomes part of a path, so nothing that the
rules refuse may ever reach the file system.
"""

from __future__ import annotations

import re

from orbitlog.errors import BadField, FormatError, LimitExceeded

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
QUARANTINE_TOPIC = "rmq_sys_QUARANTINE"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
AUTO_CREATE_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
CLOUD_TRACE_TOPIC_PREFIX = "rmq_sys_TRACE_DATA_"
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"

SYSTEM_TOPICS = frozenset(
    (
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    )
)
# A client may not send to these even if it may read them.
NOT_SENDABLE_TOPICS = frozenset(
    (SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC)
)
# The broker acts on the records of these: no message may be delivered to them as if a client had sent it.
WORKING_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, QUARANTINE_TOPIC))

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SYSTEM_GROUPS = frozenset(
    (
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
        TRANSACTION_GROUP,
    )
)

TOPIC_CHARACTERS_MAX = 127
RETRY_TOPIC_CHARACTERS_MAX = 255
GROUP_CHARACTERS_MAX = 255
LIGHT_QUEUE_CHARACTERS_MAX = 255

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
# Java validates names that clients send, not those it builds itself: only its own retry topics contain a plus sign.
_POP_RETRY_V2 = re.compile(r"%RETRY%[%|a-zA-Z0-9_-]+\+[%|a-zA-Z0-9_-]+")


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_sendable_topic(topic: str) -> bool:
    """Return whether a client may send to a topic of that name.

    Topics with the system prefix are the broker's own, except for traces: clients that reach a broker through a cloud
    access point send these to `rmq_sys_TRACE_DATA_<region>`.
    """
    if topic.startswith(SYSTEM_TOPIC_PREFIX):
        return topic.startswith(CLOUD_TRACE_TOPIC_PREFIX)
    return topic not in NOT_SENDABLE_TOPICS


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def check_topic(topic: str) -> str:
    """Return the topic if a broker accepts its name."""
    if topic.startswith(LMQ_PREFIX):
        _check_name("topic", topic.replace("$", "_"), LIGHT_QUEUE_CHARACTERS_MAX)  # $: lite topics of 5.5
        return topic
    limit = RETRY_TOPIC_CHARACTERS_MAX if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) else TOPIC_CHARACTERS_MAX
    return _check_name("topic", topic, limit)


def check_stored_topic(topic: str) -> str:
    """Return the topic if a store may contain it: names that `check_topic` accepts, and `%RETRY%group+topic`."""
    if not _POP_RETRY_V2.fullmatch(topic):
        return check_topic(topic)
    if len(topic) > RETRY_TOPIC_CHARACTERS_MAX:
        raise LimitExceeded(field="topic length", limit=RETRY_TOPIC_CHARACTERS_MAX, got=len(topic))
    return topic


def is_topic(topic: str) -> bool:
    """Return whether a broker accepts a topic of that name."""
    try:
        check_topic(topic)
    except FormatError:
        return False
    return True


def is_stored_topic(topic: str) -> bool:
    """Return whether a store may contain a topic of that name."""
    try:
        check_stored_topic(topic)
    except FormatError:
        return False
    return True


def check_group(group: str) -> str:
    """Return the group if a broker accepts its name."""
    return _check_name("group", group, GROUP_CHARACTERS_MAX)


def _check_name(kind: str, name: str, limit: int) -> str:
    if not name.strip():
        raise BadField("is blank; give it a name", field=kind)
    if not _NAME.fullmatch(name):
        raise BadField(f"{name!r} has characters other than letters, digits and % | _ -", field=kind)
    if len(name) > limit:
        raise LimitExceeded(field=f"{kind} length", limit=limit, got=len(name))
    return name


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DLQ_PREFIX + group


def lite_queue(topic: str, lite_topic: str) -> str:
    """Return the light queue of a lite topic (5.5); its messages are also sent to its parent."""
    return f"{LMQ_PREFIX}${topic}${lite_topic}"


def pop_retry_topic(group: str, topic: str, *, is_v2: bool = False) -> str:
    """Return the POP retry topic of a group and topic, in the form of `enableRetryTopicV2`. Mirrors `KeyBuilder`."""
    return f"{RETRY_PREFIX}{group}{'+' if is_v2 else '_'}{topic}"


def is_pop_retry_v2(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX) and "+" in topic


def popped_topic(topic: str, group: str) -> str:
    """Return the topic that a consumer subscribed to, given the topic a message was popped from."""
    for separator in ("+", "_"):
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic


def revive_topic(cluster: str) -> str:
    """Return the topic in which a Java broker keeps POP check points and acknowledgements."""
    return REVIVE_TOPIC_PREFIX + cluster
