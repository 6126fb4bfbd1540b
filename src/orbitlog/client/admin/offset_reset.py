"""Moving a consumer group elsewhere in a topic: a plan, queue by queue, that says exactly where to; then the move.

Brokers of 5.x and ours move a group queue by queue, whether its members are running or not: they are told at once.
Brokers of 4.x can move running members only by a time, all queues together, and leave groups without members to the
tools, which then commit for them. Mirrors Java `ResetOffsetByTimeCommand` and `AdminBrokerProcessor.resetOffset`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from orbitlog.client.admin.broker_admin import BrokerAdmin
from orbitlog.client.admin.group_admin import GroupAdmin
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Routes
from orbitlog.errors import BrokerRefused, ClientError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.codes import ResponseCode

Target = datetime | int | Literal["earliest", "latest"]

_OLD_VERSIONS = ("V3", "V4")
_END_MS = -1


@dataclass(frozen=True, slots=True)
class QueueMove:
    """One queue: where the group is (None: it never was there), both ends, and where it goes."""

    queue: MessageQueue
    address: str
    before: int | None
    first: int
    end: int
    target: int

    @property
    def lag_after(self) -> int:
        return self.end - self.target


class OffsetReset:
    """Plans and makes moves of groups."""

    def __init__(self, link: ClusterLink, routes: Routes) -> None:
        self._routes = routes
        self._groups = GroupAdmin(link)
        self._brokers = BrokerAdmin(link)

    async def plan(self, group: str, topic: str, to: Target, *, queue_id: int | None = None) -> list[QueueMove]:
        """Say where every queue (or one of each broker) would go; an offset beyond an end means that end."""
        route = await self._routes.refresh(topic)
        moves: list[QueueMove] = []
        for queue in route.read_queues:
            address = route.brokers[queue.broker_name].get(0)
            if address is None or queue_id not in (None, queue.queue_id):
                continue
            first = max(await self._groups.min_offset(address, queue), 0)
            end = await self._groups.max_offset(address, queue)
            if isinstance(to, datetime):
                target = await self._groups.offset_at(address, queue, int(to.timestamp() * 1000))
            else:
                target = to if isinstance(to, int) else first if to == "earliest" else end
            before = await self._groups.committed(address, group, queue)
            moves.append(QueueMove(queue, address, before, first, end, min(max(target, first), end)))
        if queue_id is not None and not moves:
            raise ClientError(f"topic {topic} has no queue {queue_id} that can be read")
        return moves

    async def make(self, group: str, moves: Sequence[QueueMove], to: Target) -> list[QueueMove]:
        """Move the group; returns where each queue is now. Brokers are asked afterwards, not believed beforehand."""
        done: list[QueueMove] = []
        for address in dict.fromkeys(move.address for move in moves):
            theirs = [move for move in moves if move.address == address]
            is_old = await self._is_old(address)
            if is_old and await self._has_members(group, address):
                done += await self._move_by_time(group, theirs, to)
                continue
            for move in theirs:
                if is_old:
                    await self._groups.commit(address, group, move.queue, move.target)
                else:
                    await self._move(group, move)
                now = await self._groups.committed(address, group, move.queue)
                done.append(replace(move, target=move.target if now is None else now))
        return done

    async def _move(self, group: str, move: QueueMove) -> None:
        try:
            moved = await self._groups.reset(
                move.address,
                group,
                move.queue.topic,
                timestamp_ms=_END_MS,
                queue_id=move.queue.queue_id,
                offset_to=move.target,
            )
        except BrokerRefused as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            raise ClientError(f"there is no group {group}; `orbitlog group create` makes one") from error
        if moved is None:
            await self._groups.commit(move.address, group, move.queue, move.target)

    async def _move_by_time(self, group: str, moves: Sequence[QueueMove], to: Target) -> list[QueueMove]:
        if isinstance(to, int):
            raise ClientError(
                f"brokers of 4.x move a running group by a time only: stop the members of {group}, or give a time"
            )
        timestamp_ms = int(to.timestamp() * 1000) if isinstance(to, datetime) else 0 if to == "earliest" else _END_MS
        topic = moves[0].queue.topic
        moved = await self._groups.reset(moves[0].address, group, topic, timestamp_ms=timestamp_ms)
        return [replace(move, target=(moved or {}).get(move.queue, move.target)) for move in moves]

    async def _is_old(self, address: str) -> bool:
        numbers = await self._brokers.runtime(address)
        return numbers.get("brokerVersionDesc", "").startswith(_OLD_VERSIONS)

    async def _has_members(self, group: str, address: str) -> bool:
        try:
            return bool((await self._groups.connections(group, address)).connections)
        except BrokerRefused:
            return False
