"""User handlers: manage users and policies of ACL 2.0 for operators' tools; the request guard admits super users only.

Passwords are never part of a response. Mirrors `AdminBrokerProcessor` for codes 3001 to 3010.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from orbitlog.errors import FormatError, RequestRefused
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.whole_tables import table_response
from orbitlog.wire.admin_headers import AclRequest, ListAclsRequest, ListUsersRequest, UserRequest
from orbitlog.wire.bodies.body_json import read_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

if TYPE_CHECKING:
    from orbitlog.access.access_control import AccessControl
    from orbitlog.access.user_table import UserTable


class UserHandlers:
    """Serves the codes of users and policies."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    def create_user(self, _: Connection, request: Command) -> Answer:
        header, fields = UserRequest.from_ext_fields(request.ext_fields), _fields(request)
        return self._change(request, lambda users: users.create_user(header.username, fields))

    def update_user(self, _: Connection, request: Command) -> Answer:
        header, fields = UserRequest.from_ext_fields(request.ext_fields), _fields(request)
        return self._change(request, lambda users: users.update_user(header.username, fields))

    def delete_user(self, _: Connection, request: Command) -> Answer:
        header = UserRequest.from_ext_fields(request.ext_fields)
        return self._change(request, lambda users: users.delete_user(header.username))

    def get_user(self, _: Connection, request: Command) -> Answer:
        header = UserRequest.from_ext_fields(request.ext_fields)
        user = self._access.users.users.get(header.username or "")
        return _success(request, None if user is None else user.to_json())

    def list_users(self, _: Connection, request: Command) -> Answer:
        header = ListUsersRequest.from_ext_fields(request.ext_fields)
        users = self._access.users.find_users(header.filter)
        return _success(request, [user.to_json() for user in users] or None)

    def put_acl(self, _: Connection, request: Command) -> Answer:
        header, fields = AclRequest.from_ext_fields(request.ext_fields), _fields(request)
        return self._change(request, lambda users: users.put_acl(header.subject, fields))

    def delete_acl(self, _: Connection, request: Command) -> Answer:
        header = AclRequest.from_ext_fields(request.ext_fields)
        return self._change(
            request, lambda users: users.delete_acl(header.subject, header.policy_type, header.resource)
        )

    def get_acl(self, _: Connection, request: Command) -> Answer:
        acl = self._access.users.find_acl(AclRequest.from_ext_fields(request.ext_fields).subject)
        return _success(request, None if acl is None else acl.to_json())

    def list_acls(self, _: Connection, request: Command) -> Answer:
        header = ListAclsRequest.from_ext_fields(request.ext_fields)
        acls = self._access.users.find_acls(header.subject_filter, header.resource_filter)
        return _success(request, [acl.to_json() for acl in acls] or None)

    def _change(self, request: Command, change: Callable[[UserTable], None]) -> Command:
        if not self._access.options.checks_users:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "users are not in use here; set authenticationEnabled=true to use them"
            )
        self._access.change_users(change)
        return _success(request)


def _fields(request: Command) -> dict[str, Any]:
    try:
        fields = read_body(request.body) if request.body else None
    except FormatError:
        # Without its details, which quote the body: it may contain a password, and refusals are logged.
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body is not valid JSON") from None
    if not isinstance(fields, dict):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body is not a JSON object")
    return {str(name): value for name, value in fields.items()}


def _success(request: Command, content: object = None) -> Command:
    """Return a response; without content it has no body, as in Java."""
    return table_response(request, b"" if content is None else orjson.dumps(content))
