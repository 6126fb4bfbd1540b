"""Members of a consumer group, over all brokers that know it, and the owner of each queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.errors import BrokerRefused, OrbitlogError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.bodies.client_bodies import ClientConnection, ConsumerConnection
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData
from orbitlog.wire.codes import ResponseCode

_MEMBERS_ASKED_MAX = 16
_OWNER_SECONDS = 2.0


@dataclass(frozen=True)
class Membership:
    """Clients by id with the brokers they are connected to; `problem` if a broker did not answer."""

    clients: Mapping[str, tuple[ClientConnection, list[str]]] = field(default_factory=dict)
    subscriptions: Mapping[str, SubscriptionData] = field(default_factory=dict)
    mode: str | None = None
    problem: str | None = None


async def read_members(source: ClusterSource, sample: ClusterSample, group: str) -> Membership:
    """Ask every master that has the group for its connected members."""
    brokers = [
        broker for broker in sample.masters if group in (broker.groups.value or {}) or group in broker.offsets_of_groups
    ]
    answers = await asyncio.gather(*(_connections(source, broker, group) for broker in brokers))
    clients: dict[str, tuple[ClientConnection, list[str]]] = {}
    subscriptions: dict[str, SubscriptionData] = {}
    mode: str | None = None
    problem: str | None = None
    for broker, answer in zip(brokers, answers, strict=True):
        if isinstance(answer, str):
            problem = f"{broker.name}: {answer}"
            continue
        for client in answer.connections:
            clients.setdefault(client.client_id, (client, []))[1].append(broker.name)
        subscriptions |= answer.subscriptions
        if answer.connections:
            mode = ", ".join(word for word in (answer.message_model, answer.consume_type) if word).lower()
    return Membership(clients, subscriptions, mode, problem)


async def _connections(source: ClusterSource, broker: BrokerSample, group: str) -> ConsumerConnection | str:
    if broker.runtime.problem is not None:
        return broker.runtime.problem
    try:
        return await source.groups.connections(group, broker.address)
    except BrokerRefused as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return ConsumerConnection()
        return problem_sentence(error)
    except OrbitlogError as error:
        return problem_sentence(error)


async def read_owners(source: ClusterSource, group: str, membership: Membership) -> dict[MessageQueue, str]:
    """Return the member that consumes each queue, as members themselves report; unknown ones are left out."""

    async def queues(client_id: str) -> dict[MessageQueue, str]:
        try:
            async with asyncio.timeout(_OWNER_SECONDS):
                info = await source.groups.running_info(group, client_id)
        except (OrbitlogError, TimeoutError):
            return {}
        return {queue: client_id for queue, feed in info.queues.items() if not feed.is_dropped}

    asked = list(membership.clients)[:_MEMBERS_ASKED_MAX]
    owners: dict[MessageQueue, str] = {}
    for found in await asyncio.gather(*(queues(client_id) for client_id in asked)):
        owners |= found
    return owners
