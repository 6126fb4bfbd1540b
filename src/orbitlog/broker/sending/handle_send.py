"""Sends: one message or a batch, into a topic that there is or that is made for it. Mirrors `SendMessageProcessor`.

The way of an ordinary message is short and looks at no more of the request than it must: this is the broker's busiest
code. Everything unusual (delays, retries, transactions, topics yet to be made) leaves it by `_unusual` and friends.
"""

from __future__ import annotations

import logging
import random
from typing import NamedTuple
from zlib import crc32

from orbitlog.broker.admin.name_checks import checked_group, checked_topic
from orbitlog.broker.delayed.timed_delivery import recall_handle
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState, host_bits, host_raw
from orbitlog.broker.sending.fast_sends import QuickSends, is_special
from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.broker.sending.message_writer import MessageWriter, refuse
from orbitlog.broker.sending.send_answer import SendAnswers
from orbitlog.broker.sending.sync_flush_sends import SyncedSends
from orbitlog.broker.transactions.fast_transactions import QuickTransactions
from orbitlog.broker.transactions.half_messages import HalfMessages
from orbitlog.broker.transactions.transaction_ends import TransactionEnds
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats import names
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.names import NOT_SENDABLE_TOPICS
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import expand_batch
from orbitlog.formats.records.message import BODY_CRC_MASK, TOPIC_BYTES_MAX_V1, Message, record_version
from orbitlog.formats.records.properties import decode_properties
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.unique_ids import UniqueIds
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.send_headers import SendMessageRequest, SendMessageV2Request

log = logging.getLogger(__name__)

_NO_WAIT = f"{props.WAIT}{props.NAME_END}false"
_IPV6_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6
MAX_RECONSUME_SINCE_VERSION = 121
_NO_TRANSACTIONS = "the broker does not take transaction messages (rejectTransactionMessage)"
_POP_RECEIPT = "POP_CK"
_TOLD_MORE = frozenset((names.TIMER_TOPIC, names.HALF_TOPIC))
_PORT_BYTES = 4


class _Ends(NamedTuple):
    """The two ends of a connection as records hold them, and the bits that tell their sizes."""

    born_raw: bytes
    store_raw: bytes
    sys_flag: int


class SendHandler:
    """Serves 10, 310 and 320."""

    def __init__(
        self,
        state: BrokerState,
        writer: MessageWriter,
        halves: HalfMessages,
        ends: TransactionEnds,
        flushes: FlushQueue | None,
    ) -> None:
        self._state = state
        self._writer = writer
        self._halves = halves
        self._flushes = flushes
        settings = state.settings
        trace_on = "true" if settings[keys.TRACE_ON] else "false"
        self._answers = SendAnswers(settings[keys.REGION], trace_on)
        self._unique_ids = UniqueIds()
        added = {props.CLUSTER: state.cluster_name}
        if state.compat.single_send_adds_region:
            added |= {props.MSG_REGION: settings[keys.REGION], props.TRACE_ON: trace_on}
        self._added = added
        self._added_raw = writer.encode(added)
        self._keeps_wait = state.compat.plain_send_keeps_wait
        self._ends: dict[Connection, _Ends] = {}
        transactions = QuickTransactions(state, halves, ends, added)
        self.quick = QuickSends(state, self._answers, transactions, self._added_raw)
        if flushes is not None:
            self.quick = SyncedSends(state, self._answers, transactions, self._added_raw, flushes=flushes)

    def __call__(self, connection: Connection, request: Command) -> Answer:
        kind = SendMessageRequest if request.code == RequestCode.SEND_MESSAGE else SendMessageV2Request
        header = kind.from_ext_fields(request.ext_fields)
        topic, body = header.topic, request.body
        config = self._state.topics.find(topic)
        if config is None or topic in NOT_SENDABLE_TOPICS or "+" in topic:  # clients may not send to `%RETRY%g+t`
            config = self._make_topic(connection, header)
        queue_id = _chosen_queue(config, header.queue_id)
        if not body or len(body) > self._state.settings[keys.MESSAGE_BYTES]:
            self._refuse_size(len(body))
        ends = self._ends.get(connection) or self._ends_of(connection)
        properties = header.properties or ""
        is_batch = header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE
        is_usual = not (
            is_batch
            or header.sys_flag & flags.TRANSACTION_MASK
            or topic[0] == "%"
            or not self._keeps_wait
            or is_special(properties)
        )
        message = Message(
            0 if is_batch else crc32(body) & BODY_CRC_MASK,  # members have their own
            queue_id,
            header.flag,
            0,
            0,
            _checked_bits(header.sys_flag) | ends.sys_flag,
            header.born_timestamp_ms,
            ends.born_raw,
            0,
            ends.store_raw,
            header.reconsume_times,
            0,
            body,
            topic,
            self._with_added(utf8_encode(properties)) if is_usual else b"",
            1 if len(topic) <= TOPIC_BYTES_MAX_V1 else 2,
        )
        if is_batch:
            return self._send_batch(connection, request, message, properties)
        told: dict[str, str] = {}
        if not is_usual:
            message, told = self._unusual(request, header, message)
        result = self._writer.put(message)
        if result.physical_offset < 0:
            refuse(result)
        if is_usual or (message.topic == names.HALF_TOPIC and self._keeps_wait):
            self.quick.learn(connection, request, message, config)
        if message.topic in _TOLD_MORE:
            frame = self._answers.put_aside(request, ends.store_raw, result, queue_id, told)
        else:
            frame = self._answers.stored(request, ends.store_raw, result.physical_offset, queue_id, result.queue_offset)
        return self._answer(connection, request, frame, result.end, waits=_NO_WAIT not in properties)

    # What every send goes through

    def _ends_of(self, connection: Connection) -> _Ends:
        """Work out, once a connection, what every message over it says of its way."""
        born_raw, store_raw = host_raw(*connection.remote_address), self._state.store_host_raw(connection)
        ends = self._ends[connection] = _Ends(born_raw, store_raw, host_bits(born_raw, store_raw))
        connection.on_close(self._ends.__delitem__)
        return ends

    def _with_added(self, properties_raw: bytes) -> bytes:
        if properties_raw and properties_raw[-1] != 2:
            return properties_raw + b"\x02" + self._added_raw
        return properties_raw + self._added_raw

    def _refuse_size(self, size_bytes: int) -> None:
        limit = self._state.settings[keys.MESSAGE_BYTES]
        problem = f"a body of {size_bytes} bytes" if size_bytes else "it has no body"
        limits = f"msg body length limit {limit}B, msg properties length limit 32KB"
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {problem}; {limits}")

    def _answer(self, connection: Connection, request: Command, frame: bytes, end: int, *, waits: bool) -> Answer:
        if self._flushes is None or not waits:
            return frame
        self._flushes.wait(end, connection, request, frame)
        return None

    def _told_of(self, message: Message, properties: dict[str, str]) -> dict[str, str]:
        """Return what the sender of a message that is put aside needs to take it back, or to end it through a proxy."""
        if message.topic == names.TIMER_TOPIC:
            return {"recallHandle": str(recall_handle(self._state.broker_name, properties))}
        return {"transactionId": properties.get(props.UNIQ_KEY, "")} if message.topic == names.HALF_TOPIC else {}

    # What is unusual

    def _make_topic(self, connection: Connection, header: SendMessageRequest) -> TopicConfig:
        """Return a topic that nobody made yet, or refuse."""
        state = self._state
        topic = checked_topic(header.topic)
        if topic in NOT_SENDABLE_TOPICS:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"sending to the system topic {topic} is forbidden")
        found = state.topics.find(topic)
        if found is not None:
            return found
        if topic.startswith(names.RETRY_PREFIX):
            return state.topics.find_or_create(topic, 1, sys_flag=2 if header.unit_mode else 0)
        made = None
        if state.settings[keys.AUTO_CREATE_TOPIC] or header.default_topic != names.AUTO_CREATE_TOPIC:
            made = state.topics.create_from_template(
                topic, header.default_topic, header.default_topic_queue_count, 1 if header.unit_mode else 0
            )
        if made is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic} does not exist and is not made automatically; make it with `mqadmin updateTopic`",
            )
        log.warning(
            "topic %s auto-created with %d queues by a send from %s; to have another number make it beforehand, to"
            " allow none set autoCreateTopicEnable=false",
            topic,
            made.write_queue_count,
            connection.peer,
        )
        return made

    def _unusual(
        self, request: Command, header: SendMessageRequest, message: Message
    ) -> tuple[Message, dict[str, str]]:
        """Return the message as it is to be stored, its properties looked at one by one, and what is told of it."""
        state = self._state
        properties = decode_properties(utf8_encode(header.properties or ""))
        properties.pop(_POP_RECEIPT, None)
        if message.topic.startswith(names.RETRY_PREFIX):
            message = self._retried(request, header, message, properties)
        if not properties.get(props.UNIQ_KEY) and state.compat.config_has_5x_fields:
            properties[props.UNIQ_KEY] = self._unique_ids.make(message.store_host_raw[:-_PORT_BYTES], state.now_ms())
        lite_topic = properties.get(props.LITE_TOPIC)
        if lite_topic and state.compat.config_has_5x_fields:
            properties[props.INNER_MULTI_DISPATCH] = names.lite_queue(message.topic, lite_topic)
        properties |= self._added
        if not self._keeps_wait:
            properties.pop(props.WAIT, None)
        if props.INNER_NUM in properties:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"property {props.INNER_NUM} is the broker's own")
        is_half = properties.get(props.TRANSACTION_PREPARED, "").lower() == "true"
        if is_half and not (message.reconsume_times > 0 and props.DELAY in properties):
            if state.settings[keys.REJECT_TRANSACTIONS]:
                raise RequestRefused(ResponseCode.NO_PERMISSION, _NO_TRANSACTIONS)
            half = self._halves.prepared(message, properties)
            return half, self._told_of(half, properties)
        if header.sys_flag & flags.TRANSACTION_MASK:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: a half message needs TRAN_MSG")
        message = message._replace(properties_raw=self._writer.encode(properties))
        message = self._writer.schedule(message, properties)
        return message, self._told_of(message, properties)

    def _retried(
        self, request: Command, header: SendMessageRequest, message: Message, properties: dict[str, str]
    ) -> Message:
        """Send what was tried too often to where it waits for people."""
        state = self._state
        group_name = checked_group(message.topic[len(names.RETRY_PREFIX) :])
        group = state.groups.find_or_create(group_name, auto_create=state.settings[keys.AUTO_CREATE_GROUP])
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group {group_name} not exist"
            )
        times_max = group.retry_times_max
        if request.version >= MAX_RECONSUME_SINCE_VERSION and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        in_order = state.locks.is_held(group_name, state.now_ms())
        if message.reconsume_times <= times_max and not in_order:
            return message
        config = state.topics.find_or_create_dead_letter_topic(group_name)
        properties.pop(props.DELAY, None)
        log.warning("group %s gave up on a message after %d tries; it is in %s", group_name, times_max, config.topic)
        return message._replace(topic=config.topic, queue_id=0, version=record_version(config.topic))

    def _send_batch(self, connection: Connection, request: Command, batch: Message, text: str) -> Answer:
        if batch.topic.startswith(names.RETRY_PREFIX):
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot go to the retry topic {batch.topic}")
        added = self._added_raw if self._state.compat.batch_members_get_batch_properties else b""
        whole = self._writer.put_members(batch, added)
        if whole is not None:
            config = self._state.topics.find(batch.topic)
            if config is not None:
                self.quick.learn(connection, request, batch, config)
            frame = self._answers.batch_stored(
                request, batch.store_host_raw, whole.physical_offsets, batch.queue_id, whole.queue_offset
            )
            return self._answer(connection, request, frame, whole.end, waits=_NO_WAIT not in text)
        try:
            messages = expand_batch(batch._replace(properties_raw=added))
        except FormatError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the body is no batch: {error}") from None
        results = self._writer.put_all(messages)
        if not results[0].is_stored:
            refuse(results[0])
        offsets = [result.physical_offset for result in results]
        frame = self._answers.batch_stored(
            request, batch.store_host_raw, offsets, batch.queue_id, results[0].queue_offset
        )
        return self._answer(connection, request, frame, results[-1].end, waits=_NO_WAIT not in text)


def _chosen_queue(config: TopicConfig, queue_id: int) -> int:
    """Return the queue to write to: the one asked for, or any where that is left to the broker."""
    count = config.write_queue_count
    if 0 <= queue_id < count or 0 <= queue_id < config.read_queue_count:
        return queue_id
    if queue_id >= 0:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is not possible: topic {config.topic} has {config.read_queue_count} queues to read"
            f" and {count} to write",
        )
    if count <= 0:
        raise RequestRefused(ResponseCode.NO_PERMISSION, f"topic {config.topic} has no queue to write to")
    return random.randrange(count)  # noqa: S311 - any queue will do


def _checked_bits(sys_flag: int) -> int:
    """Return sysFlag without the sizes of hosts; refuses bits that would let a message be taken for something else."""
    if sys_flag & flags.TRANSACTION_MASK:
        if sys_flag & flags.TRANSACTION_MASK != flags.TransactionType.PREPARED:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: sysFlag says that it is ended")
        sys_flag &= ~flags.TRANSACTION_MASK  # the property TRAN_MSG makes a half message, and those have no bits
    if sys_flag & (flags.INNER_BATCH | flags.NEED_UNWRAP):
        raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: sysFlag says that it holds others")
    return sys_flag & ~_IPV6_BITS
