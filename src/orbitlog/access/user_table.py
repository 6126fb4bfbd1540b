"""User table: users and policies of ACL 2.0, and the changes that Java's tools make to them.

A change either succeeds as a whole or raises `RequestRefused` with the code and remark of Java's broker. Mirrors Java
`AuthenticationMetadataManagerImpl`, `AuthorizationMetadataManagerImpl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from orbitlog.access.access_model import Account, BadPolicy, PolicyEntry, Resource
from orbitlog.access.access_settings import QuotaLimits
from orbitlog.access.user_records import (
    CUSTOM,
    DISABLED,
    SUBJECT_PREFIX,
    SUPER,
    Acl,
    User,
    checked_password,
    checked_username,
    parse_policies,
    parse_policy_type,
    parse_status,
    parse_subject,
    parse_user,
    parse_user_type,
)
from orbitlog.errors import RequestRefused
from orbitlog.wire.codes import ResponseCode

USERS_MAX = 100_000


@contextmanager
def _refusing(code: int = ResponseCode.NO_PERMISSION) -> Iterator[None]:
    try:
        yield
    except BadPolicy as error:
        raise RequestRefused(code, str(error)) from None


class UserTable:
    """Users by name, and ACLs by subject."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.acls: dict[str, Acl] = {}
        self.topic_owners: dict[str, str] = {}
        """The user that created a topic, if it had a quota of topics."""

    def copy(self) -> UserTable:
        """Return a table that can be changed without changing this one."""
        table = UserTable()
        table.users, table.acls = dict(self.users), dict(self.acls)
        table.topic_owners = dict(self.topic_owners)
        return table

    def account(self, name: str) -> Account | None:
        """Return a user with its policies, as the access model has it."""
        user = self.users.get(name)
        if user is None:
            return None
        acl = self.acls.get(SUBJECT_PREFIX + name, Acl(name))
        is_enabled = user.status != DISABLED
        is_super = user.user_type == SUPER
        return Account(name, user.password, is_super, is_enabled, acl.custom, acl.default, is_super, limits=user.limits)

    def accounts(self) -> dict[str, Account]:
        """Return all users as the access model has them."""
        return {name: account for name in self.users if (account := self.account(name)) is not None}

    # Users

    def create_user(self, username: str | None, fields: Mapping[str, Any]) -> None:
        """Add a user (3001)."""
        with _refusing(ResponseCode.INVALID_PARAMETER):
            name = checked_username(username)
        if name in self.users:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "The user is existed")
        if len(self.users) >= USERS_MAX:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the maximum of {USERS_MAX} users is reached")
        with _refusing():
            self.users[name] = parse_user({**fields, "username": name})

    def update_user(self, username: str | None, fields: Mapping[str, Any]) -> None:
        """Change password, type or status of a user (3002); absent fields keep their value."""
        user = self.users.get(username or "")
        if user is None:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "The user is not exist")
        password = fields.get("password")
        with _refusing():
            self.users[user.username] = replace(
                user,
                password=user.password if password is None else checked_password(password),
                user_type=parse_user_type(fields.get("userType"), user.user_type),
                status=parse_status(fields.get("userStatus"), user.status),
            )

    def set_limits(self, username: str, limits: QuotaLimits) -> None:
        """Change the quotas of a user; absent ones stay."""
        user = self.users.get(username)
        if user is None:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "The user is not exist")
        self.users[username] = replace(user, limits=limits.over(user.limits))

    def delete_user(self, username: str | None) -> None:
        """Delete a user and its ACL (3003); succeed if the user does not exist."""
        self.users.pop(username or "", None)
        self.acls.pop(f"{SUBJECT_PREFIX}{username}", None)

    def find_users(self, text: str | None) -> list[User]:
        """Return the users whose name contains a text (3005)."""
        return [user for name, user in sorted(self.users.items()) if not text or text in name]

    # Policies

    def put_acl(self, subject: str | None, fields: Mapping[str, Any]) -> None:
        """Add policy entries to a subject, or replace those with the same resource (3006, 3007)."""
        with _refusing():
            name = parse_subject(subject)
            if name.removeprefix(SUBJECT_PREFIX) not in self.users:
                raise BadPolicy(f"The subject of {name} is not exist.")
            acl = self.acls.get(name, Acl(name))
            for policy_type, entries in parse_policies(fields):
                present = acl.custom if policy_type == CUSTOM else acl.default
                merged = {str(entry.resource): entry for entry in (*present, *entries)}
                acl = acl.with_entries(policy_type, merged.values())
        self.acls[name] = acl

    def delete_acl(self, subject: str | None, policy_type: str | None, resource: str | None) -> None:
        """Delete the ACL of a subject, or its entry of one resource (3008)."""
        acl = self.find_acl(subject)
        if acl is None:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "The acl is not exist.")
        if not resource:
            del self.acls[acl.subject]
            return
        with _refusing():
            policy = parse_policy_type(policy_type)
            wanted = str(Resource.parse(resource))
            present = acl.custom if policy == CUSTOM else acl.default
            acl = acl.with_entries(policy, (entry for entry in present if str(entry.resource) != wanted))
        if acl.policies():
            self.acls[acl.subject] = acl
        else:
            del self.acls[acl.subject]

    def find_acl(self, subject: str | None) -> Acl | None:
        """Return the ACL of a subject (3009); raise `RequestRefused` if the subject is unknown."""
        with _refusing():
            name = parse_subject(subject)
        if name.removeprefix(SUBJECT_PREFIX) not in self.users:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "The subject is not exist.")
        return self.acls.get(name)

    def find_acls(self, subject: str | None, resource: str | None) -> list[Acl]:
        """Return ACLs whose subject contains a text, with the entries whose resource contains another (3010)."""
        found = []
        for name, acl in sorted(self.acls.items()):
            if subject and subject not in name:
                continue
            shown = Acl(name, _with_resource(acl.custom, resource), _with_resource(acl.default, resource))
            if shown.policies():
                found.append(shown)
        return found


def _with_resource(entries: tuple[PolicyEntry, ...], text: str | None) -> tuple[PolicyEntry, ...]:
    return tuple(entry for entry in entries if not text or text in str(entry.resource))
