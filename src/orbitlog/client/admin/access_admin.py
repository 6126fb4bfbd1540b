"""Administration of users and policies (ACL 2.0) of one broker by its address.

Mirrors the calls of Java `MQClientAPIImpl` for codes 3001 to 3010.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.errors import ClientError
from orbitlog.wire.admin_headers import AclRequest, ListAclsRequest, ListUsersRequest, UserRequest
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.header_codec import Header

_SECONDS = 5.0


class AccessAdmin:
    """Requests about users and policies to single brokers; the account must be a super user."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    async def create_user(
        self, address: str, username: str, password: str, user_type: str | None = None, status: str | None = None
    ) -> None:
        """Create a user; raise `BrokerRefused` if it exists."""
        fields = {"username": username, "password": password, "userType": user_type, "userStatus": status}
        await self._ask(address, RequestCode.AUTH_CREATE_USER, UserRequest(username=username), fields)

    async def update_user(self, address: str, username: str, changes: Mapping[str, str | None]) -> None:
        """Change `password`, `userType` or `userStatus` of a user; absent ones stay."""
        await self._ask(address, RequestCode.AUTH_UPDATE_USER, UserRequest(username=username), dict(changes))

    async def delete_user(self, address: str, username: str) -> None:
        """Delete a user and its policies; succeed if it does not exist."""
        await self._ask(address, RequestCode.AUTH_DELETE_USER, UserRequest(username=username))

    async def user(self, address: str, username: str) -> dict[str, str] | None:
        """Return a user, None if it does not exist. Orbitlog returns no password."""
        return _record(await self._ask(address, RequestCode.AUTH_GET_USER, UserRequest(username=username)))

    async def users(self, address: str, text: str | None = None) -> list[dict[str, str]]:
        """Return the users whose name contains a text."""
        return _records(await self._ask(address, RequestCode.AUTH_LIST_USER, ListUsersRequest(filter=text)))

    async def put_acl(
        self, address: str, subject: str, entries: Sequence[Mapping[str, Any]], *, is_update: bool = False
    ) -> None:
        """Add entries to the custom policy of a subject, or replace those with the same resource."""
        policies = [{"policyType": "Custom", "entries": list(entries)}]
        await self.put_policies(address, subject, policies, is_update=is_update)

    async def put_policies(
        self, address: str, subject: str, policies: Sequence[Mapping[str, Any]], *, is_update: bool = False
    ) -> None:
        """Add the entries of policies to those of a subject, or replace those with the same resource."""
        code = RequestCode.AUTH_UPDATE_ACL if is_update else RequestCode.AUTH_CREATE_ACL
        await self._ask(address, code, AclRequest(subject=subject), {"subject": subject, "policies": policies})

    async def delete_acl(self, address: str, subject: str, resource: str | None = None) -> None:
        """Delete the policies of a subject, or the entry of one resource."""
        await self._ask(address, RequestCode.AUTH_DELETE_ACL, AclRequest(subject=subject, resource=resource))

    async def acl(self, address: str, subject: str) -> dict[str, Any] | None:
        """Return the policies of a subject, None if it has none."""
        return _record(await self._ask(address, RequestCode.AUTH_GET_ACL, AclRequest(subject=subject)))

    async def acls(self, address: str, subject: str | None = None, resource: str | None = None) -> list[dict[str, Any]]:
        """Return policies whose subject and resource contain these texts."""
        header = ListAclsRequest(subject_filter=subject, resource_filter=resource)
        return _records(await self._ask(address, RequestCode.AUTH_LIST_ACL, header))

    async def _ask(
        self, address: str, code: RequestCode, header: Header, fields: Mapping[str, Any] | None = None
    ) -> Any:
        body = b""
        if fields is not None:
            body = orjson.dumps({name: value for name, value in fields.items() if value is not None})
        answer = await self._link.invoke(address, code, header, body, seconds=_SECONDS)
        try:
            return orjson.loads(answer.body) if answer.body else None
        except orjson.JSONDecodeError:
            raise ClientError(f"{address} answered request {int(code)} with an invalid body") from None


def _record(content: Any) -> dict[str, Any] | None:
    return content if isinstance(content, dict) else None


def _records(content: Any) -> list[dict[str, Any]]:
    return [item for item in content if isinstance(item, dict)] if isinstance(content, list) else []
