"""Verbs about users and policies. Mirrors Java `tools.command.auth`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import VerbFailed, VerbSession
from orbitlog.client.admin.access_admin import AccessAdmin

_USER = "%-16s  %-22s  %-22s  %-22s"
_ACL = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"
_USER_HEADS = ("#UserName", "#Password", "#UserType", "#UserStatus")
_ACL_HEADS = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")

Call = Callable[[AccessAdmin, str], Awaitable[None]]


async def _at_each(session: VerbSession, given: FlagValues, what: str, call: Call) -> None:
    """Call for one broker, or for every broker of a cluster."""
    cluster = given.get("c")
    addresses = [given["b"]] if "b" in given else await session.cluster_brokers(cluster or "", copies=True)
    for address in addresses:
        await call(AccessAdmin(session.admin.link), address)
        session.row(f"{what} to %s success.", address)


async def _one_of(session: VerbSession, given: FlagValues) -> str | None:
    """Return the address of the broker, or of a master of the cluster."""
    addresses = await session.targets(given.get("b"), given.get("c"))
    return addresses[0] if addresses else None


async def create_user(session: VerbSession, given: FlagValues) -> None:
    await _at_each(
        *(session, given, "create user"),
        lambda admin, address: admin.create_user(address, given["u"], given["p"], given.get("t")),
    )


async def update_user(session: VerbSession, given: FlagValues) -> None:
    changes = {"password": given.get("p"), "userType": given.get("t"), "userStatus": given.get("s")}
    await _at_each(
        session, given, "update user", lambda admin, address: admin.update_user(address, given["u"], changes)
    )


async def delete_user(session: VerbSession, given: FlagValues) -> None:
    await _at_each(session, given, "delete user", lambda admin, address: admin.delete_user(address, given["u"]))


async def get_user(session: VerbSession, given: FlagValues) -> None:
    address = await _one_of(session, given)
    user = None if address is None else await AccessAdmin(session.admin.link).user(address, given["u"])
    if user is not None:
        _show_users(session, [user])


async def list_user(session: VerbSession, given: FlagValues) -> None:
    address = await _one_of(session, given)
    users = [] if address is None else await AccessAdmin(session.admin.link).users(address, given.get("f"))
    if users:
        _show_users(session, users)
        if "c" in given:
            session.row("get user from %s success.", address)


def _show_users(session: VerbSession, users: list[dict[str, str]]) -> None:
    session.row(_USER, *_USER_HEADS)
    for user in users:
        session.row(_USER, *(user.get(key) for key in ("username", "password", "userType", "userStatus")))


def _entries(given: FlagValues) -> list[dict[str, Any]]:
    shared: dict[str, Any] = {"actions": _parts(given["a"]), "decision": given["d"]}
    if given.get("i"):
        shared["sourceIps"] = _parts(given["i"])
    return [{"resource": resource, **shared} for resource in _parts(given["r"])]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


async def create_acl(session: VerbSession, given: FlagValues) -> None:
    entries = _entries(given)
    await _at_each(session, given, "create acl", lambda admin, address: admin.put_acl(address, given["s"], entries))


async def update_acl(session: VerbSession, given: FlagValues) -> None:
    entries = _entries(given)
    await _at_each(
        *(session, given, "update acl"),
        lambda admin, address: admin.put_acl(address, given["s"], entries, is_update=True),
    )


async def delete_acl(session: VerbSession, given: FlagValues) -> None:
    resources: list[str | None] = [*_parts(given.get("r") or "")] or [None]

    async def call(admin: AccessAdmin, address: str) -> None:
        for resource in resources:
            await admin.delete_acl(address, given["s"], resource)

    await _at_each(session, given, "delete acl", call)


async def get_acl(session: VerbSession, given: FlagValues) -> None:
    address = await _one_of(session, given)
    acl = None if address is None else await AccessAdmin(session.admin.link).acl(address, given["s"])
    if acl is not None:
        _show_acls(session, [acl])


async def list_acl(session: VerbSession, given: FlagValues) -> None:
    address = await _one_of(session, given)
    admin = AccessAdmin(session.admin.link)
    acls = [] if address is None else await admin.acls(address, given.get("s"), given.get("r"))
    if acls:
        _show_acls(session, acls)


async def copy_user(session: VerbSession, given: FlagValues) -> None:
    """Copy users with their passwords, which Apache's broker returns; Orbitlog returns none."""
    admin, source, target = AccessAdmin(session.admin.link), given["f"], given["t"]
    names = _parts(given.get("u") or "")
    found = [await admin.user(source, name) for name in names] if names else await admin.users(source)
    for user in found:
        if user is None:
            continue
        name, password = user["username"], user.get("password")
        if not password:
            raise VerbFailed(f"{source} returns no passwords; create user {name} with `orbitlog mqadmin createUser`")
        if await admin.user(target, name) is None:
            await admin.create_user(target, name, password, user.get("userType"), user.get("userStatus"))
        else:
            changes = {key: user.get(key) for key in ("password", "userType", "userStatus")}
            await admin.update_user(target, name, changes)
        session.row("copy user of %s from %s to %s success.", name, source, target)


async def copy_acl(session: VerbSession, given: FlagValues) -> None:
    admin, source, target = AccessAdmin(session.admin.link), given["f"], given["t"]
    subjects = _parts(given.get("s") or "")
    found = [await admin.acl(source, subject) for subject in subjects] if subjects else await admin.acls(source)
    for acl in found:
        if acl is None:
            continue
        subject, policies = str(acl.get("subject")), _records(acl.get("policies"))
        is_update = await admin.acl(target, subject) is not None
        await admin.put_policies(target, subject, policies, is_update=is_update)
        session.row("copy acl of %s from %s to %s success.", subject, source, target)


def _show_acls(session: VerbSession, acls: list[dict[str, Any]]) -> None:
    session.row(_ACL, *_ACL_HEADS)
    for acl in acls:
        for policy in _records(acl.get("policies")):
            for entry in _records(policy.get("entries")):
                values = (entry.get(key) for key in ("resource", "actions", "sourceIps", "decision"))
                session.row(_ACL, acl.get("subject"), policy.get("policyType"), *values)


def _records(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
