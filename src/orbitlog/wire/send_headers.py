"""Headers of producer requests: sends, transactions, replies, recall (5.x).

Mirrors Java `SendMessageRequestHeader`, `SendMessageRequestHeaderV2`, `EndTransactionRequestHeader` and their kin.
Sends are the hot path: hand-written code, not the declarations, decodes and encodes their header and response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitlog.wire.header_codec import (
    Header,
    boolean,
    integer,
    long,
    missing,
    parse_bool,
    parse_int,
    parse_long,
    parse_numbers,
    text,
)


@dataclass(slots=True)
class SendMessageRequest(Header):
    """Send a message (10, 324); an absent `max_reconsume_times` is not 0."""

    producer_group: str = text("producerGroup")
    topic: str = text("topic")
    default_topic: str = text("defaultTopic")
    default_topic_queue_count: int = integer("defaultTopicQueueNums")
    queue_id: int = integer("queueId")
    sys_flag: int = integer("sysFlag")
    born_timestamp_ms: int = long("bornTimestamp")
    flag: int = integer("flag")
    properties: str | None = text("properties", None)
    reconsume_times: int = integer("reconsumeTimes", 0)
    unit_mode: bool = boolean("unitMode", False)
    max_reconsume_times: int | None = integer("maxReconsumeTimes", None)
    batch: bool = boolean("batch", False)
    broker_name: str | None = text("bname", None)


@dataclass(slots=True)
class SendMessageV2Request(SendMessageRequest):
    """The same with one-letter names (310, 320, 325)."""

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> SendMessageV2Request:
        get = ext_fields.get
        try:
            numbers = parse_numbers(
                (ext_fields["d"], ext_fields["e"], ext_fields["f"], ext_fields["h"], get("j", "0")),
                ("d", "e", "f", "h", "j"),
            )
            queue_count, queue_id, sys_flag, flag, reconsume_times = numbers
            return cls(
                ext_fields["a"],
                ext_fields["b"],
                ext_fields["c"],
                queue_count,
                queue_id,
                sys_flag,
                parse_long(ext_fields["g"], "g"),
                flag,
                get("i"),
                reconsume_times,
                get("k") == "true" or parse_bool(get("k", "")),
                None if (times := get("l")) is None else parse_int(times, "l"),
                get("m") == "true" or parse_bool(get("m", "")),
                get("n"),
            )
        except KeyError as error:
            raise missing(error.args[0]) from None

    def to_ext_fields(self) -> dict[str, str]:
        ext_fields = {
            "a": self.producer_group,
            "b": self.topic,
            "c": self.default_topic,
            "d": str(self.default_topic_queue_count),
            "e": str(self.queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_timestamp_ms),
            "h": str(self.flag),
            "j": str(self.reconsume_times),
            "k": "true" if self.unit_mode else "false",
            "m": "true" if self.batch else "false",
        }
        if self.properties is not None:
            ext_fields["i"] = self.properties
        if self.max_reconsume_times is not None:
            ext_fields["l"] = str(self.max_reconsume_times)
        if self.broker_name is not None:
            ext_fields["n"] = self.broker_name
        return ext_fields


@dataclass(slots=True)
class SendMessageResponse(Header):
    """Id and position of a stored message (10, 310, 320, 324, 325); the codes 0, 10, 11 and 12 mean that it is stored.

    Java reads `region` and `trace` from every response: they switch its tracing on and off.
    """

    message_id: str = text("msgId")
    queue_id: int = integer("queueId")
    queue_offset: int = long("queueOffset")
    transaction_id: str | None = text("transactionId", None)
    batch_unique_id: str | None = text("batchUniqId", None)
    recall_handle: str | None = text("recallHandle", None)
    region: str | None = text("MSG_REGION", None)
    trace: str | None = text("TRACE_ON", None)

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> SendMessageResponse:
        get = ext_fields.get
        try:
            return cls(
                ext_fields["msgId"],
                parse_int(ext_fields["queueId"], "queueId"),
                parse_long(ext_fields["queueOffset"], "queueOffset"),
                get("transactionId"),
                get("batchUniqId"),
                get("recallHandle"),
                get("MSG_REGION"),
                get("TRACE_ON"),
            )
        except KeyError as error:
            raise missing(error.args[0]) from None

    def to_ext_fields(self) -> dict[str, str]:
        ext_fields = {
            "msgId": self.message_id,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
        }
        for name, value in (
            ("transactionId", self.transaction_id),
            ("batchUniqId", self.batch_unique_id),
            ("recallHandle", self.recall_handle),
            ("MSG_REGION", self.region),
            ("TRACE_ON", self.trace),
        ):
            if value is not None:
                ext_fields[name] = value
        return ext_fields


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class EndTransactionRequest(Header):
    """End a transaction (37): 8 commit, 12 rollback, 0 not known yet."""

    producer_group: str = text("producerGroup")
    half_queue_offset: int = long("tranStateTableOffset")
    half_physical_offset: int = long("commitLogOffset")
    commit_or_rollback: int = integer("commitOrRollback")
    from_check: bool = boolean("fromTransactionCheck", False)
    message_id: str | None = text("msgId", None)
    transaction_id: str | None = text("transactionId", None)
    topic: str | None = text("topic", None)

    @classmethod
    def from_ext_fields(cls, ext_fields: Mapping[str, str]) -> EndTransactionRequest:
        get = ext_fields.get
        try:
            return cls(
                producer_group=ext_fields["producerGroup"],
                half_queue_offset=parse_long(ext_fields["tranStateTableOffset"], "tranStateTableOffset"),
                half_physical_offset=parse_long(ext_fields["commitLogOffset"], "commitLogOffset"),
                commit_or_rollback=parse_int(ext_fields["commitOrRollback"], "commitOrRollback"),
                from_check=parse_bool(get("fromTransactionCheck", "")),
                message_id=get("msgId"),
                transaction_id=get("transactionId"),
                topic=get("topic"),
            )
        except KeyError as error:
            raise missing(error.args[0]) from None


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class CheckTransactionRequest(Header):
    """A broker asks a producer for the state of a transaction (39)."""

    half_queue_offset: int = long("tranStateTableOffset")
    half_physical_offset: int = long("commitLogOffset")
    message_id: str | None = text("msgId", None)
    transaction_id: str | None = text("transactionId", None)
    offset_message_id: str | None = text("offsetMsgId", None)
    topic: str | None = text("topic", None)
    broker_name: str | None = text("bname", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PushReplyRequest(Header):
    """A broker pushes a reply to the requesting client (326)."""

    producer_group: str = text("producerGroup")
    topic: str = text("topic")
    default_topic: str = text("defaultTopic")
    default_topic_queue_count: int = integer("defaultTopicQueueNums")
    queue_id: int = integer("queueId")
    sys_flag: int = integer("sysFlag")
    born_timestamp_ms: int = long("bornTimestamp")
    flag: int = integer("flag")
    properties: str | None = text("properties", None)
    reconsume_times: int = integer("reconsumeTimes", 0)
    unit_mode: bool = boolean("unitMode", False)
    born_host: str = text("bornHost")
    store_host: str = text("storeHost")
    store_timestamp_ms: int = long("storeTimestamp")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class RecallMessageRequest(Header):
    """Recall a timer message (370)."""

    topic: str = text("topic")
    recall_handle: str = text("recallHandle")
    producer_group: str | None = text("producerGroup", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class RecallMessageResponse(Header):
    """The id of the recalled message (370)."""

    message_id: str = text("msgId")
