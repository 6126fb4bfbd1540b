"""One queue that this member has: fetched as long as there is room, and what of it is not done with.

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
    """Fetches one queue and hands its messages on; in order, one at a time, if `ordered`.

    `out_of_touch` is called when its broker could not be asked: it may have been restarted, and have forgotten us.
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
        out_of_touch: Callable[[], None] = _nothing,
    ) -> None:
        self.queue = queue
        self.window = ConsumeWindow(start_queue_offset)
        self._link = link
        self._subscription = subscription
        self._deliver = deliver
        self._ordered = ordered
        self._commits = commits
        self._out_of_touch = out_of_touch
        self._in_line: deque[Message] = deque()
        self._attempts: dict[int, int] = {}
        self._has_room = asyncio.Event()
        self.settled = asyncio.Event()
        self.settled.set()
        self._broker_id = MASTER_ID
        self.is_dropped = False
        self.is_paused = False
        self.locked_at = asyncio.get_running_loop().time()
        self.max_queue_offset = start_queue_offset
        self.committed_to = start_queue_offset if start_queue_offset else -1
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"feed {queue.topic}/{queue.queue_id}")

    async def stop(self) -> None:
        """Fetch no more; what was delivered and is not done with counts no more."""
        self.is_dropped = True
        self.settled.set()
        self._task.cancel()
        await asyncio.wait({self._task})

    def wake(self) -> None:
        """Look again whether there is room."""
        self._has_room.set()

    def attempts(self, queue_offset: int) -> int:
        """How often a message was tried here, in vain."""
        return self._attempts.get(queue_offset, 0)

    def taken(self) -> None:
        """The first message in line is being worked on."""
        self.settled.clear()

    def finish(self, window: ConsumeWindow, queue_offset: int) -> bool:
        """A message of `window` is done with; False if it is not this feed's any more."""
        if window is not self.window or self.is_dropped or not window.finish(queue_offset):
            return False
        if self._attempts:
            self._attempts.pop(queue_offset, None)
        if self._ordered:
            self._in_line.popleft()
            self.settled.set()
            self._deliver_first()
        self._has_room.set()
        return True

    def again(self, window: ConsumeWindow, message: Message, after_seconds: float) -> None:
        """Deliver a message once more, later; one in order stays first in its line until then."""
        self.settled.set()
        self._attempts[message.queue_offset] = self.attempts(message.queue_offset) + 1
        asyncio.get_running_loop().call_later(after_seconds, self._deliver_again, window, message)

    def _deliver_again(self, window: ConsumeWindow, message: Message) -> None:
        if window is self.window and not self.is_dropped and window.has(message.queue_offset):
            self._deliver(self, message)

    async def _run(self) -> None:
        # A task keeps the error that it ends by, and with it this feed: of a member with hundreds of queues that is so
        # much for the collector to find that the event loop would stand still. So it ends without one.
        with suppress(asyncio.CancelledError):
            await self._fetch_on()

    async def _fetch_on(self) -> None:
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
        log.warning("fetching %s/%d: %s", self.queue.topic, self.queue.queue_id, error)
        if isinstance(error, RemotingError):
            self.committed_to = -1  # a broker that died may not have kept it, so it is told again
            self._out_of_touch()
        return AFTER_FAILURE_SECONDS

    async def _fetch(self) -> None:
        window = self.window
        commit = window.commit_offset if self._commits and window.commit_offset > self.committed_to else None
        broker_id = self._broker_id
        self._broker_id = MASTER_ID  # unless the answer suggests a copy again
        pulled = await self._link.pull(self.queue, window.next_queue_offset, self._subscription, commit, broker_id)
        self._broker_id = pulled.suggested_broker_id
        if self.window is not window:
            return  # it was moved meanwhile
        if commit is not None and broker_id == MASTER_ID:
            self.committed_to = commit
        self.max_queue_offset = pulled.max_queue_offset
        if pulled.offset_moved:
            self.move_to(pulled.next_queue_offset)
            return
        wanted: list[Message] = []
        if pulled.body:
            subscription = self._subscription
            wanted = [each for each in decode_pulled(pulled.body) if wants(subscription, each)]
        window.fetched([(each.queue_offset, len(each.body)) for each in wanted], pulled.next_queue_offset)
        if not self._ordered:
            for message in wanted:
                self._deliver(self, message)
            return
        was_empty = not self._in_line
        self._in_line.extend(wanted)
        if was_empty:
            self._deliver_first()

    def _deliver_first(self) -> None:
        if self._in_line:
            self._deliver(self, self._in_line[0])

    def move_to(self, queue_offset: int) -> None:
        """Go on elsewhere: what was fetched before counts no more."""
        log.info("%s/%d goes on at %d", self.queue.topic, self.queue.queue_id, queue_offset)
        self.window = ConsumeWindow(queue_offset)
        self._in_line.clear()
        self._attempts.clear()
        self.settled.set()
        self.committed_to = -1
        self._has_room.set()
