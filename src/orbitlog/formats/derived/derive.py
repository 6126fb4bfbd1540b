"""What a message means for everything derived from the log: its queue units and its index keys.

The rules live here once for one record; `kernels.dispatch` gives the same for a range of bytes, and one contract
suite holds them together. Mirrors Java `CommitLog.checkMessageAndReturnSize` (tags code),
`ConsumeQueue.putMessagePositionInfoWrapper` and `IndexService.buildIndex`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.formats import names
from orbitlog.formats.compat import COMPAT_5_5, Compat
from orbitlog.formats.delay_levels import STANDARD_LEVELS, DelayLevels, parse_level
from orbitlog.formats.derived.index_layout import index_key, key_hash, tags_index_key
from orbitlog.formats.derived.queue_entry import QueueEntry
from orbitlog.formats.java import split, string_hash
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message


@dataclass(frozen=True, slots=True)
class DeriveRules:
    """What decides the derived bytes besides the log itself."""

    compat: Compat = COMPAT_5_5
    delay_levels: DelayLevels = STANDARD_LEVELS
    multi_dispatch: bool = False


@dataclass(frozen=True, slots=True)
class QueueUnit:
    """A unit and the queue it belongs into."""

    topic: str
    queue_id: int
    queue_offset: int
    entry: QueueEntry


def tags_code(message: Message, properties: dict[str, str], levels: DelayLevels) -> int:
    """Return the hash of the tags, or the delivery time of a message that waits in the schedule topic."""
    if message.topic == names.SCHEDULE_TOPIC and props.DELAY in properties:
        # Java skips the record if DELAY is not a number; the tag hash is a harmless fallback.
        level = levels.clamp(parse_level(properties[props.DELAY]) or 0)
        if level > 0:
            return levels.deliver_timestamp_ms(level, message.store_timestamp_ms)
    tags = properties.get(props.TAGS)
    return string_hash(tags) if tags else 0


def queue_units(message: Message, rules: DeriveRules, properties: dict[str, str] | None = None) -> list[QueueUnit]:
    """Return the message's unit, and one more for each light queue it was also sent to.

    A caller that has decoded the properties passes them.
    """
    if not flags.enters_queue(message.sys_flag):
        return []
    properties = message.properties if properties is None else properties
    code = tags_code(message, properties, rules.delay_levels)
    entry = QueueEntry(message.physical_offset, message.size_bytes, code)
    units = [QueueUnit(message.topic, message.queue_id, message.queue_offset, entry)]
    if rules.multi_dispatch:
        units += _light_queue_units(message, properties, entry)
    return units


def allows_light_queues(topic: str) -> bool:
    """Return whether records of a topic enter light queues: retries carry the offsets of the record before them."""
    return topic != names.SCHEDULE_TOPIC and not topic.startswith((names.RETRY_PREFIX, names.SYSTEM_TOPIC_PREFIX))


def _light_queue_units(message: Message, properties: dict[str, str], entry: QueueEntry) -> list[QueueUnit]:
    """Return the units in light queues; none if they are not numbered properly, as Java's broker has it."""
    queues = properties.get(props.INNER_MULTI_DISPATCH, "")
    offsets = properties.get(props.INNER_MULTI_QUEUE_OFFSET, "")
    if not queues or not offsets or not allows_light_queues(message.topic):
        return []
    targets, numbers = split(queues, ","), split(offsets, ",")
    if len(targets) != len(numbers) or not all(number.isdecimal() and len(number) < 19 for number in numbers):
        return []
    return [
        QueueUnit(target, 0 if target.startswith(names.LMQ_PREFIX) else message.queue_id, int(number), entry)
        for target, number in zip(targets, numbers, strict=True)
        if names.is_topic(target)
    ]


def index_keys(message: Message, compat: Compat, properties: dict[str, str] | None = None) -> list[str]:
    """Return the keys under which the index finds the message, in the order in which they are put."""
    if not message.transaction_type.enters_index:
        return []
    properties = message.properties if properties is None else properties
    keys = []
    if unique_key := properties.get(props.UNIQ_KEY):
        keys.append(index_key(message.topic, unique_key))
    keys += [index_key(message.topic, key) for key in properties.get(props.KEYS, "").split(props.KEY_SEPARATOR) if key]
    tags = properties.get(props.TAGS)
    if compat.indexes_tags and tags:
        keys.append(tags_index_key(message.topic, tags))
    return keys


def index_hashes(message: Message, compat: Compat, properties: dict[str, str] | None = None) -> list[int]:
    return [key_hash(key) for key in index_keys(message, compat, properties)]
