"""Send rules: decide whether a send is refused, stored as sent, or needs the slow path.

Every condition of a send is one entry of `SEND_RULES`, and both paths evaluate the same entries. A new rule (an access
check, a quota) is a new entry. Its class states how the fast path obeys it:

- `HeaderRule`: the verdict follows from the header fields in `cached_on`, the connection, the topic table and the
  settings. The slow path evaluates it; a send template keeps the verdict. Templates end with their connection, and
  with every change of topics or settings.
- `MessageRule`: the verdict also follows from body, properties or state (a counter). Both paths evaluate it for every
  message; one that does not pass is left to the slow path, which evaluates it from the start and sends the refusal.
- `PropertyRule`: concerns messages with certain properties. These are special: the fast path never takes them.

The module is pure: no I/O, no clock, no random numbers, no table is changed; quotas alone are used up. Refusals of the
store itself (`store.appending.put_rules`) follow later, on both paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from orbitlog.broker.admin.name_checks import checked_topic
from orbitlog.errors import RequestRefused
from orbitlog.formats import names
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import MEMBER_BYTES_MIN, member_count
from orbitlog.formats.records.properties import NAME_END, PROPERTIES_BYTES_MAX, PROPERTY_END
from orbitlog.formats.records.transaction_ops import CHECK_TIMES, PREPARED_QUEUE_OFFSET
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.settings.limits import BATCH_MESSAGES
from orbitlog.settings.setting import Setting
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.send_headers import SendMessageRequest

if TYPE_CHECKING:
    from orbitlog.access.account_quotas import AccountQuota

# Header fields that belong to one message, with their names on the wire (SEND_MESSAGE_V2). A template does not compare
# them. It keeps the valid values of `queue_id`, so that a header rule may depend on that one.
MESSAGE_FIELDS = {"queue_id": "e", "born_timestamp_ms": "g", "properties": "i"}

POP_RECEIPT = "POP_CK"
_NO_WAIT = f"{props.WAIT}{NAME_END}false"
_UNIQ_KEY = props.UNIQ_KEY + NAME_END
# Room for what the broker adds to a half message besides its unique id: names of properties, topic, queue.
_HALF_PROPERTIES_BYTES = 512
# The bytes of UTF-8 that a character takes at most: properties below a quarter of a limit need not be encoded.
_CHARACTER_BYTES_MAX = 4
_IPV6_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6


class Refusal(NamedTuple):
    """The response to a send that is not stored."""

    code: ResponseCode
    remark: str
    limit: Setting[int] | None = None
    """The limit that the send exceeds, if its counter is to show it."""


class SlowPath(Enum):
    """Why an accepted message may not take the fast path."""

    REWRITE = "the broker changes its properties"
    STORE = "its record may need a property CRC, or be too large"
    ANSWER = "its response does not wait for the flush"


class SendKind(Enum):
    """The three forms of a send; rules may apply to some of them."""

    SINGLE = "single"
    HALF = "half"
    BATCH = "batch"


_ALL = frozenset(SendKind)
_SINGLE, _HALF, _BATCH = (frozenset((kind,)) for kind in SendKind)


class SendLimits(NamedTuple):
    """Settings that rules depend on."""

    body_bytes_max: int
    properties_bytes_max: int
    """Of the properties as sent: with those that the broker adds they fill a record's field."""
    half_properties_bytes_max: int
    rejects_transactions: bool
    waits_for_flush: bool
    batch_messages_max: int


def send_limits(
    body_bytes_max: int,
    added_bytes: int,
    *,
    rejects_transactions: bool,
    waits_for_flush: bool,
    batch_messages_max: int = BATCH_MESSAGES.default,
) -> SendLimits:
    """Return limits for a broker that adds properties of `added_bytes` to each message."""
    room_bytes = PROPERTIES_BYTES_MAX - added_bytes - len(PROPERTY_END)
    # A half message repeats its unique id, which is a part of its properties.
    half_room_bytes = (room_bytes - _HALF_PROPERTIES_BYTES) // 2
    return SendLimits(
        *(body_bytes_max, room_bytes, half_room_bytes, rejects_transactions, waits_for_flush, batch_messages_max)
    )


class Send(NamedTuple):
    """What rules know about a send, besides its body and properties.

    On the fast path this is the one that the template keeps, for all of its messages: without `MESSAGE_FIELDS`.
    """

    header: SendMessageRequest
    config: TopicConfig | None
    """None until a missing topic has been created."""
    client_address: tuple[str, int]
    limits: SendLimits
    quota: AccountQuota | None = None
    """The quotas of the account that sends it, if it has any."""


class HeaderRule(NamedTuple):
    """A rule whose verdict a send template keeps; `cached_on` names the header fields that it depends on."""

    name: str
    cached_on: frozenset[str]
    check: Callable[[Send], Refusal | None]
    kinds: frozenset[SendKind] = _ALL
    before_topic: bool = False
    """Whether it is evaluated before a missing topic is created."""


MessageCheck = Callable[[Send, bytes, str], Refusal | SlowPath | None]
"""Takes the send, the body and the text of the properties; returns None if the message may take the fast path.

Must not read `MESSAGE_FIELDS` of the header, except in the arguments.
"""


class MessageRule(NamedTuple):
    """A rule that both paths evaluate for every message."""

    name: str
    check: MessageCheck
    kinds: frozenset[SendKind] = _ALL


class PropertyRule(NamedTuple):
    """A rule for messages that have one of the properties `names`; evaluated on the slow path only."""

    name: str
    names: frozenset[str]
    check: Callable[[SendMessageRequest, Mapping[str, str]], Refusal | None]


SendRule = HeaderRule | MessageRule | PropertyRule


# Topics and queues


def refuse_topic(topic: str, *, exists: bool = False) -> Refusal | None:
    """Return why a client may not send to a topic; None if it may. The name of a topic that exists is valid."""
    is_sendable = names.is_sendable_topic(topic)
    if exists and is_sendable and "+" not in topic:  # clients may not send to `%RETRY%g+t`
        return None
    try:
        checked_topic(topic)
    except RequestRefused as error:
        return Refusal(ResponseCode(error.code), error.remark)
    if not is_sendable:
        return Refusal(ResponseCode.NO_PERMISSION, f"sending to the system topic {topic} is forbidden")
    return None


def _topic_is_sendable(send: Send) -> Refusal | None:
    return refuse_topic(send.header.topic, exists=send.config is not None)


def queue_ids(config: TopicConfig) -> range:
    """Return the queues of a topic that a client may name in a send."""
    return range(max(config.write_queue_count, config.read_queue_count))


def _queue_exists(send: Send) -> Refusal | None:
    config, queue_id = send.config, send.header.queue_id
    assert config is not None
    if queue_id in queue_ids(config):
        return None
    if queue_id >= 0:
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is out of range: topic {config.topic} has {config.read_queue_count} queues to read"
            f" and {config.write_queue_count} to write",
        )
    # A negative number leaves the choice to the broker.
    if config.write_queue_count <= 0:
        return Refusal(ResponseCode.NO_PERMISSION, f"topic {config.topic} has no queue to write to")
    return None


def _batch_topic_is_not_for_retries(send: Send) -> Refusal | None:
    topic = send.header.topic
    if topic.startswith(names.RETRY_PREFIX):
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot go to the retry topic {topic}")
    return None


# Flags


def stored_sys_flag(sys_flag: int) -> int:
    """Return the sysFlag to store, without the bits that the broker sets itself.

    A half message is made by the property TRAN_MSG, and has no transaction bits; the bits of IPv6 hosts follow from
    the connection.
    """
    return sys_flag & ~(flags.TRANSACTION_MASK | _IPV6_BITS)


def _sys_flag_is_plain(send: Send) -> Refusal | None:
    """Refuse bits by which a reader would take the message for a commit, a rollback or an inner batch."""
    sys_flag = send.header.sys_flag
    if sys_flag & flags.TRANSACTION_MASK not in (flags.TransactionType.NONE, flags.TransactionType.PREPARED):
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: sysFlag marks a commit or rollback")
    if sys_flag & (flags.INNER_BATCH | flags.NEED_UNWRAP):
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: sysFlag marks an inner batch")
    return None


# Body and properties


def _body_fits(send: Send, body: bytes, _: str) -> Refusal | None:
    if body and len(body) <= send.limits.body_bytes_max:
        return None
    problem = f"a body of {len(body)} bytes" if body else "it has no body"
    sizes = f"msg body length limit {send.limits.body_bytes_max}B, msg properties length limit 32KB"
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {problem}; {sizes}")


# Properties that the broker does not store as sent if their name starts like this; regular expressions.
_REWRITTEN_NAMES = (
    *(props.DELAY, POP_RECEIPT, props.CLUSTER, props.MSG_REGION, props.TRACE_ON, props.LITE_TOPIC),
    *(props.INNER_MULTI_DISPATCH, re.escape(props.CRC32), "TIMER_[A-Z_]+"),
    f"{props.WAIT}{NAME_END}[^t]",
    f"{_UNIQ_KEY}(?:{PROPERTY_END}|$)",
)
# Properties that the broker writes into half messages itself.
_HALF_NAMES = (PREPARED_QUEUE_OFFSET, CHECK_TIMES, props.TRANSACTION_ID, props.REAL_TOPIC, props.REAL_QUEUE_ID)


def _single_is_stored_as_sent(send: Send, _: bytes, properties: str) -> SlowPath | None:
    if _UNIQ_KEY not in properties or _find_special(PROPERTY_END + properties):
        return SlowPath.REWRITE
    # The same condition as `_record_is_plain`, without the call: this runs for every message.
    if "\0" not in properties and len(properties) * _CHARACTER_BYTES_MAX <= send.limits.properties_bytes_max:
        return None
    return _record_is_plain(send.limits.properties_bytes_max, properties)


def _half_is_stored_as_sent(send: Send, _: bytes, properties: str) -> SlowPath | None:
    if _find_special_in_half(PROPERTY_END + properties):
        return SlowPath.REWRITE
    return _record_is_plain(send.limits.half_properties_bytes_max, properties)


def _record_is_plain(properties_bytes_max: int, properties: str) -> SlowPath | None:
    """Return None if the store takes the properties as they are; it adds a property CRC if they contain a zero."""
    if "\0" in properties:
        return SlowPath.STORE
    if len(properties) * _CHARACTER_BYTES_MAX <= properties_bytes_max:
        return None
    return SlowPath.STORE if len(utf8_encode(properties)) > properties_bytes_max else None


def _transactions_are_accepted(send: Send) -> Refusal | None:
    if send.limits.rejects_transactions:
        remark = "the broker does not take transaction messages (rejectTransactionMessage)"
        return Refusal(ResponseCode.NO_PERMISSION, remark)
    return None


def waits_for_flush(properties: str) -> bool:
    """Return whether the sender wants its response after the flush, if the broker flushes before it responds."""
    return _NO_WAIT not in properties


def _batch_waits_for_flush(send: Send, _: bytes, properties: str) -> SlowPath | None:
    # Responses of a run wait together. A single message with this property is special anyway.
    return SlowPath.ANSWER if send.limits.waits_for_flush and not waits_for_flush(properties) else None


# Special properties


def _inner_num_is_absent(_: SendMessageRequest, properties: Mapping[str, str]) -> Refusal | None:
    if props.INNER_NUM in properties:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"property {props.INNER_NUM} is the broker's own")
    return None


def is_half_message(header: SendMessageRequest, properties: Mapping[str, str]) -> bool:
    """Return whether the properties mark a half message; a delayed retry of one is a message like any other."""
    is_marked = properties.get(props.TRANSACTION_PREPARED, "").lower() == "true"
    return is_marked and not (header.reconsume_times > 0 and props.DELAY in properties)


def _half_is_marked(header: SendMessageRequest, properties: Mapping[str, str]) -> Refusal | None:
    if header.sys_flag & flags.TRANSACTION_MASK and not is_half_message(header, properties):
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal: a half message needs TRAN_MSG")
    return None


# Batches


def refuse_members(body: bytes, count_max: int, limit: Setting[int]) -> Refusal | None:
    """Return the refusal of a batch with more messages than a limit; most batches are too short to need a count."""
    if len(body) <= count_max * MEMBER_BYTES_MIN or member_count(body, count_max + 1) <= count_max:
        return None
    remark = f"the batch has more than {count_max} messages ({limit.key}); send it in parts"
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark, limit)


def _batch_has_few_messages(send: Send, body: bytes, _: str) -> Refusal | None:
    return refuse_members(body, send.limits.batch_messages_max, BATCH_MESSAGES)


# Quotas


def _quota_admits_message(send: Send, body: bytes, _: str) -> Refusal | None:
    return None if send.quota is None else _over_quota(send.quota, 1, len(body))


def _quota_admits_batch(send: Send, body: bytes, _: str) -> Refusal | None:
    return None if send.quota is None else _over_quota(send.quota, member_count(body), len(body))


def _over_quota(quota: AccountQuota, messages: int, size_bytes: int) -> Refusal | None:
    remark = quota.take(messages, size_bytes)
    return None if remark is None else Refusal(ResponseCode.SYSTEM_BUSY, remark)


SEND_RULES: tuple[SendRule, ...] = (
    HeaderRule("topic is sendable", frozenset({"topic"}), _topic_is_sendable, before_topic=True),
    HeaderRule("queue exists", frozenset({"topic", "queue_id"}), _queue_exists),
    MessageRule("body fits", _body_fits),
    HeaderRule("sysFlag is plain", frozenset({"sys_flag"}), _sys_flag_is_plain),
    HeaderRule("batch topic is not a retry topic", frozenset({"topic"}), _batch_topic_is_not_for_retries, _BATCH),
    MessageRule("batch has few messages", _batch_has_few_messages, _BATCH),
    MessageRule("single message is stored as sent", _single_is_stored_as_sent, _SINGLE),
    PropertyRule("INNER_NUM is absent", frozenset({props.INNER_NUM}), _inner_num_is_absent),
    HeaderRule("transactions are accepted", frozenset(), _transactions_are_accepted, _HALF),
    PropertyRule("half message is marked", frozenset({props.TRANSACTION_PREPARED}), _half_is_marked),
    MessageRule("half message is stored as sent", _half_is_stored_as_sent, _HALF),
    MessageRule("batch waits for flush", _batch_waits_for_flush, _BATCH),
)
"""All rules, in the order in which the slow path evaluates them."""
QUOTA_RULES: tuple[SendRule, ...] = (
    MessageRule("message is within the quota", _quota_admits_message, _SINGLE | _HALF),
    MessageRule("batch is within the quota", _quota_admits_batch, _BATCH),
)
"""Rules of brokers with access control. They are evaluated last, because a message that passes takes its tokens."""


_PROPERTY_RULES = tuple(rule for rule in SEND_RULES if isinstance(rule, PropertyRule))
_RULE_NAMES = tuple(sorted(re.escape(name) for rule in _PROPERTY_RULES for name in rule.names))
_SPECIAL = f"{PROPERTY_END}(?:{'|'.join((*_RULE_NAMES, *_REWRITTEN_NAMES))})"
_SPECIAL_IN_HALF = "|".join(
    (*(name for name in _RULE_NAMES if name != props.TRANSACTION_PREPARED), *_REWRITTEN_NAMES, *_HALF_NAMES)
)
# Both start with a literal separator, which the regex engine scans for quickly; an alternative to it ("\\0|...") would
# double the time of a search. So zeros are looked for by themselves.
_find_special = re.compile(_SPECIAL).search
_find_special_in_half = re.compile(f"{PROPERTY_END}(?:{_SPECIAL_IN_HALF})").search


class Verdict(NamedTuple):
    """What the rules decide about a send."""

    refusal: Refusal | None
    is_stored_as_sent: bool
    """Whether its properties are stored as sent, followed by the broker's own."""
    cached_on: frozenset[str] | None
    """The header fields that the verdict depends on, for a template; None if no template may be made of the send."""


class SendRules:
    """Evaluates the rules for one broker; `keeps_wait` is false if it removes the property WAIT from every message."""

    def __init__(self, *, keeps_wait: bool, has_quotas: bool = False, rules: Sequence[SendRule] | None = None) -> None:
        self._rules = (*(SEND_RULES if rules is None else rules), *(QUOTA_RULES if has_quotas else ()))
        self._keeps_wait = keeps_wait
        self.message_checks: dict[SendKind, tuple[MessageCheck, ...]] = {
            kind: tuple(rule.check for rule in self._rules if isinstance(rule, MessageRule) and kind in rule.kinds)
            for kind in SendKind
        }
        """The checks of the message rules: the fast path takes a message for which all of its kind return None."""
        self._cached_on = {
            kind: frozenset[str]().union(
                *(rule.cached_on for rule in self._rules if isinstance(rule, HeaderRule) and kind in rule.kinds)
            )
            for kind in SendKind
        }

    def judge_topic(self, send: Send, kind: SendKind) -> Refusal | None:
        """Return why a send is refused before a missing topic is created; None if it is not."""
        for rule in self._rules:
            if isinstance(rule, HeaderRule) and rule.before_topic and kind in rule.kinds:
                refusal = rule.check(send)
                if refusal is not None:
                    return refusal
        return None

    def judge(self, send: Send, kind: SendKind, body: bytes) -> Verdict:
        """Return the verdict on a send whose topic exists, by its header, its body and the text of its properties."""
        header = send.header
        properties = header.properties or ""
        is_stored_as_sent = self._keeps_wait and not (
            header.sys_flag & flags.TRANSACTION_MASK or header.topic.startswith("%")
        )
        outcome: Refusal | SlowPath | None
        for rule in self._rules:
            if isinstance(rule, PropertyRule) or kind not in rule.kinds:
                continue
            if isinstance(rule, MessageRule):
                outcome = rule.check(send, body, properties)
            elif rule.before_topic:
                continue
            else:
                outcome = rule.check(send)
            if isinstance(outcome, Refusal):
                return Verdict(outcome, False, None)
            is_stored_as_sent = is_stored_as_sent and outcome is not SlowPath.REWRITE
        is_cacheable = kind is SendKind.BATCH or is_stored_as_sent
        return Verdict(None, is_stored_as_sent, self._cached_on[kind] if is_cacheable else None)

    def judge_special(self, send: Send, body: bytes, properties: Mapping[str, str]) -> Verdict:
        """Return the verdict on a single send by its decoded properties, which the broker is about to rewrite.

        `judge` has accepted it as a single message; for a half message the rules of these follow.
        """
        header = send.header
        is_half = is_half_message(header, properties)
        outcome: Refusal | SlowPath | None
        for rule in self._rules:
            if isinstance(rule, PropertyRule):
                outcome = rule.check(header, properties)
            elif not is_half or SendKind.HALF not in rule.kinds or SendKind.SINGLE in rule.kinds:
                continue
            elif isinstance(rule, MessageRule):
                outcome = rule.check(send, body, header.properties or "")
            else:
                outcome = rule.check(send)
            if isinstance(outcome, Refusal):
                return Verdict(outcome, False, None)
        return Verdict(None, False, self._cached_on[SendKind.HALF] if is_half and self._keeps_wait else None)
