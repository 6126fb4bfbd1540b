"""Headers of POP consumption, 5.x. Their codes do not fit into a binary header.

Mirrors Java `PopMessageRequestHeader`, `AckMessageRequestHeader` and their kin.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.wire.header_codec import Header, boolean, integer, long, text


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PopMessageRequest(Header):
    """Pop messages: they stay invisible to other consumers for `invisible_ms` (200050); queue -1 means any."""

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")
    message_count_max: int = integer("maxMsgNums")
    invisible_ms: int = long("invisibleTime")
    poll_ms: int = long("pollTime")
    born_timestamp_ms: int = long("bornTime", 0)
    init_mode: int = integer("initMode", 0)
    expression_type: str | None = text("expType", None)
    expression: str | None = text("exp", None)
    ordered: bool = boolean("order", False)
    attempt_id: str | None = text("attemptId", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PopMessageResponse(Header):
    """What clients need to build the receipt of each message (200050)."""

    pop_timestamp_ms: int = long("popTime")
    invisible_ms: int = long("invisibleTime")
    revive_queue_id: int = integer("reviveQid")
    rest_count: int = long("restNum")
    start_offset_info: str | None = text("startOffsetInfo", None)
    message_offset_info: str | None = text("msgOffsetInfo", None)
    order_count_info: str | None = text("orderCountInfo", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PeekMessageRequest(Header):
    """Read messages without popping them (200052)."""

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")
    message_count_max: int = integer("maxMsgNums")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class AckMessageRequest(Header):
    """Acknowledge one message (200051)."""

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")
    extra_info: str = text("extraInfo")
    queue_offset: int = long("offset")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ChangeInvisibleTimeRequest(Header):
    """Change the invisibility timeout of one message (200053)."""

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")
    extra_info: str = text("extraInfo")
    queue_offset: int = long("offset")
    invisible_ms: int = long("invisibleTime")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ChangeInvisibleTimeResponse(Header):
    """The new receipt (200053)."""

    pop_timestamp_ms: int = long("popTime")
    invisible_ms: int = long("invisibleTime")
    revive_queue_id: int = integer("reviveQid")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class NotificationRequest(Header):
    """Wait until there is a message to pop (200054)."""

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")
    poll_ms: int = long("pollTime")
    born_timestamp_ms: int = long("bornTime", 0)
    ordered: bool = boolean("order", False)
    attempt_id: str | None = text("attemptId", None)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class NotificationResponse(Header):
    """Whether there is a message to pop (200054)."""

    has_message: bool = boolean("hasMsg")
    polling_full: bool = boolean("pollingFull", False)


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PollingInfoRequest(Header):
    """Count waiting pops (200055)."""

    group: str = text("consumerGroup")
    topic: str = text("topic")
    queue_id: int = integer("queueId")


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PollingInfoResponse(Header):
    """Number of waiting pops (200055)."""

    polling_count: int = integer("pollingNum")
