"""Queue feed: pulls one assigned queue while its window has room, and tracks unsettled messages.

Mirrors Java `ProcessQueue`, `PullMessageService`, `DefaultMQPushConsumerImpl.pullMessage`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from orbitlog.client.connection.routes import MASTER_ID
from orbitlog.client.consumer.consume_window import ConsumeWindow
from orbitlog.client.consumer.group_link import GroupLink
from orbitlog.client.consumer.received import decode_pulled
from orbitlog.client.consumer.subscriptions import wants
from orbitlog.errors import BrokerRefused, ClientClosed, OrbitlogError, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.message import Message
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData
from orbitlog.wire.codes import ResponseCode

log = logging.getLogger(__name__)

AFTER_FAILURE_SECONDS = 1.0
_FLOW_CONTROL_SECONDS = 0.02

Deliver = Callable[["QueueFeed", Message], None]


def _nothing() -> None:
    pass


class QueueFeed:
    """Pulls one queue and passes its messages on; one at a time if `ordered`.

    `on_unreachable` is called when the broker does not answer: after a restart it no longer knows this member.
    """

    def __init__(
        self,
        queue: MessageQueue,
        start_queue_offset: int,
        link: GroupLink,
        subscription: SubscriptionData,
        deliver: Deliver,
        *,
        ordered: bool = False,
        commits: bool = True,
        on_unreachable: Callable[[], None] = _nothing,
    ) -> None:
        self.queue = queue
        self.window = ConsumeWindow(start_queue_offset)
        self._link = link
        self._subscription = subscription
        self._deliver = deliver
        self._ordered = ordered
        self._commits = commits
        self._on_unreachable = on_unreachable
        self._ordered_messages: deque[Message] = deque()
        self._attempts: dict[int, int] = {}
        self._has_room = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self._broker_id = MASTER_ID
        self.is_dropped = False
        self.is_paused = False
        self.locked_at = asyncio.get_running_loop().time()
        self.max_queue_offset = start_queue_offset
        self.committed_to = start_queue_offset if start_queue_offset else -1
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"feed {queue.topic}/{queue.queue_id}")

    async def stop(self) -> None:
        """Stop pulling; deliveries that are not settled become stale."""
        self.is_dropped = True
        self.idle.set()
        self._task.cancel()
        await asyncio.wait({self._task})

    def wake(self) -> None:
        """Check the window and the pause flag now."""
        self._has_room.set()

    def attempts(self, queue_offset: int) -> int:
        """Return the number of failed local attempts of a message."""
        return self._attempts.get(queue_offset, 0)

    def mark_busy(self) -> None:
        """Record that a message of this queue is in progress."""
        self.idle.clear()

    def finish(self, window: ConsumeWindow, queue_offset: int) -> bool:
        """Remove a message from the window; return False if it is stale or already finished."""
        if window is not self.window or self.is_dropped or not window.finish(queue_offset):
            return False
        if self._attempts:
            self._attempts.pop(queue_offset, None)
        if self._ordered:
            self._ordered_messages.popleft()
            self.idle.set()
            self._deliver_first()
        self._has_room.set()
        return True

    def requeue(self, window: ConsumeWindow, message: Message, after_seconds: float) -> None:
        """Deliver a message from memory after `after_seconds`; an ordered queue waits for it."""
        self.idle.set()
        self._attempts[message.queue_offset] = self.attempts(message.queue_offset) + 1
        asyncio.get_running_loop().call_later(after_seconds, self._deliver_requeued, window, message)

    def _deliver_requeued(self, window: ConsumeWindow, message: Message) -> None:
        if window is self.window and not self.is_dropped and window.has(message.queue_offset):
            self._deliver(self, message)

    async def _run(self) -> None:
        # A cancelled task keeps its CancelledError, whose traceback keeps this feed. With hundreds of queues the
        # garbage collector then blocks the event loop noticeably, so the task must end without an exception.
        with suppress(asyncio.CancelledError):
            await self._fetch_loop()

    async def _fetch_loop(self) -> None:
        while not self.is_dropped:
            if self.window.is_full or self.is_paused:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            try:
                await self._fetch()
            except ClientClosed:
                return
            except OrbitlogError as error:
                await asyncio.sleep(self._pause_after(error))

    def _pause_after(self, error: OrbitlogError) -> float:
        if isinstance(error, BrokerRefused) and error.code == ResponseCode.FLOW_CONTROL:
            return _FLOW_CONTROL_SECONDS
        log.warning("could not pull %s/%d: %s", self.queue.topic, self.queue.queue_id, error)
        if isinstance(error, RemotingError):
            self.committed_to = -1  # a crashed broker may have lost the commit: repeat it
            self._on_unreachable()
        return AFTER_FAILURE_SECONDS

    async def _fetch(self) -> None:
        window = self.window
        commit = window.commit_offset if self._commits and window.commit_offset > self.committed_to else None
        broker_id = self._broker_id
        self._broker_id = MASTER_ID  # unless the response suggests a replica
        pulled = await self._link.pull(self.queue, window.next_queue_offset, self._subscription, commit, broker_id)
        self._broker_id = pulled.suggested_broker_id
        if self.window is not window:
            return  # the offset was reset during the pull
        if commit is not None and broker_id == MASTER_ID:
            self.committed_to = commit
        self.max_queue_offset = pulled.max_queue_offset
        if pulled.offset_moved:
            self.reset_to(pulled.next_queue_offset)
            return
        wanted: list[Message] = []
        if pulled.body:
            subscription = self._subscription
            wanted = [message for message in decode_pulled(pulled.body) if wants(subscription, message)]
        window.fetched([(message.queue_offset, len(message.body)) for message in wanted], pulled.next_queue_offset)
        if not self._ordered:
            for message in wanted:
                self._deliver(self, message)
            return
        was_empty = not self._ordered_messages
        self._ordered_messages.extend(wanted)
        if was_empty:
            self._deliver_first()

    def _deliver_first(self) -> None:
        if self._ordered_messages:
            self._deliver(self, self._ordered_messages[0])

    def reset_to(self, queue_offset: int) -> None:
        """Continue at another offset; messages pulled before become stale."""
        log.info("%s/%d reset to queue offset %d", self.queue.topic, self.queue.queue_id, queue_offset)
        self.window = ConsumeWindow(queue_offset)
        self._ordered_messages.clear()
        self._attempts.clear()
        self.idle.set()
        self.committed_to = -1
        self._has_room.set()
