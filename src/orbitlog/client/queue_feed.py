"""One queue that this member has: fetched as long as there is room, and what of it is not done with.

Mirrors Java `ProcessQueue`, `PullMessageService`, `DefaultMQPushConsumerImpl.pullMessage`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from orbitlog.client.consume_window import ConsumeWindow
from orbitlog.client.group_link import GroupLink
from orbitlog.client.received import Received, decode_pulled
from orbitlog.client.subscriptions import wants
from orbitlog.errors import BrokerRefused, ClientClosed, ClientError, FormatError, RemotingError
from orbitlog.wire.bodies.body_json import MessageQueue
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData
from orbitlog.wire.codes import ResponseCode

log = logging.getLogger(__name__)

AFTER_FAILURE_SECONDS = 1.0
_FLOW_CONTROL_SECONDS = 0.02

Deliver = Callable[["QueueFeed", Received], None]


class QueueFeed:
    """Fetches one queue and hands its messages on; in order, one at a time, if `ordered`."""

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
    ) -> None:
        self.queue = queue
        self.window = ConsumeWindow(start_queue_offset)
        self._link = link
        self._subscription = subscription
        self._deliver = deliver
        self._ordered = ordered
        self._commits = commits
        self._in_line: deque[Received] = deque()
        self._has_room = asyncio.Event()
        self.is_dropped = False
        self.is_paused = False
        self.max_queue_offset = start_queue_offset
        self.committed_to = start_queue_offset if start_queue_offset else -1
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"feed {queue.topic}/{queue.queue_id}")

    async def stop(self) -> None:
        """Fetch no more; what was delivered and is not done with counts no more."""
        self.is_dropped = True
        self._task.cancel()
        await asyncio.wait({self._task})

    def wake(self) -> None:
        """Look again whether there is room."""
        self._has_room.set()

    def finish(self, queue_offset: int) -> bool:
        """A message is done with; False if it is not this feed's any more."""
        if self.is_dropped or not self.window.finish(queue_offset):
            return False
        if self._ordered:
            self._in_line.popleft()
            self._deliver_first()
        self._has_room.set()
        return True

    @property
    def first_in_line(self) -> Received | None:
        """The message that all others wait for, in order."""
        return self._in_line[0] if self._in_line else None

    def again(self, message: Received | None) -> None:
        """Deliver the first message in line once more, if it is still this one."""
        if message is not None and not self.is_dropped and self.first_in_line is message:
            self._deliver(self, message)

    async def _run(self) -> None:
        while not self.is_dropped:
            if self.window.is_full or self.is_paused:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            try:
                await self._fetch()
            except ClientClosed:
                return
            except BrokerRefused as error:
                busy = error.code == ResponseCode.FLOW_CONTROL
                if not busy:
                    log.warning("fetching %s/%d: %s", self.queue.topic, self.queue.queue_id, error)
                await asyncio.sleep(_FLOW_CONTROL_SECONDS if busy else AFTER_FAILURE_SECONDS)
            except (RemotingError, ClientError, FormatError) as error:
                log.warning("fetching %s/%d: %s", self.queue.topic, self.queue.queue_id, error)
                await asyncio.sleep(AFTER_FAILURE_SECONDS)

    async def _fetch(self) -> None:
        window = self.window
        commit = window.commit_offset if self._commits and window.commit_offset > self.committed_to else None
        pulled = await self._link.pull(self.queue, window.next_queue_offset, self._subscription, commit)
        if self.window is not window:
            return  # it was moved meanwhile
        if commit is not None:
            self.committed_to = commit
        self.max_queue_offset = pulled.max_queue_offset
        if pulled.offset_moved:
            self.move_to(pulled.next_queue_offset)
            return
        messages = [Received(each, self.queue.broker_name) for each in decode_pulled(pulled.body)]
        wanted = [message for message in messages if wants(self._subscription, message.tags)]
        sizes = [(message.queue_offset, len(message.stored.body)) for message in wanted]
        window.fetched(sizes, pulled.next_queue_offset)
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
        self.committed_to = -1
        self._has_room.set()
