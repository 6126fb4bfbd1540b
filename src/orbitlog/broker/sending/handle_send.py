"""Send requests, slow path: one message or a batch, with all rules evaluated. Mirrors `SendMessageProcessor`.

Takes every send that the fast path (`fast_sends`) leaves: the first of its kind, special properties, topics yet to be
created, binary headers, refusals. `send_rules` decides; this module carries the verdict out.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from orbitlog.broker.admin.name_checks import checked_group
from orbitlog.broker.delayed.timed_delivery import recall_handle
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState, host_bits, host_raw
from orbitlog.broker.sending.fast_sends import FastSends, SendParts
from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.broker.sending.message_writer import MessageWriter, refuse
from orbitlog.broker.sending.send_answer import SendAnswers
from orbitlog.broker.sending.send_rules import (
    POP_RECEIPT,
    Refusal,
    Send,
    SendKind,
    SendLimits,
    SendRules,
    Verdict,
    is_half_message,
    refuse_members,
    send_limits,
    stored_sys_flag,
    waits_for_flush,
)
from orbitlog.broker.transactions.fast_transactions import FastTransactions
from orbitlog.broker.transactions.half_messages import HalfMessages
from orbitlog.broker.transactions.transaction_ends import TransactionEnds
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats import names
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import expand_batch
from orbitlog.formats.records.message import BODY_CRC_MASK, TOPIC_BYTES_MAX_V1, Message, record_version
from orbitlog.formats.records.properties import decode_properties, join_properties
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.unique_ids import UniqueIds
from orbitlog.settings.limits import BATCH_MESSAGES, SPLIT_BATCH_MESSAGES
from orbitlog.store.appending.put_result import PutResult
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.header_patterns import ACCOUNT_FIELD
from orbitlog.wire.send_headers import SendMessageRequest, SendMessageV2Request

if TYPE_CHECKING:
    from orbitlog.access.account_quotas import AccountQuota, AccountQuotas

log = logging.getLogger(__name__)

MAX_RECONSUME_SINCE_VERSION = 121
_LONGER_ANSWERS = frozenset((names.TIMER_TOPIC, names.HALF_TOPIC))
_PORT_BYTES = 4
_LIGHT_QUEUES = props.INNER_MULTI_DISPATCH.encode()


class _Hosts(NamedTuple):
    """The two ends of a connection as records hold them, and the sysFlag bits of their sizes."""

    born_raw: bytes
    store_raw: bytes
    sys_flag: int


class SendHandler:
    """Serves SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE; owns the fast path, which serves most of them."""

    def __init__(
        self,
        state: BrokerState,
        writer: MessageWriter,
        halves: HalfMessages,
        ends: TransactionEnds,
        flushes: FlushQueue | None,
        *,
        quotas: AccountQuotas | None = None,
        may_publish: Callable[[str, Connection, str], bool] | None = None,
    ) -> None:
        """With `may_publish`, a message enters only those light queues to which its account may send."""
        self._may_publish = may_publish
        self._state = state
        self._quotas = quotas
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
        self._added_to_members = self._added_raw if state.compat.batch_members_get_batch_properties else b""
        self._keeps_wait = state.compat.plain_send_keeps_wait
        self._rules = SendRules(keeps_wait=self._keeps_wait, has_quotas=quotas is not None)
        self._hosts: dict[Connection, _Hosts] = {}
        parts = SendParts(writer, self._answers, self._rules, self._added_raw, self._added_to_members)
        transactions = FastTransactions(writer, halves, ends, self._rules, added)
        self.fast_path = FastSends(state, parts, transactions)
        if flushes is not None:
            from orbitlog.broker.sending.sync_flush_sends import SyncFlushSends

            self.fast_path = SyncFlushSends(state, parts, transactions, flushes)

    def __call__(self, connection: Connection, request: Command) -> Answer:
        decode = SendMessageRequest if request.code == RequestCode.SEND_MESSAGE else SendMessageV2Request
        header = decode.from_ext_fields(request.ext_fields)
        is_batch = header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE
        kind = SendKind.BATCH if is_batch else SendKind.SINGLE
        topic, body = header.topic, request.body
        config = self._state.topics.find(topic)
        account = request.ext_fields.get(ACCOUNT_FIELD) if self._quotas is not None else None
        send = Send(header, config, connection.remote_address, self._limits(), self._quota_of(account))
        self._raise(self._rules.judge_topic(send, kind))
        if config is None:
            config = self._create_topic(connection, header, account)
            send = send._replace(config=config)
        verdict = self._rules.judge(send, kind, body)
        if verdict.refusal is not None and send.quota is not None and verdict.refusal.code == ResponseCode.SYSTEM_BUSY:
            send.quota.refused_count += 1  # here, because the fast path leaves refusals to this one
        self._raise(verdict.refusal)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(config.write_queue_count)  # noqa: S311 - any queue will do
        hosts = self._hosts.get(connection) or self._hosts_of(connection)
        properties = header.properties or ""
        message = Message(
            0 if is_batch else crc32(body) & BODY_CRC_MASK,  # members have their own
            queue_id,
            header.flag,
            0,
            0,
            stored_sys_flag(header.sys_flag) | hosts.sys_flag,
            header.born_timestamp_ms,
            hosts.born_raw,
            0,
            hosts.store_raw,
            header.reconsume_times,
            0,
            body,
            topic,
            join_properties(utf8_encode(properties), self._added_raw) if verdict.is_stored_as_sent else b"",
            1 if len(topic) <= TOPIC_BYTES_MAX_V1 else 2,
        )
        if is_batch:
            frame, end = self._send_batch(connection, request, send, message, verdict)
            return self._answer(connection, request, frame, end, waits=waits_for_flush(properties))
        more_fields: dict[str, str] = {}
        if not verdict.is_stored_as_sent:
            message, verdict, more_fields = self._rewrite(connection, request, send, message)
        result = self._writer.put(message)
        if result.physical_offset < 0:
            refuse(result)
        self.fast_path.learn(connection, request, send, message, verdict)
        if message.topic in _LONGER_ANSWERS:
            frame = self._answers.deferred(request, hosts.store_raw, result, queue_id, more_fields)
        else:
            frame = self._answers.stored(
                request, hosts.store_raw, result.physical_offset, queue_id, result.queue_offset
            )
        return self._answer(connection, request, frame, result.end, waits=waits_for_flush(properties))

    def _quota_of(self, account: str | None) -> AccountQuota | None:
        return None if self._quotas is None else self._quotas.of(account)

    def _limits(self) -> SendLimits:
        """Return the limits that are in force now; an operator may change them while the broker runs."""
        settings = self._state.settings
        return send_limits(
            settings[keys.MESSAGE_BYTES],
            len(self._added_raw),
            rejects_transactions=settings[keys.REJECT_TRANSACTIONS],
            waits_for_flush=self._flushes is not None,
            batch_messages_max=self._state.limits[BATCH_MESSAGES],
        )

    def _hosts_of(self, connection: Connection) -> _Hosts:
        """Return the hosts of messages over a connection, and keep them until it closes."""
        born_raw, store_raw = host_raw(*connection.remote_address), self._state.store_host_raw(connection)
        hosts = self._hosts[connection] = _Hosts(born_raw, store_raw, host_bits(born_raw, store_raw))
        connection.on_close(self._hosts.__delitem__)
        return hosts

    def _answer(self, connection: Connection, request: Command, frame: bytes, end: int, *, waits: bool) -> Answer:
        if self._flushes is None or not waits:
            return frame
        self._flushes.wait(end, connection, request, frame)
        return None

    # Topics that do not exist, properties that are rewritten

    def _create_topic(self, connection: Connection, header: SendMessageRequest, account: str | None) -> TopicConfig:
        """Create the topic of a send; raise `RequestRefused` if the broker does not create topics automatically."""
        state, topic = self._state, header.topic
        if topic.startswith(names.RETRY_PREFIX):
            return state.topics.find_or_create(topic, 1, sys_flag=2 if header.unit_mode else 0)
        created = None
        if self._quotas is not None:
            self._quotas.admit_topics(account, (topic,), lambda name: state.topics.find(name) is not None)
        if state.settings[keys.AUTO_CREATE_TOPIC] or header.default_topic != names.AUTO_CREATE_TOPIC:
            created = state.topics.create_from_template(
                topic, header.default_topic, header.default_topic_queue_count, 1 if header.unit_mode else 0
            )
        if created is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {topic} does not exist and is not created automatically; create it with `mqadmin updateTopic`",
            )
        log.warning(
            "topic %s auto-created with %d queues by a send from %s; to choose the number of queues, create topics"
            " beforehand; to forbid this, set autoCreateTopicEnable=false",
            topic,
            created.write_queue_count,
            connection.peer,
        )
        return created

    def _rewrite(
        self, connection: Connection, request: Command, send: Send, message: Message
    ) -> tuple[Message, Verdict, dict[str, str]]:
        """Return the message to store, its properties rewritten, the verdict on it, and further response fields."""
        state, header = self._state, send.header
        properties = decode_properties(utf8_encode(header.properties or ""))
        properties.pop(POP_RECEIPT, None)
        self._check_light_queues(connection, request, properties)
        if message.topic.startswith(names.RETRY_PREFIX):
            message = self._retry_or_dead_letter(request, header, message, properties)
        if not properties.get(props.UNIQ_KEY) and state.compat.config_has_5x_fields:
            properties[props.UNIQ_KEY] = self._unique_ids.make(message.store_host_raw[:-_PORT_BYTES], state.now_ms())
        lite_topic = properties.get(props.LITE_TOPIC)
        if lite_topic and state.compat.config_has_5x_fields:
            properties[props.INNER_MULTI_DISPATCH] = names.lite_queue(message.topic, lite_topic)
        properties |= self._added
        if not self._keeps_wait:
            properties.pop(props.WAIT, None)
        verdict = self._rules.judge_special(send, message.body, properties)
        self._raise(verdict.refusal)
        if is_half_message(header, properties):
            half = self._halves.prepared(message, properties)
            return half, verdict, self._more_fields(half, properties)
        message = message._replace(properties_raw=self._writer.encode(properties))
        message = self._writer.schedule(message, properties)
        return message, verdict, self._more_fields(message, properties)

    def _check_light_queues(self, connection: Connection, request: Command, properties: dict[str, str]) -> None:
        """Raise `RequestRefused` if a message names a light queue to which its account may not send.

        Offsets in these queues are the broker's to assign: those of a client are removed.
        """
        properties.pop(props.INNER_MULTI_QUEUE_OFFSET, None)
        if self._may_publish is None or props.INNER_MULTI_DISPATCH not in properties:
            return
        account = request.ext_fields.get(ACCOUNT_FIELD, "")
        for queue in filter(None, properties[props.INNER_MULTI_DISPATCH].strip().split(",")):
            if not self._may_publish(account, connection, queue):
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION, f"no permission to send to the queue {queue[:255]} of the message"
                )

    def _more_fields(self, message: Message, properties: dict[str, str]) -> dict[str, str]:
        """Return the response fields that a sender needs to recall a timer message, or to end a half message."""
        if message.topic == names.TIMER_TOPIC:
            return {"recallHandle": str(recall_handle(self._state.broker_name, properties))}
        return {"transactionId": properties.get(props.UNIQ_KEY, "")} if message.topic == names.HALF_TOPIC else {}

    def _retry_or_dead_letter(
        self, request: Command, header: SendMessageRequest, message: Message, properties: dict[str, str]
    ) -> Message:
        """Return a message for a retry topic as it is, or for the dead letter topic after too many attempts."""
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
        log.warning(
            "dead letter: group %s gave up on a message after %d tries; it is in %s",
            group_name,
            times_max,
            config.topic,
        )
        origin = properties.get(props.RETRY_TOPIC, message.topic)
        state.statistics.observers.dead_letter(origin, group_name)
        return message._replace(topic=config.topic, queue_id=0, version=record_version(config.topic))

    def _raise(self, refusal: Refusal | None) -> None:
        """Raise a refusal as `RequestRefused`, which becomes the response."""
        if refusal is not None:
            if refusal.limit is not None:
                self._state.limits.reach(refusal.limit)
            raise RequestRefused(refusal.code, refusal.remark)

    def _send_batch(
        self, connection: Connection, request: Command, send: Send, batch: Message, verdict: Verdict
    ) -> tuple[bytes, int]:
        """Store a batch; return the response frame, and where its last record ends."""
        answers, host = self._answers, batch.store_host_raw
        appended = self._writer.put_members(batch, self._added_to_members)
        if appended is not None:
            self.fast_path.learn(connection, request, send, batch, verdict)
            end = appended.end
            frame = answers.batch_stored(
                request, host, appended.physical_offsets, batch.queue_id, appended.queue_offset
            )
        else:
            results = self._put_expanded(connection, request, batch)
            offsets, end = [result.physical_offset for result in results], results[-1].end
            frame = answers.batch_stored(request, host, offsets, batch.queue_id, results[0].queue_offset)
        return frame, end

    def _with_own_light_queues(self, connection: Connection, request: Command, message: Message) -> Message:
        """Return a member of a batch, its light queues checked."""
        if _LIGHT_QUEUES not in message.properties_raw:
            return message
        properties = message.properties
        self._check_light_queues(connection, request, properties)
        return message._replace(properties_raw=self._writer.encode(properties))

    def _put_expanded(self, connection: Connection, request: Command, batch: Message) -> list[PutResult]:
        """Store the members of a batch as messages of their own; raise `RequestRefused` if it is invalid."""
        limits = self._state.limits
        self._raise(refuse_members(batch.body, limits[SPLIT_BATCH_MESSAGES], SPLIT_BATCH_MESSAGES))
        try:
            messages = expand_batch(batch._replace(properties_raw=self._added_to_members))
        except FormatError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the body is not a valid batch: {error}") from None
        messages = [self._with_own_light_queues(connection, request, message) for message in messages]
        results = self._writer.put_all(messages)
        if not results[0].is_stored:
            refuse(results[0])
        return results
