"""Session of a verb: admin requests to the cluster, and output."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import click

from orbitlog.cli.mqadmin.java_print import in_hash_order, java_text, printf
from orbitlog.cli.output.terminal import value_text
from orbitlog.client.admin.administration import Administration
from orbitlog.client.admin.name_server_admin import NameServerAdmin
from orbitlog.errors import BrokerRefused, ClientError, FormatError
from orbitlog.formats import names

if TYPE_CHECKING:
    from orbitlog.client.admin.broker_admin import BrokerAdmin
    from orbitlog.client.admin.group_admin import GroupAdmin
    from orbitlog.client.rocketmq import RocketMQ
    from orbitlog.wire.bodies.route_bodies import ClusterInfo

_INVALID_PARAMETER = 29
NO_CLUSTER = "Make sure the specified clusterName exists or the name server connected to is correct."


class VerbFailed(ClientError):
    """A verb failed without an error from a broker."""


class VerbSession:
    """One run of a verb."""

    def __init__(self, admin: Administration, mq: RocketMQ | None = None) -> None:
        self.admin = admin
        self._mq = mq
        self.name_servers = NameServerAdmin(admin.link)

    @property
    def mq(self) -> RocketMQ:
        assert self._mq is not None, "the verb table declares that this verb needs no client"
        return self._mq

    @cached_property
    def brokers(self) -> BrokerAdmin:
        from orbitlog.client.admin.broker_admin import BrokerAdmin

        return BrokerAdmin(self.admin.link)

    @cached_property
    def groups(self) -> GroupAdmin:
        from orbitlog.client.admin.group_admin import GroupAdmin

        return GroupAdmin(self.admin.link)

    # Printing

    def print(self, template: str, *values: object) -> None:
        """Print by a Java template, which contains its own line ends."""
        click.echo(printf(template, *map(_shown, values)) if values else template, nl=False)

    def row(self, template: str, *values: object) -> None:
        click.echo(printf(template, *map(_shown, values)))

    # Targets of a verb

    async def cluster_brokers(self, cluster: str, *, copies: bool = False) -> list[str]:
        """Return the addresses of a cluster's masters, and of replicas with `copies`; print an unknown cluster."""
        info = await self.admin.cluster()
        if cluster not in info.clusters:
            self.print(f"[error] {NO_CLUSTER}")
            return []
        targets: list[str] = []
        for name in in_hash_order(info.clusters[cluster]):
            addresses = info.brokers[name].addresses if name in info.brokers else {}
            targets += [address for broker_id, address in addresses.items() if copies or broker_id == 0]
        return in_hash_order(targets)

    async def targets(self, broker: str | None, cluster: str | None) -> list[str]:
        """Return the address of one broker, or of the masters of a cluster."""
        if broker is not None:
            return [broker]
        return await self.cluster_brokers(cluster) if cluster is not None else []

    async def broker_name(self, address: str) -> str:
        info = await self.admin.cluster()
        for name, data in info.brokers.items():
            if address in data.addresses.values():
                return name
        raise VerbFailed(NO_CLUSTER)


def _shown(value: object) -> object:
    """Return a value as the terminal may get it: names, properties and bodies come from other clients."""
    return value if value is None or isinstance(value, int | float) else value_text(java_text(value))


def checked_topic(topic: str) -> str:
    """Return a valid topic name; else raise the refusal of Apache's client."""
    try:
        return names.check_topic(topic)
    except FormatError as error:
        raise BrokerRefused(_INVALID_PARAMETER, f"The specified topic: {topic}, {error.problem}") from error


def checked_group(group: str) -> str:
    try:
        return names.check_group(group)
    except FormatError as error:
        raise BrokerRefused(_INVALID_PARAMETER, f"The specified group: {group}, {error.problem}") from error


def cluster_of(broker_name: str, info: ClusterInfo) -> str | None:
    return next((cluster for cluster, names in info.clusters.items() if broker_name in names), None)
