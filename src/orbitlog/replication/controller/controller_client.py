"""Controller client: requests to the leader of Apache's controllers, and heartbeats to all of them.

The controller takes the end of a broker's connection for the end of the broker. Its connections are therefore closed
only to give up the broker's role.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from orbitlog.errors import FormatError, RemotingError, RequestRefused
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.header_codec import Header
from orbitlog.wire.nameserver_headers import BrokerHeartbeatRequest
from orbitlog.wire.replication.controller_headers import ControllerMetadata

_ASK_S = 3.0
_BEAT_S = 1.0


class ControllerClient:
    """Connections of one broker to the controllers of its group."""

    def __init__(self, open_client: Callable[[], RemotingClient], addresses: Sequence[str]) -> None:
        self._open_client = open_client
        self._client = open_client()
        self._addresses = tuple(addresses)
        self._leader = ""

    async def ask(
        self, code: RequestCode, header: Header | None, body: bytes = b"", *, accepts: Sequence[int] = ()
    ) -> Command:
        """Return the leader's answer; raise `RemotingError` without one, or if its code is not accepted.

        The request may have taken effect although it failed.
        """
        leader = self._leader or await self._find_leader()
        request = Command(code, ext_fields={} if header is None else header.to_ext_fields(), body=body)
        try:
            answer = await self._client.invoke(leader, request, _ASK_S)
        except RemotingError:
            self._leader = ""
            raise
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader = ""
        if answer.code != ResponseCode.SUCCESS and answer.code not in accepts:
            raise RemotingError(f"controller {leader}: {answer.remark} (code {answer.code})")
        return answer

    async def beat(self, heartbeat: BrokerHeartbeatRequest) -> None:
        """Send a heartbeat to all controllers, so that a new leader knows this broker; the leader must answer."""
        leader = self._leader or await self._find_leader()
        others = [address for address in self._addresses if address != leader]
        beats = [asyncio.wait_for(self._beat_at(address, heartbeat), _BEAT_S) for address in others]
        answered, *_ = await asyncio.gather(
            self.ask(RequestCode.BROKER_HEARTBEAT, heartbeat), *beats, return_exceptions=True
        )
        if isinstance(answered, BaseException):
            raise answered

    async def _beat_at(self, address: str, heartbeat: BrokerHeartbeatRequest) -> None:
        request = Command(RequestCode.BROKER_HEARTBEAT, ext_fields=heartbeat.to_ext_fields())
        await self._client.invoke_oneway(address, request)

    async def _find_leader(self) -> str:
        problem = "no controller has a leader"
        for address in self._addresses:
            try:
                answer = await self._client.invoke(address, Command(RequestCode.CONTROLLER_GET_METADATA_INFO), _ASK_S)
                found = ControllerMetadata.from_ext_fields(answer.ext_fields).leader_address
            except (RemotingError, RequestRefused, FormatError) as error:
                problem = f"controller {address} does not answer: {error}"
                continue
            if answer.code == ResponseCode.SUCCESS and found:
                self._leader = found
                return found
        raise RemotingError(problem)

    async def disconnect(self) -> None:
        """Close all connections, by which the controllers take this broker for dead; later requests open others."""
        client, self._client = self._client, self._open_client()
        await client.close()

    async def close(self) -> None:
        """Close all connections for good."""
        await self._client.close()
