"""Topic offsets as JSON: `{"topic": {"broker": {"queue": offset}}}`, always the next offset to read.

With one store the broker may be omitted, as Kafka users write it: `{"topic": {"0": 23}}`. -2 means the earliest offset
and -1 the latest. A checkpoint contains only real offsets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX
from orbitlog.pipeline.sources.broker_stores import OptionError

EARLIEST, LATEST = -2, -1
ANY_BROKER = ""  # in options of a cluster, whose brokers are known only when it is asked
_TEXT_MAX = 8 * 1024 * 1024
_FORM = 'write {"topic":{"broker":{"0":23,"1":-2}}}, or {"topic":{"0":23}} with one store'


class QueueKey(NamedTuple):
    """One queue of one store."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} at {self.broker_name}"


Offsets = dict[QueueKey, int]


def nested(offsets: Mapping[QueueKey, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return offsets in the nested form of the JSON, sorted."""
    result: dict[str, dict[str, dict[str, int]]] = {}
    for key in sorted(offsets):
        result.setdefault(key.topic, {}).setdefault(key.broker_name, {})[str(key.queue_id)] = offsets[key]
    return result


def from_nested(value: Mapping[str, Any]) -> Offsets:
    """Return the offsets of a nested form that `nested` made."""
    return {
        QueueKey(topic, broker_name, int(queue_id)): int(queue_offset)
        for topic, brokers in value.items()
        for broker_name, queues in brokers.items()
        for queue_id, queue_offset in queues.items()
    }


def parse_offsets(text: str, brokers: Sequence[str] | None, option: str) -> Offsets:
    """Parse a user's value of `option`: offsets, or times in milliseconds.

    Without `brokers` every name is accepted, and a queue without one belongs to `ANY_BROKER`.
    """
    value = _json_object(text, option)
    result: Offsets = {}
    for topic, below in value.items():
        if not isinstance(below, dict):
            raise OptionError(f"{option}: the value of topic {topic!r} is not an object; {_FORM}")
        for broker_name, queues in _by_broker(topic, below, brokers, option).items():
            for queue_id, number in queues.items():
                result[QueueKey(topic, broker_name, _queue_id(queue_id, option))] = _number(number, topic, option)
    if not result:
        raise OptionError(f"{option} contains no queue; {_FORM}")
    return result


def parse_assignment(text: str, brokers: Sequence[str] | None) -> frozenset[QueueKey]:
    """Parse `{"topic": [0, 1]}` or `{"topic": {"broker": [0, 1]}}`."""
    form = 'write {"topic":[0,1]}, or {"topic":{"broker":[0,1]}}'
    result: set[QueueKey] = set()
    for topic, below in _json_object(text, "assign", form).items():
        by_broker = below if isinstance(below, dict) else {name: below for name in brokers or (ANY_BROKER,)}
        for broker_name, queue_ids in by_broker.items():
            _check_broker(broker_name, brokers, "assign")
            if not isinstance(queue_ids, list):
                raise OptionError(f"assign: the queues of topic {topic!r} are not a list; {form}")
            result |= {QueueKey(topic, broker_name, _queue_id(number, "assign")) for number in queue_ids}
    if not result:
        raise OptionError(f"assign contains no queue; {form}")
    return frozenset(result)


def _json_object(text: str, option: str, form: str = _FORM) -> dict[str, Any]:
    if len(text) > _TEXT_MAX:
        raise OptionError(f"{option} is longer than {_TEXT_MAX} characters")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{option} is not valid JSON ({error}); {form}") from None
    if not isinstance(value, dict):
        raise OptionError(f"{option} is not a JSON object; {form}")
    return value


def _by_broker(
    topic: str, below: dict[str, Any], brokers: Sequence[str] | None, option: str
) -> dict[str, dict[str, Any]]:
    """Return the queues of each broker; without broker names they belong to the only store."""
    if all(isinstance(queues, dict) for queues in below.values()):
        for broker_name in below:
            _check_broker(broker_name, brokers, option)
        return below
    if any(isinstance(queues, dict) for queues in below.values()):
        raise OptionError(f"{option}: topic {topic!r} mixes brokers and queues; {_FORM}")
    if brokers is None:
        return {ANY_BROKER: below}
    if len(brokers) > 1:
        names = ", ".join(brokers)
        raise OptionError(f"{option}: topic {topic!r} must name the broker, one of {names}; {_FORM}")
    return {brokers[0]: below}


def _check_broker(broker_name: str, brokers: Sequence[str] | None, option: str) -> None:
    if brokers is not None and broker_name not in brokers:
        raise OptionError(f"{option} names broker {broker_name!r}; the stores of the query are {', '.join(brokers)}")


def _queue_id(value: object, option: str) -> int:
    text = str(value)
    digits = text.removeprefix("-")
    if isinstance(value, bool) or not digits.isascii() or not digits.isdecimal() or not len(digits) <= 10:
        raise OptionError(f"{option}: {value!r} is not a valid queue id; {_FORM}")
    if not INT_MIN <= int(text) <= INT_MAX:
        raise OptionError(f"{option}: {value!r} is not a valid queue id; {_FORM}")
    return int(text)


def _number(value: object, topic: str, option: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not EARLIEST <= value <= LONG_MAX:
        raise OptionError(f"{option}: {value!r} under topic {topic!r} is not a valid offset; {_FORM}")
    return value
