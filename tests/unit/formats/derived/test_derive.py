from __future__ import annotations

import pytest

from orbitlog.formats import names
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.delay_levels import STANDARD_LEVELS, DelayLevels
from orbitlog.formats.derived.derive import DeriveRules, QueueUnit, index_hashes, index_keys, queue_units, tags_code
from orbitlog.formats.derived.index_layout import key_hash
from orbitlog.formats.derived.queue_entry import QueueEntry
from orbitlog.formats.names import SCHEDULE_TOPIC
from orbitlog.formats.records.message import Message, make_message

STORED_MS = 1_600_000_000_456
MULTI_DISPATCH = DeriveRules(multi_dispatch=True)


def stored(topic: str = "Topic", *, sys_flag: int = 0, queue_id: int = 3, **properties: str) -> Message:
    return make_message(
        topic,
        b"body",
        properties=properties,
        sys_flag=sys_flag,
        queue_id=queue_id,
        queue_offset=5,
        physical_offset=1000,
        store_timestamp_ms=STORED_MS,
    )


def code_of(message: Message, levels: DelayLevels = STANDARD_LEVELS) -> int:
    return tags_code(message, message.properties, levels)


@pytest.mark.parametrize(
    ("tags", "code"),
    [("TagA", 2598919), ("中文", 646394), ("polygenelubricants", -(2**31)), ("a||b", 3012833), ("*", 42)],
)
def test_the_code_of_tags_is_their_hash(tags: str, code: int) -> None:
    assert code_of(stored(TAGS=tags)) == code
    assert code_of(stored(TAGS=tags, DELAY="3")) == code, "DELAY counts in the schedule topic only"
    assert code_of(stored(TAGS=tags, sys_flag=2)) == code, "MULTI_TAGS changes nothing"


def test_no_tags_no_code() -> None:
    assert code_of(stored()) == 0
    assert code_of(stored(TAGS="")) == 0


@pytest.mark.parametrize(
    ("delay", "code"),
    [
        ("1", STORED_MS + 1_000),
        ("18", STORED_MS + 7_200_000),
        ("19", STORED_MS + 7_200_000),
        ("2147483647", STORED_MS + 7_200_000),
        ("+2", STORED_MS + 5_000),
        ("0", 2598919),
        ("-1", 2598919),
        ("2147483648", 2598919),
        ("soon", 2598919),
    ],
)
def test_in_the_schedule_topic_the_code_is_the_time_of_delivery(delay: str, code: int) -> None:
    assert code_of(stored(SCHEDULE_TOPIC, TAGS="TagA", DELAY=delay)) == code


def test_the_schedule_topic_without_a_level() -> None:
    assert code_of(stored(SCHEDULE_TOPIC, TAGS="TagA")) == 2598919


def test_without_a_table_of_levels_java_falls_back_to_the_tags() -> None:
    """4.9.2 to 4.9.8 read the table after recovery, so what recovery dispatches has no level at all."""
    assert code_of(stored(SCHEDULE_TOPIC, TAGS="TagA", DELAY="3"), DelayLevels(())) == 2598919
    assert code_of(stored(SCHEDULE_TOPIC, DELAY="3"), DelayLevels(())) == 0


@pytest.mark.parametrize(("sys_flag", "enters"), [(0x0, True), (0x4, False), (0x8, True), (0xC, False)])
def test_only_plain_and_committed_messages_enter_a_queue(sys_flag: int, enters: bool) -> None:
    message = stored(sys_flag=sys_flag, TAGS="TagA")
    unit = QueueUnit("Topic", 3, 5, QueueEntry(1000, message.size_bytes, 2598919))
    assert queue_units(message, DeriveRules()) == ([unit] if enters else [])


def test_a_negative_queue_id_is_kept() -> None:
    assert [unit.queue_id for unit in queue_units(stored(queue_id=-3), DeriveRules())] == [-3]


def test_light_queues_get_the_same_entry() -> None:
    message = stored(TAGS="TagA", INNER_MULTI_DISPATCH="%LMQ%a,Plain,%LMQ%x/y", INNER_MULTI_QUEUE_OFFSET="7,8,9")
    own, *others = queue_units(message, MULTI_DISPATCH)
    assert others == [QueueUnit("%LMQ%a", 0, 7, own.entry), QueueUnit("Plain", 3, 8, own.entry)]
    assert queue_units(message, DeriveRules()) == [own]


@pytest.mark.parametrize(
    ("queues", "offsets", "count"),
    [("%LMQ%a", "", 0), ("", "5", 0), ("%LMQ%a,", "5", 1), ("%LMQ%a", "5,", 1), ("%LMQ%a,,", "5,,", 1)],
)
def test_light_queues_are_split_as_java_splits(queues: str, offsets: str, count: int) -> None:
    message = stored(INNER_MULTI_DISPATCH=queues, INNER_MULTI_QUEUE_OFFSET=offsets)
    assert len(queue_units(message, MULTI_DISPATCH)) == 1 + count


@pytest.mark.parametrize(
    ("queues", "offsets"),
    [
        ("%LMQ%a,%LMQ%b", "5"),
        ("%LMQ%a", "5,6"),
        ("%LMQ%a", "x"),
        ("%LMQ%a", "-1"),
        ("%LMQ%a", "9" * 19),
        ("..", "5"),
        ("a b", "5"),
        ("%LMQ%a,,%LMQ%b", "5,6,7"),
    ],
)
def test_light_queues_that_cannot_be_do_not_keep_a_message_from_its_own(queues: str, offsets: str) -> None:
    message = stored(INNER_MULTI_DISPATCH=queues, INNER_MULTI_QUEUE_OFFSET=offsets)
    units = queue_units(message, MULTI_DISPATCH)
    assert units[0].topic == message.topic
    assert {unit.topic for unit in units[1:]} <= {"%LMQ%a", "%LMQ%b"}


def test_light_queue_of_a_lite_topic_may_have_a_dollar_sign() -> None:
    name = names.lite_queue("Parent", "lite")
    assert name == "%LMQ%$Parent$lite"
    message = stored(INNER_MULTI_DISPATCH=name, INNER_MULTI_QUEUE_OFFSET="5")
    assert queue_units(message, MULTI_DISPATCH)[1].topic == name
    assert not names.is_topic("a$b")


@pytest.mark.parametrize("topic", ["%RETRY%g", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"])
def test_records_that_are_stored_again_keep_out_of_light_queues(topic: str) -> None:
    message = stored(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="5")._replace(topic=topic)
    assert [unit.topic for unit in queue_units(message, MULTI_DISPATCH)] == [topic]


def test_keys_are_put_in_java_s_order() -> None:
    message = stored(TAGS="TagA", KEYS="b a", UNIQ_KEY="U")
    assert index_keys(message, COMPAT_4_9) == ["Topic#U", "Topic#b", "Topic#a"]
    assert index_keys(message, COMPAT_5_5) == ["Topic#U", "Topic#b", "Topic#a", "Topic#T#TagA"]
    assert index_hashes(message, COMPAT_4_9) == [key_hash(key) for key in ("Topic#U", "Topic#b", "Topic#a")]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ("", []),
        (" ", []),
        ("a", ["a"]),
        (" a  b ", ["a", "b"]),
        ("a a", ["a", "a"]),
        ("a\tb", ["a\tb"]),
        ("a,b", ["a,b"]),
        ("键 \N{GRINNING FACE}", ["键", "\N{GRINNING FACE}"]),
    ],
)
def test_keys_are_split_at_single_spaces(keys: str, found: list[str]) -> None:
    assert index_keys(stored(KEYS=keys), COMPAT_4_9) == [f"Topic#{key}" for key in found]


@pytest.mark.parametrize(("sys_flag", "enters"), [(0x0, True), (0x4, True), (0x8, True), (0xC, False)])
def test_all_but_rolled_back_messages_are_indexed(sys_flag: int, enters: bool) -> None:
    assert bool(index_keys(stored(sys_flag=sys_flag, UNIQ_KEY="U", TAGS="t"), COMPAT_5_5)) is enters


def test_a_message_may_have_no_keys() -> None:
    assert index_keys(stored(), COMPAT_5_5) == []
    assert index_keys(stored(TAGS="t"), COMPAT_4_9) == []
