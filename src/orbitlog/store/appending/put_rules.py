"""Put rules: Java's rules for messages that a store refuses, each with a sentence for the sender.

They are those of `DefaultMessageStore.asyncPutMessage`, of `CommitLog.asyncPutMessages` for batches and of the hook
that a Java broker puts before both (`HookUtils.checkBeforePutMessage`). Two are Orbitlog's own: a topic that is not a
valid directory name is refused, because its messages would never reach a queue, and so is a delay of any member of a
batch, which Java ignores.
"""

from __future__ import annotations

from collections.abc import Sequence

from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats.delay_levels import parse_level
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.store.appending.put_result import PutResult, PutStatus
from orbitlog.storefiles.store_config import StoreConfig

_DELAY = props.DELAY.encode()
_INNER_NUM = props.INNER_NUM.encode()
# Bytes of a batch member on the wire besides body and properties.
_MEMBER_BYTES = 22
# Topic names come from clients, so the cache of valid ones is bounded.
_TOPICS_MAX = 65_536


def _illegal(reason: str) -> PutResult:
    return PutResult(PutStatus.MESSAGE_ILLEGAL, reason=reason)


class PutRules:
    """The rules of one store; caches valid topic names."""

    def __init__(self, config: StoreConfig) -> None:
        self._body_bytes_max = config.message_bytes_max
        self._long_topics = config.rules.compat.long_topics
        self._topics: set[str] = set()

    def refuse(self, message: Message) -> PutResult | None:
        """Return why a message is refused, or None."""
        if message.topic not in self._topics and (refusal := self._refuse_topic(message)):
            return refusal
        if len(message.body) > self._body_bytes_max:
            return _illegal(f"a body of {len(message.body)} bytes is over the limit of {self._body_bytes_max}")
        if message.sys_flag & flags.INNER_BATCH:
            return _illegal("a batch that is to stay one record needs a batch queue, and this store has none")
        if _INNER_NUM in message.properties_raw and props.INNER_NUM in message.properties:
            return _illegal(f"it has the property {props.INNER_NUM}, but is not a batch")
        return None

    def is_too_long(self, batch: Message, added: bytes, count: int) -> bool:
        """Return whether a batch is over the limit with `added` appended to each of its members."""
        return len(batch.body) + count * (len(added) + 1) > self._body_bytes_max

    def refuse_each(self, messages: Sequence[Message]) -> PutResult | None:
        """Return why the first refused message is refused, or None."""
        return next(filter(None, map(self.refuse, messages)), None)

    def refuse_batch(self, messages: Sequence[Message]) -> PutResult | None:
        """Return why messages that were sent together are refused, or None."""
        total_bytes = 0
        for message in messages:
            if refusal := self.refuse(message):
                return refusal
            if message.sys_flag & flags.TRANSACTION_MASK:
                return _illegal("a batch cannot be part of a transaction; send its messages one by one")
            if _DELAY in message.properties_raw and (parse_level(message.properties.get(props.DELAY, "")) or 0) > 0:
                return _illegal("a batch cannot be delayed; send its messages one by one")
            total_bytes += _MEMBER_BYTES + len(message.body) + len(message.properties_raw)
        if total_bytes > self._body_bytes_max:
            return _illegal(f"a batch of {total_bytes} bytes is over the limit of {self._body_bytes_max}")
        return None

    def _refuse_topic(self, message: Message) -> PutResult | None:
        """Check a topic that is not in the cache."""
        topic = message.topic
        if message.version == 2 and not self._long_topics:
            return _illegal("the topic is longer than 127 bytes")
        try:
            names.check_stored_topic(topic)
        except FormatError as error:
            return _illegal(str(error))
        if len(topic) > names.TOPIC_CHARACTERS_MAX and not topic.startswith(names.RETRY_PREFIX):
            return _illegal(f"the topic is longer than {names.TOPIC_CHARACTERS_MAX} bytes")
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        self._topics.add(topic)
        return None
