"""Verbs about accounts of `plain_acl.yml`. Mirrors Java `tools.command.acl` of 4.9."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import orjson

from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import VerbSession
from orbitlog.client.admin.plain_account_admin import PlainAccountAdmin
from orbitlog.wire.admin_headers import PlainAccountRequest, PlainVersionResponse

_VERSION = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
_VERSION_HEADS = (
    *("#Cluster Name", "#Broker Name", "#Broker Addr", "#AclFilePath", "#AclConfigVersionNum"),
    "#AclLastUpdateTime",
)
_FIELDS = (
    *("accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"),
    *("topicPerms", "groupPerms"),
)

Call = Callable[[PlainAccountAdmin, str], Awaitable[None]]


async def _at_each(session: VerbSession, given: FlagValues, sentence: str, call: Call) -> None:
    """Call for one broker, or for every broker of a cluster."""
    addresses = [given["b"]] if "b" in given else await session.cluster_brokers(given["c"], copies=True)
    for address in addresses:
        await call(PlainAccountAdmin(session.admin.link), address)
        session.row(sentence, address)


async def update_acl_config(session: VerbSession, given: FlagValues) -> None:
    account = PlainAccountRequest(
        access_key=given["a"],
        secret_key=given["s"],
        white_address=given.get("w"),
        is_admin=given.get("m", "").lower() == "true",
        default_topic_permission=given.get("i"),
        default_group_permission=given.get("u"),
        topic_permissions=given.get("t"),
        group_permissions=given.get("g"),
    )
    await _at_each(
        *(session, given, "create or update plain access config to %s success."),
        lambda admin, address: admin.put_account(address, account),
    )


async def delete_acl_config(session: VerbSession, given: FlagValues) -> None:
    name = given["a"]
    await _at_each(
        *(session, given, "delete plain access config account from %s success."),
        lambda admin, address: admin.delete_account(address, name),
    )
    session.print("account's accesskey is:%s", name)


async def update_global_white_addr(session: VerbSession, given: FlagValues) -> None:
    await _at_each(
        *(session, given, "update global white remote addresses to %s success."),
        lambda admin, address: admin.put_white_addresses(address, given["g"], given.get("p", "")),
    )


async def cluster_acl_config_version(session: VerbSession, given: FlagValues) -> None:
    addresses = [given["b"]] if "b" in given else await session.cluster_brokers(given["c"], copies=True)
    if "c" in given:
        session.row(_VERSION, *_VERSION_HEADS)
    for address in addresses:
        _show_versions(session, await PlainAccountAdmin(session.admin.link).versions(address))
    session.row(f"get {'broker' if 'b' in given else 'cluster'}'s plain access config version success.")


def _show_versions(session: VerbSession, response: PlainVersionResponse) -> None:
    shared = (response.cluster_name, response.broker_name, response.broker_address)
    for path, version in _record(orjson.loads(response.all_versions or "{}")).items():
        fields = _record(version)
        seconds = int(fields.get("timestamp", 0)) / 1000
        changed = datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        session.row(_VERSION, *shared, path, fields.get("counter"), changed)


async def get_acl_config(session: VerbSession, given: FlagValues) -> None:
    for address in await session.targets(given.get("b"), given.get("c")):
        content = await PlainAccountAdmin(session.admin.link).accounts(address)
        session.row("")
        session.row("%-20s: %s", "globalWhiteRemoteAddresses", content.get("globalWhiteAddrs"))
        session.row("accounts:")
        for account in content.get("plainAccessConfigs") or []:
            for name in _FIELDS:
                session.row("%-1s %-18s: %s", "", name, _record(account).get(name, ""))
            session.row("")


def _record(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
