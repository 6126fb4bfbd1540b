"""Quarantine: a system topic for messages that can never be delivered, so that they do not block those after them.

A delayed, timer, half, popped or retried message may have an invalid target, or properties that fill a record's field
before the broker adds its own. The store refuses such a message at every attempt. A copy is appended to
rmq_sys_QUARANTINE, with the reason and the position of the original in properties, and delivery continues. Progress
past the original is saved only after the log is flushed: after a crash the copy exists, or delivery is retried.
Operators read the topic with `orbitlog message quarantined`.
"""

from __future__ import annotations

import logging

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.formats import names
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.properties import CRC_PROPERTY_BYTES, PROPERTIES_BYTES_MAX
from orbitlog.store.appending.put_result import PutResult, PutStatus

log = logging.getLogger(__name__)

_QUEUE_ID = 0
_REASON_CHARACTERS_MAX = 200
_OMITTED_CHARACTERS_MAX = 1_000
_OMITTED_BYTES_MAX = 4 * _OMITTED_CHARACTERS_MAX + len(props.QUARANTINE_OMITTED) + 2
_FINAL = frozenset((PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED))
# Properties by which the store would treat the copy as a batch, or dispatch it to light queues.
_NEVER_COPIED = frozenset(
    (props.INNER_NUM, props.INNER_MULTI_DISPATCH, props.INNER_MULTI_QUEUE_OFFSET, props.CRC32, props.WAIT)
)


def is_final(result: PutResult) -> bool:
    """Return whether the store would refuse the message at every further attempt."""
    return result.status in _FINAL


class Quarantine:
    """Moves messages of one broker to its quarantine topic."""

    def __init__(self, state: BrokerState, writer: MessageWriter) -> None:
        self._state = state
        self._writer = writer

    def deliver(self, original: Message, *copies: Message) -> bool:
        """Append the first copy that the store accepts; move the original if it refuses all of them for good.

        Return False if the store refuses messages now: the caller retries later, and must not pass the original.
        """
        reason = "no copy"
        for copy in copies:
            result = self._writer.put(copy)
            if result.is_stored:
                return True
            reason = result.reason or result.status.value
            if not is_final(result):
                log.warning("delivery of a message to %.255s is postponed: %s", copy.topic, reason)
                return False
        return self.move(original, reason)

    def move(self, original: Message, reason: str) -> bool:
        """Append a copy of a message to the quarantine topic; return False if the store refuses messages now."""
        self._state.topics.find_or_create(names.QUARANTINE_TOPIC, 1)
        result = self._writer.put(self._copy(original, reason, original.body, ()))
        if is_final(result):
            # The body is over the limit of this store: the record is from another one.
            result = self._writer.put(self._copy(original, reason, b"", ("body",)))
        if not result.is_stored:
            log.warning("quarantine of a message is postponed: %s", result.reason or result.status.value)
            return False
        log.error(
            "quarantined a message of %.255s queue %d, physical offset %d: %.200s; list it with"
            " `orbitlog message quarantined`",
            *(original.topic, original.queue_id, original.physical_offset, reason),
        )
        return True

    def _copy(self, original: Message, reason: str, body: bytes, omitted: tuple[str, ...]) -> Message:
        kept_bits = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6 | flags.COMPRESSED | flags.COMPRESSION_MASK
        return original._replace(
            topic=names.QUARANTINE_TOPIC,
            queue_id=_QUEUE_ID,
            sys_flag=original.sys_flag & kept_bits,
            prepared_transaction_offset=0,
            body=body,
            body_crc=original.body_crc if body else 0,
            properties_raw=self._properties(original, reason, omitted),
            version=1,
        )

    def _properties(self, original: Message, reason: str, omitted: tuple[str, ...]) -> bytes:
        """Return the original's properties and the reason, without the longest ones if they do not fit.

        QUARANTINE_OMITTED lists the names of those, and `body` if the store does not take a body of that size.
        """
        added = {
            props.QUARANTINE_REASON: reason.replace(props.PROPERTY_END, " ")[:_REASON_CHARACTERS_MAX],
            props.QUARANTINE_TOPIC: original.topic,
            props.QUARANTINE_QUEUE_ID: str(original.queue_id),
            props.QUARANTINE_QUEUE_OFFSET: str(original.queue_offset),
            props.QUARANTINE_PHYSICAL_OFFSET: str(original.physical_offset),
        }
        own_names = _NEVER_COPIED | {*added, props.QUARANTINE_OMITTED}
        found = {name: value for name, value in original.properties.items() if name not in own_names}
        room_bytes = PROPERTIES_BYTES_MAX - CRC_PROPERTY_BYTES - len(self._writer.encode(added))
        kept, left_out = _fitting(found, room_bytes)
        if left_out or omitted:
            added[props.QUARANTINE_OMITTED] = " ".join((*omitted, *left_out))[:_OMITTED_CHARACTERS_MAX]
        return self._writer.encode(kept | added)


def _fitting(properties: dict[str, str], room_bytes: int) -> tuple[dict[str, str], list[str]]:
    """Return the properties that fit, and the names of the longest ones, which do not."""
    sizes = {name: len(utf8_encode(name + value)) + 2 for name, value in properties.items()}
    used_bytes = sum(sizes.values())
    if used_bytes <= room_bytes:
        return properties, []
    left_out: list[str] = []
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if used_bytes <= room_bytes - _OMITTED_BYTES_MAX:
            break
        used_bytes -= sizes[name]
        left_out.append(name)
    return {name: value for name, value in properties.items() if name not in {*left_out}}, left_out
