"""Parts that a broker may have: slaves, a master, users; brokers without them refuse the request."""

from __future__ import annotations

from typing import Any

import msgspec

from orbitlog.client.admin.access_admin import AccessAdmin
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.views.answers import Answer
from orbitlog.errors import OrbitlogError
from orbitlog.wire.codes import RequestCode

_SECONDS = 3.0
_ROWS_MAX = 200


class SlaveRow(Answer, kw_only=True):
    """One slave that is connected to a master."""

    address: str
    lag_bytes: int | None
    acknowledged: int | None
    bytes_per_second: int | None
    in_sync: bool


class ReplicationPart(Answer, kw_only=True):
    """Replication as the broker reports it: the slaves of a master, or the master of a slave."""

    slaves: list[SlaveRow]
    master: str | None = None
    is_connected: bool | None = None


class UserRow(Answer, kw_only=True):
    """One user of the broker's access control."""

    user: str
    kind: str
    status: str


async def read_replication(source: ClusterSource, address: str) -> ReplicationPart | None:
    """Return the replication of a broker; None from brokers that do not report it, such as those of 4.9."""
    try:
        answer = await source.admin.link.invoke(address, RequestCode.GET_BROKER_HA_STATUS, seconds=_SECONDS)
        body = msgspec.json.decode(answer.body or b"{}")
    except (OrbitlogError, msgspec.DecodeError):
        return None
    if not isinstance(body, dict):
        return None
    connections = body.get("haConnectionInfo") or []
    slaves = [_slave(row) for row in connections[:_ROWS_MAX] if isinstance(row, dict)]
    client = body.get("haClientRuntimeInfo")
    if body.get("master", True) or not isinstance(client, dict):
        return ReplicationPart(slaves=slaves)
    return ReplicationPart(
        slaves=slaves, master=str(client.get("masterAddr") or ""), is_connected=bool(client.get("activated"))
    )


def _slave(row: dict[str, Any]) -> SlaveRow:
    return SlaveRow(
        address=str(row.get("addr", "")),
        lag_bytes=_number(row.get("diff")),
        acknowledged=_number(row.get("slaveAckOffset")),
        bytes_per_second=_number(row.get("transferredByteInSecond")),
        in_sync=row.get("inSync") is True,
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


async def read_users(source: ClusterSource, address: str) -> list[UserRow] | None:
    """Return the users of a broker; None if it has no access control, or the console may not read them."""
    try:
        found = await AccessAdmin(source.admin.link).users(address)
    except OrbitlogError:
        return None
    rows = [
        UserRow(user=str(row.get("username")), kind=str(row.get("userType")), status=str(row.get("userStatus")))
        for row in found[:_ROWS_MAX]
    ]
    return sorted(rows, key=lambda row: row.user) or None
