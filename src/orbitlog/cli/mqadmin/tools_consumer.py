"""Pulls of Apache's tool: one request at a time, in the group TOOLS_CONSUMER, with Java's names of the results."""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.cli.mqadmin.verb_session import VerbSession
from orbitlog.client.consumer.group_link import GroupLink
from orbitlog.client.consumer.received import Received, decode_pulled
from orbitlog.client.consumer.subscriptions import make_subscription, wants
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.codes import ResponseCode

GROUP = "TOOLS_CONSUMER"
_STATUSES = {
    int(ResponseCode.SUCCESS): "FOUND",
    int(ResponseCode.PULL_NOT_FOUND): "NO_NEW_MSG",
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): "NO_MATCHED_MSG",
    int(ResponseCode.PULL_OFFSET_MOVED): "OFFSET_ILLEGAL",
}


@dataclass(frozen=True, slots=True)
class PullOutcome:
    status: str
    messages: list[Received]
    next_queue_offset: int


class ToolsConsumer:
    """Pulls messages of one topic."""

    def __init__(self, link: GroupLink, queues: tuple[MessageQueue, ...]) -> None:
        self.link = link
        self.queues = queues

    @classmethod
    async def of(cls, session: VerbSession, topic: str, group: str = GROUP) -> ToolsConsumer:
        admin = session.admin
        route = await admin.routes.refresh(topic)
        return cls(GroupLink(admin.link, admin.routes, group, "tool"), route.read_queues)

    async def pull(self, queue: MessageQueue, start: int, *, tags: str = "*", count: int = 32) -> PullOutcome:
        subscription = make_subscription(queue.topic, tags)
        pulled = await self.link.pull(queue, start, subscription, count=count, suspend_seconds=0)
        messages = [
            Received(each, queue.broker_name) for each in decode_pulled(pulled.body) if wants(subscription, each)
        ]
        for message in messages:
            # Clients add them to what they pulled, and the tool prints them.
            message.properties["MIN_OFFSET"] = str(pulled.min_queue_offset)
            message.properties["MAX_OFFSET"] = str(pulled.max_queue_offset)
        return PullOutcome(_STATUSES[pulled.code], messages, pulled.next_queue_offset)
