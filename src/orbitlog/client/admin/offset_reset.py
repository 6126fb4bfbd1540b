"""Offset reset of a consumer group: a plan with the target offset of each queue, then the reset.

Orbitlog and 5.x brokers reset a group queue by queue, and notify running members. 4.x brokers reset running members
only by timestamp, all queues together; for groups without members the tool commits the offsets.
Mirrors Java `ResetOffsetByTimeCommand` and `AdminBrokerProcessor.resetOffset`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from orbitlog.client.admin.broker_admin import BrokerAdmin
from orbitlog.client.admin.group_admin import GroupAdmin
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import MASTER_ID, Routes
from orbitlog.errors import BrokerRefused, ClientError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.codes import ResponseCode

Target = datetime | int | Literal["earliest", "latest"]

_OLD_VERSIONS = ("V3", "V4")
_END_MS = -1


@dataclass(frozen=True, slots=True)
class QueueReset:
    """Reset of one queue: committed offset before (or None), both ends, and the target offset."""

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
    """Plans and applies offset resets."""

    def __init__(self, link: ClusterLink, routes: Routes) -> None:
        self._routes = routes
        self._groups = GroupAdmin(link)
        self._brokers = BrokerAdmin(link)

    async def plan(self, group: str, topic: str, to: Target, *, queue_id: int | None = None) -> list[QueueReset]:
        """Return the target of every queue (or of `queue_id` at each broker); offsets out of range are clamped."""
        route = await self._routes.refresh(topic)
        plan: list[QueueReset] = []
        for queue in route.read_queues:
            address = route.brokers.get(queue.broker_name, {}).get(MASTER_ID)
            if address is None or queue_id not in (None, queue.queue_id):
                continue
            first = max(await self._groups.min_offset(address, queue), 0)
            end = await self._groups.max_offset(address, queue)
            if isinstance(to, datetime):
                target = await self._groups.offset_at(address, queue, int(to.timestamp() * 1000))
            else:
                target = to if isinstance(to, int) else first if to == "earliest" else end
            before = await self._groups.committed(address, group, queue)
            plan.append(QueueReset(queue, address, before, first, end, min(max(target, first), end)))
        if queue_id is not None and not plan:
            raise ClientError(f"topic {topic} has no readable queue {queue_id}")
        return plan

    async def apply(self, group: str, plan: Sequence[QueueReset], to: Target) -> list[QueueReset]:
        """Reset the group; return the plan with the offsets that the brokers have committed afterwards."""
        done: list[QueueReset] = []
        for address in dict.fromkeys(reset.address for reset in plan):
            at_broker = [reset for reset in plan if reset.address == address]
            is_old = await self._is_old(address)
            if is_old and await self._has_members(group, address):
                done += await self._reset_by_time(group, at_broker, to)
                continue
            for reset in at_broker:
                if is_old:
                    await self._groups.commit(address, group, reset.queue, reset.target)
                else:
                    await self._reset_queue(group, reset)
                committed = await self._groups.committed(address, group, reset.queue)
                done.append(replace(reset, target=reset.target if committed is None else committed))
        return done

    async def _reset_queue(self, group: str, reset: QueueReset) -> None:
        try:
            offsets = await self._groups.reset(
                reset.address,
                group,
                reset.queue.topic,
                timestamp_ms=_END_MS,
                queue_id=reset.queue.queue_id,
                offset_to=reset.target,
            )
        except BrokerRefused as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            raise ClientError(f"group {group} does not exist; create it with `orbitlog group create`") from error
        if offsets is None:
            await self._groups.commit(reset.address, group, reset.queue, reset.target)

    async def _reset_by_time(self, group: str, plan: Sequence[QueueReset], to: Target) -> list[QueueReset]:
        if isinstance(to, int):
            raise ClientError(
                f"4.x brokers reset a running group only by timestamp: stop the members of {group}, or give a timestamp"
            )
        timestamp_ms = int(to.timestamp() * 1000) if isinstance(to, datetime) else 0 if to == "earliest" else _END_MS
        topic = plan[0].queue.topic
        offsets = await self._groups.reset(plan[0].address, group, topic, timestamp_ms=timestamp_ms)
        return [replace(reset, target=(offsets or {}).get(reset.queue, reset.target)) for reset in plan]

    async def _is_old(self, address: str) -> bool:
        statistics = await self._brokers.runtime(address)
        return statistics.get("brokerVersionDesc", "").startswith(_OLD_VERSIONS)

    async def _has_members(self, group: str, address: str) -> bool:
        try:
            return bool((await self._groups.connections(group, address)).connections)
        except BrokerRefused:
            return False
