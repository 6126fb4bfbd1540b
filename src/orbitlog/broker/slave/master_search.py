"""Master search: asks name servers for the master of a broker name, and the master for its HA address.

For slaves that do not register, such as mirrors: a registered slave gets both in the answer to its registration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from orbitlog.errors import FormatError, RemotingError
from orbitlog.remoting.client import RemotingClient, split_address
from orbitlog.settings.listen_exposure import join_address
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.route_bodies import BrokerData, ClusterInfo
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

_SECONDS = 3.0
_NAMES_SHOWN = 10
MASTER_ID = 0
_MASTER_HA_ADDRESS = "masterHaAddress"


class FoundMaster(NamedTuple):
    """A master: its address for requests, its HA address and its cluster."""

    address: str
    ha_address: str
    cluster: str


async def registered_brokers(client: RemotingClient, name_servers: Sequence[str]) -> dict[str, BrokerData]:
    """Return the brokers that name servers know, by name; raise `RemotingError` if none responds."""
    found: dict[str, BrokerData] = {}
    problem, has_answer = "no name server is given", False
    for server in name_servers:
        try:
            answer = await client.invoke(server, Command(RequestCode.GET_BROKER_CLUSTER_INFO), _SECONDS)
            if answer.code != ResponseCode.SUCCESS:
                raise RemotingError(f"{answer.remark} (code {answer.code})")
            brokers = decode_body(ClusterInfo, answer.body).brokers
        except (RemotingError, FormatError) as error:
            problem = f"name server {server} does not list its brokers: {error}"
            continue
        has_answer = True
        for name, data in brokers.items():
            # The first name server with a master counts, as for a registered slave.
            if name not in found or MASTER_ID not in found[name].addresses:
                found[name] = data
    if not has_answer:
        raise RemotingError(problem)
    return found


def no_master(name: str, brokers: Mapping[str, BrokerData]) -> str:
    """Return why no master of a name was found, as a sentence."""
    others = ", ".join(sorted(set(brokers) - {name})[:_NAMES_SHOWN])
    return f"no master of {name} is registered" + (f"; registered names: {others}" if others else "")


async def find_master(client: RemotingClient, name_servers: Sequence[str], name: str) -> FoundMaster:
    """Return the master of a broker name; raise `RemotingError` if none is registered or none responds."""
    brokers = await registered_brokers(client, name_servers)
    data = brokers.get(name)
    if data is None or MASTER_ID not in data.addresses:
        raise RemotingError(no_master(name, brokers))
    address = data.addresses[MASTER_ID]
    answer = await client.invoke(address, Command(RequestCode.EXCHANGE_BROKER_HA_INFO), _SECONDS)
    stated = answer.ext_fields.get(_MASTER_HA_ADDRESS) if answer.code == ResponseCode.SUCCESS else ""
    if not stated:
        host, port = split_address(address)
        # 4.9 does not know the request, and always listens for slaves on the port after its own.
        stated = join_address(host, port + 1)
    return FoundMaster(address, stated, data.cluster or "")
