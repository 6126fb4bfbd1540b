"""Light queues (LMQ): assigns the queue offsets of a message in the queues that `INNER_MULTI_DISPATCH` names.

With `enableLmq` and `enableMultiDispatch` a message gets a unit in each of these queues besides its own. Its record
contains their queue offsets (`INNER_MULTI_QUEUE_OFFSET`): dispatch only copies them. Mirrors Java `LmqDispatch` (5.x)
and `MultiDispatch` (4.9), and refuses what makes a Java broker lose units or stop dispatching: names that are not those
of light queues (5.x), and settings of which one is on and the other is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitlog.errors import BadField
from orbitlog.formats import names
from orbitlog.formats.compat import Compat
from orbitlog.formats.derived.derive import allows_light_queues
from orbitlog.formats.java import split
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.properties import encode_properties
from orbitlog.storefiles.store_config import LightQueueConfig

QueueKey = tuple[str, int]
LIGHT_QUEUES_MARK = f"{props.INNER_MULTI_DISPATCH}{props.NAME_END}".encode()


class LightQueues:
    """Assigns offsets in light queues by the settings of one store."""

    def __init__(self, config: LightQueueConfig, compat: Compat) -> None:
        self._config = config
        self._is_5x = compat.config_has_5x_fields
        self._trailing_separator = compat.trailing_property_separator

    def assign(
        self, message: Message, next_queue_offsets: Mapping[QueueKey, int], following: dict[QueueKey, int]
    ) -> Message:
        """Return the message as it is stored; the next offsets of its light queues are put into `following`.

        Raise `BadField` if one of the queues that it names cannot get it.
        """
        if not (self._config.lmq or self._config.multi_dispatch) or LIGHT_QUEUES_MARK not in message.properties_raw:
            return message
        properties = message.properties
        targets = split(properties.get(props.INNER_MULTI_DISPATCH, "").strip(), ",")
        if not any(targets) or not allows_light_queues(message.topic) or message.topic == names.HALF_TOPIC:
            return message
        if not self._is_5x or self._config.lmq:
            self._check_settings()
        else:
            return message  # as Java 5.x with enableMultiDispatch alone: the property has no effect
        offsets = [self._assign(target, message.queue_id, next_queue_offsets, following) for target in targets]
        properties[props.INNER_MULTI_QUEUE_OFFSET] = ",".join(map(str, offsets))
        if not self._is_5x:
            properties.pop(props.WAIT, None)
        raw = encode_properties(properties, trailing_separator=self._trailing_separator)
        return message._replace(properties_raw=raw)

    def _check_settings(self) -> None:
        for key, is_on in (("enableLmq", self._config.lmq), ("enableMultiDispatch", self._config.multi_dispatch)):
            if not is_on:
                raise _illegal(f"the broker has no light queues: it needs {key}=true as well")

    def _assign(
        self, target: str, queue_id: int, next_queue_offsets: Mapping[QueueKey, int], following: dict[QueueKey, int]
    ) -> int:
        is_light = target.startswith(names.LMQ_PREFIX)
        if not is_light and self._is_5x:
            raise _illegal(f"{target[:255]!r} does not begin with {names.LMQ_PREFIX}")
        names.check_topic(target)
        key = target, 0 if is_light else queue_id
        queue_offset = following.get(key, next_queue_offsets.get(key, 0))
        if queue_offset == 0 and is_light and not self._is_5x:
            self._check_count(next_queue_offsets)
        following[key] = queue_offset + 1
        return queue_offset

    def _check_count(self, next_queue_offsets: Mapping[QueueKey, int]) -> None:
        count = sum(topic.startswith(names.LMQ_PREFIX) for topic, _ in next_queue_offsets)
        if count >= self._config.queues_max:
            raise _illegal(f"there are {count} light queues already (maxLmqConsumeQueueNum)")


def _illegal(problem: str) -> BadField:
    return BadField(problem, field=props.INNER_MULTI_DISPATCH)
