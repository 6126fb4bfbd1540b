"""Members of a consumer group, over all brokers that know it, and the owner of each queue."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitlog.client.connection.running_info import RunningInfo
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
_MODES = {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull", "CONSUME_POP": "pop"}


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
            how = _MODES.get(answer.consume_type or "", answer.consume_type)
            mode = ", ".join(word for word in (how, answer.message_model) if word).lower()
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


@dataclass(frozen=True)
class Reported:
    """What members report themselves: the owner of each queue, and subscriptions that differ, as sentences."""

    owners: Mapping[MessageQueue, str]
    differences: list[str]


async def read_reported(source: ClusterSource, group: str, membership: Membership) -> Reported:
    """Ask members for their queues and subscriptions; members that do not answer are left out.

    Brokers keep one subscription for a group, that of the last heartbeat: only members know of differences.
    """

    async def info(client_id: str) -> RunningInfo | None:
        try:
            async with asyncio.timeout(_OWNER_SECONDS):
                return await source.groups.running_info(group, client_id)
        except (OrbitlogError, TimeoutError):
            return None

    asked = list(membership.clients)[:_MEMBERS_ASKED_MAX]
    answers = dict(zip(asked, await asyncio.gather(*(info(client_id) for client_id in asked)), strict=True))
    owners: dict[MessageQueue, str] = {}
    subscriptions: dict[str, dict[str, str]] = {}
    for client_id, answer in answers.items():
        if answer is None:
            continue
        owners |= {queue: client_id for queue, feed in answer.queues.items() if not feed.is_dropped}
        subscriptions[client_id] = {data.topic: data.expression for data in answer.subscriptions if data.topic}
    return Reported(owners, different_subscriptions(subscriptions))


def different_subscriptions(subscriptions: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a sentence for each topic that members subscribe to differently; `subscriptions` are by client id."""
    sentences = []
    for topic in sorted({topic for found in subscriptions.values() for topic in found}):
        members: dict[str, list[str]] = {}
        for client_id, found in sorted(subscriptions.items()):
            members.setdefault(found.get(topic, ""), []).append(client_id)
        if len(members) > 1:
            parts = (
                f"{', '.join(clients)} {f'reads {expression}' if expression else 'does not subscribe to it'}"
                for expression, clients in sorted(members.items())
            )
            sentences.append(f"{topic}: {'; '.join(parts)}")
    return sentences
