from __future__ import annotations

import pytest

from orbitlog.errors import BadField, LimitExceeded
from orbitlog.formats import names


@pytest.mark.parametrize(
    "name", ["T", "TopicTest", "%RETRY%group", "a|b", "a-b_c", "0", "-", "%", "t" * 127, "RMQ_SYS_TRACE_TOPIC"]
)
def test_names_that_a_broker_accepts(name: str) -> None:
    assert names.check_topic(name) == name
    assert names.check_group(name) == name


@pytest.mark.parametrize("name", ["", " ", "\t\n", "\u3000"])
def test_a_blank_name(name: str) -> None:
    for check, field in ((names.check_topic, "topic"), (names.check_group, "group")):
        with pytest.raises(BadField, match="is blank") as caught:
            check(name)
        assert caught.value.field == field


@pytest.mark.parametrize(
    "name", ["a b", "a/b", "..", ".", "a.b", "a\\b", "a\0", "a\n", "\na", "ä", "中", "a+b", "a#b", "a@b", "~", "/etc"]
)
def test_nothing_that_could_leave_a_directory_passes(name: str) -> None:
    for check in (names.check_topic, names.check_group):
        with pytest.raises(BadField, match="characters other than"):
            check(name)


@pytest.mark.parametrize(
    ("prefix", "limit"), [("", 127), ("%LMQ%", 255), (names.RETRY_PREFIX, 255), (names.DLQ_PREFIX, 255)]
)
def test_topic_lengths(prefix: str, limit: int) -> None:
    longest = prefix + "t" * (limit - len(prefix))
    assert names.check_topic(longest) == longest
    with pytest.raises(LimitExceeded) as caught:
        names.check_topic(longest + "t")
    assert (caught.value.field, caught.value.limit) == ("topic length", limit)


def test_group_lengths() -> None:
    assert names.check_group("g" * 255)
    with pytest.raises(LimitExceeded) as caught:
        names.check_group("g" * 256)
    assert caught.value.field == "group length"


def test_names_made_of_names() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dead_letter_topic("g") == "%DLQ%g"
    assert names.pop_retry_topic("g", "t") == "%RETRY%g_t"
    assert names.pop_retry_topic("g", "t", is_v2=True) == "%RETRY%g+t"
    assert names.revive_topic("c") == "rmq_sys_REVIVE_LOG_c"


def test_popped_topic_is_what_a_retry_topic_belongs_to() -> None:
    for is_v2 in (False, True):
        assert names.popped_topic(names.pop_retry_topic("g_1", "t_2", is_v2=is_v2), "g_1") == "t_2"
    assert names.popped_topic("t", "g") == "t"
    assert names.popped_topic("%RETRY%g", "g") == "%RETRY%g"


def test_only_a_pop_retry_topic_may_contain_a_plus_sign_in_a_store() -> None:
    assert names.check_stored_topic("%RETRY%g+t") == "%RETRY%g+t"
    assert names.check_stored_topic("Orders") == "Orders"
    for name in ("a+b", "%RETRY%+t", "%RETRY%g+", "%RETRY%g+t+u", "%DLQ%g+t", "%RETRY%../g+t", "%RETRY%g+a/b", "+"):
        with pytest.raises(BadField, match="characters other than"):
            names.check_stored_topic(name)
    with pytest.raises(BadField):
        names.check_topic("%RETRY%g+t")
    with pytest.raises(LimitExceeded):
        names.check_stored_topic("%RETRY%g+" + "t" * 247)


def test_system_topics() -> None:
    for topic in (
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
    ):
        assert names.is_system_topic(topic)
        assert names.check_topic(topic) == topic
    for topic in ("TopicTest", "%RETRY%g", "RMQ_SYS_", "rmq_sys"):
        assert not names.is_system_topic(topic)
    assert names.NOT_SENDABLE_TOPICS < names.SYSTEM_TOPICS
    assert names.TRACE_TOPIC not in names.NOT_SENDABLE_TOPICS


def test_system_groups() -> None:
    for group in ("TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP", "CLIENT_INNER_PRODUCER"):
        assert names.is_system_group(group)
    for group in ("g", "CID_RMQ", "cid_rmq_sys_x"):
        assert not names.is_system_group(group)
