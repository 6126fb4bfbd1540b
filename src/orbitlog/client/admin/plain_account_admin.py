"""Administration of accounts of ACL 1.0 of one broker by its address.

Mirrors the calls of Java `MQClientAPIImpl` 4.9 for codes 50 to 54.
"""

from __future__ import annotations

from typing import Any

import orjson

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.errors import ClientError
from orbitlog.wire.admin_headers import GlobalWhiteAddressesRequest, PlainAccountRequest, PlainVersionResponse
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.header_codec import NoHeader

_SECONDS = 5.0


class PlainAccountAdmin:
    """Requests about accounts to single brokers; the account that signs them must be an administrator."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    async def put_account(self, address: str, account: PlainAccountRequest) -> None:
        """Create or change an account; raise `BrokerRefused` if a value is invalid."""
        await self._link.invoke(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account, b"", seconds=_SECONDS)

    async def delete_account(self, address: str, access_key: str) -> None:
        """Delete an account; raise `BrokerRefused` if it does not exist."""
        header = PlainAccountRequest(access_key=access_key)
        await self._link.invoke(address, RequestCode.DELETE_ACL_CONFIG, header, b"", seconds=_SECONDS)

    async def put_white_addresses(self, address: str, addresses: str, file: str = "") -> None:
        """Replace the global white addresses, separated by commas, of a file or of the default one."""
        header = GlobalWhiteAddressesRequest(addresses=addresses, file=file)
        await self._link.invoke(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header, b"", seconds=_SECONDS)

    async def versions(self, address: str) -> PlainVersionResponse:
        """Return the versions of the account files."""
        code = RequestCode.GET_BROKER_CLUSTER_ACL_INFO
        answer = await self._link.invoke(address, code, NoHeader(), b"", seconds=_SECONDS)
        return PlainVersionResponse.from_ext_fields(answer.ext_fields)

    async def accounts(self, address: str) -> dict[str, Any]:
        """Return the global white addresses and the accounts. Orbitlog returns no secrets."""
        code = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
        answer = await self._link.invoke(address, code, NoHeader(), b"", seconds=_SECONDS)
        try:
            content = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            content = None
        if not isinstance(content, dict):
            raise ClientError(f"{address} answered request {int(code)} with an invalid body")
        return content
