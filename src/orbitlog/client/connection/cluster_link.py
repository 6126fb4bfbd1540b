"""Requests to brokers and name servers: returns the response, or raises a typed error with advice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orbitlog.client.connection.error_advice import refusal
from orbitlog.errors import BrokerRefused, ClientClosed, RemotingError, RequestTimeout
from orbitlog.remoting.client import MakeFrame, RemotingClient
from orbitlog.remoting.connection import Connection, Handler
from orbitlog.remoting.request_dispatch import LONG_CODES
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.header_codec import Header

if TYPE_CHECKING:
    import ssl

    from orbitlog.access.credentials import Credentials

INVOKE_SECONDS = 3.0
LONG_REQUESTS_AT_ONCE = 3
"""Less than a server handles for one client address (`longRequestsPerAddressMax`)."""


class ClusterLink:
    """All connections of one client. The name server that answered last is used first; the others are fallbacks."""

    def __init__(
        self,
        name_servers: Sequence[str],
        handler: Handler,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._remoting = RemotingClient(handler, tls=tls)
        self._name_servers = random.sample(name_servers, len(name_servers))
        self._credentials = credentials
        self._is_closed = False
        self._long_slots: dict[str, asyncio.Semaphore] = {}

    async def invoke(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        seconds: float = INVOKE_SECONDS,
        accept: Sequence[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        """Return the response if its code is accepted; raise `BrokerRefused` otherwise."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        if code in LONG_CODES:
            response = await self._invoke_in_turn(address, self.command(code, header, body), seconds)
        else:
            response = await self._remoting.invoke(address, self.command(code, header, body), seconds)
        if response.code not in accept:
            raise refusal(response)
        return response

    async def _invoke_in_turn(self, address: str, command: Command, seconds: float) -> Command:
        """Send a long request when few of them are in flight; the wait for that is part of the time.

        More of them would wait at the server, which counts a long wait as a limit that was reached.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        slots = self._long_slots.setdefault(address, asyncio.Semaphore(LONG_REQUESTS_AT_ONCE))
        try:
            async with asyncio.timeout(seconds):
                await slots.acquire()
        except TimeoutError:
            raise RequestTimeout(f"{address} did not answer earlier requests within {seconds:g} s") from None
        try:
            return await self._remoting.invoke(address, command, deadline - loop.time())
        finally:
            slots.release()

    async def invoke_frame(
        self, address: str, code: RequestCode, make_frame: MakeFrame, *, seconds: float, accept: Sequence[int]
    ) -> Command:
        """Send an encoded request as `invoke` does; `make_frame` gets its opaque number. Not for a link that signs."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        response = await self._remoting.invoke_frame(address, code, make_frame, seconds)
        if response.code not in accept:
            raise refusal(response)
        return response

    async def invoke_oneway(
        self, address: str, code: RequestCode, header: Header | None = None, body: bytes = b""
    ) -> None:
        """Send a request without waiting for a response."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        await self._remoting.invoke_oneway(address, self.command(code, header, body))

    async def invoke_name_server(
        self, code: RequestCode, header: Header | None = None, *, accept: Sequence[int] = (ResponseCode.SUCCESS,)
    ) -> Command:
        """Send a request to one name server after the other until one answers."""
        failure: RemotingError | None = None
        for _ in range(len(self._name_servers)):
            address = self._name_servers[0]
            try:
                return await self.invoke(address, code, header, accept=accept)
            except BrokerRefused as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    advice = f"is {address} a name server? it may be the address of a broker"
                    raise BrokerRefused(error.code, error.remark, advice=advice) from None
                raise
            except RemotingError as error:
                failure = error
                self._name_servers.append(self._name_servers.pop(0))
        assert failure is not None
        raise failure

    async def connection(self, address: str) -> Connection:
        """Return the connection to `address`; open it if necessary."""
        return await self._remoting.connect(address)

    def open_connection(self, address: str) -> Connection | None:
        """Return the connection to `address` if it is open, else None."""
        return None if self._is_closed else self._remoting.open_connection(address)

    def drop_silent(self, address: str, seconds: float, reason: str) -> None:
        """Close the connection to an address if responses are due and nothing was read for `seconds`."""
        if not self._is_closed:
            self._remoting.drop_silent(address, seconds, reason)

    @property
    def signs(self) -> bool:
        """Return whether requests are signed."""
        return self._credentials is not None

    @property
    def name_servers(self) -> tuple[str, ...]:
        return tuple(self._name_servers)

    def command(self, code: RequestCode, header: Header | None, body: bytes = b"") -> Command:
        """Build a request command; sign it if there are credentials."""
        command = Command(code, ext_fields={} if header is None else header.to_ext_fields(), body=body)
        if self._credentials is not None:
            self._credentials.sign(command)
        return command

    async def close(self) -> None:
        self._is_closed = True
        await self._remoting.close()
