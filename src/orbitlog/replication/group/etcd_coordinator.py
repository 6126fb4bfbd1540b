"""etcd coordinator: the record of a replica group in etcd, changed by transactions.

    <prefix>state        the group's state; its revision is the key's mod_revision
    <prefix>live/<id>    a live member, under a lease; its session is the lease

A registration replaces the lease of the key, so that requests of an earlier run of the member fail their comparison.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from orbitlog.errors import RemotingError, WireError
from orbitlog.formats.java import LONG_MAX
from orbitlog.replication.group.etcd_gateway import EtcdGateway
from orbitlog.replication.group.group_state import (
    MEMBERS_MAX,
    LiveMember,
    Proposal,
    Snapshot,
    decode_group_state,
    decode_live_member,
    encode_group_state,
    encode_live_member,
)


class EtcdCoordinator:
    """One member's access to the record of its group."""

    def __init__(self, gateway: EtcdGateway, cluster: str, broker_name: str, member_id: int, lease_s: int = 3) -> None:
        self._gateway = gateway
        self._prefix = f"/orbitlog/{cluster}/{broker_name}/"
        self._member_id = member_id
        self.lease_s = lease_s
        self._lease = 0
        self._is_removed = False

    async def read(self) -> Snapshot:
        """Return state and live members, linearizable; raise `RemotingError`."""
        lease = self._lease
        snapshot = self._snapshot(await self._gateway.call("/v3/kv/range", self._whole_range(), is_repeatable=True))
        if lease and lease == self._lease and self._member_id not in snapshot.live:
            # A process with the same id has replaced the registration, and ended. While it is live, it is the member.
            self._is_removed = True
        return snapshot

    async def register(self, member: LiveMember) -> int:
        """Publish this member under a new lease; return its session.

        The key is compared with what it was, so that a request that arrives late does not replace a newer registration.
        """
        key = self._live_key()
        found = await self._gateway.call("/v3/kv/range", {"key": key}, is_repeatable=True)
        granted = await self._gateway.call("/v3/lease/grant", {"TTL": self.lease_s}, is_repeatable=True)
        lease = _number(granted.get("ID"), "lease")
        revision = _mod_revision(found)
        compare = [{"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}]
        put = {"request_put": {"key": key, "value": _base64(encode_live_member(member)), "lease": str(lease)}}
        answer = await self._gateway.call("/v3/kv/txn", {"compare": compare, "success": [put]})
        if not answer.get("succeeded"):
            raise RemotingError("etcd: another registration of this member has taken effect meanwhile")
        self._lease, self._is_removed = lease, False
        return lease

    async def renew(self) -> bool:
        """Renew the lease; return False if it has ended or is not in use any more, and the member must register."""
        answer = await self._gateway.call("/v3/lease/keepalive", {"ID": str(self._lease)}, is_repeatable=True)
        result = answer.get("result")
        is_alive = isinstance(result, dict) and _number(result.get("TTL", "0"), "TTL") > 0
        return is_alive and not self._is_removed

    async def propose(self, proposal: Proposal) -> Snapshot:
        """Apply a proposal if its conditions hold; return the state after it. On an error its outcome is unknown."""
        state_key = _base64(f"{self._prefix}state".encode())
        compare: list[dict[str, Any]] = [
            {"key": state_key, "target": "MOD", "result": "EQUAL", "mod_revision": str(proposal.base_revision)},
            {"key": self._live_key(), "target": "LEASE", "result": "EQUAL", "lease": str(proposal.session)},
        ]
        if proposal.absent_member is not None:
            key = self._live_key(proposal.absent_member)
            compare.append({"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"})
        put = {"request_put": {"key": state_key, "value": _base64(encode_group_state(proposal.state))}}
        read = {"request_range": self._whole_range()}
        answer = await self._gateway.call("/v3/kv/txn", {"compare": compare, "success": [put, read], "failure": [read]})
        responses = answer.get("responses")
        last = responses[-1] if isinstance(responses, list) and responses else None
        found = last.get("response_range") if isinstance(last, dict) else None
        if not isinstance(found, dict):
            raise WireError("etcd: the answer to a transaction has no range")
        return self._snapshot(found)

    async def close(self) -> None:
        """End the lease at once, so that others need not wait for its end."""
        if self._lease:
            lease, self._lease = self._lease, 0
            await self._gateway.call("/v3/lease/revoke", {"ID": str(lease)}, is_repeatable=True)

    def _live_key(self, member_id: int | None = None) -> str:
        return _base64(f"{self._prefix}live/{self._member_id if member_id is None else member_id}".encode())

    def _whole_range(self) -> dict[str, Any]:
        start = self._prefix.encode()
        # A range ends before the prefix with its last byte incremented.
        return {"key": _base64(start), "range_end": _base64(start[:-1] + bytes((start[-1] + 1,))), "limit": "256"}

    def _snapshot(self, found: dict[str, Any]) -> Snapshot:
        revision, state = 0, None
        live: dict[int, LiveMember] = {}
        kvs = found.get("kvs", [])
        if not isinstance(kvs, list):
            raise WireError("etcd: the answer has no list of keys")
        for kv in kvs:
            name, value = _key_value(kv, self._prefix)
            if name == "state":
                revision, state = _number(kv.get("mod_revision"), "mod_revision"), decode_group_state(value)
            elif name.startswith("live/") and len(live) < MEMBERS_MAX:
                session = _number(kv.get("lease", "0"), "lease")
                live[_number(name.removeprefix("live/"), "member")] = decode_live_member(value, session)
        return Snapshot(revision, state, live)


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _key_value(kv: object, prefix: str) -> tuple[str, bytes]:
    """Return the name of a key below the prefix, and its value."""
    if not isinstance(kv, dict):
        raise WireError("etcd: a key is not an object")
    try:
        key, value = b64decode(kv.get("key", ""), validate=True), b64decode(kv.get("value", ""), validate=True)
        return key.decode("utf-8").removeprefix(prefix), value
    except (ValueError, TypeError):
        raise WireError(f"etcd: {str(kv)[:80]!r} is not a key with a value") from None


def _mod_revision(found: dict[str, Any]) -> int:
    """Return the revision of the key that a range of one key has; 0 if it does not exist."""
    kvs = found.get("kvs", [])
    if not isinstance(kvs, list) or len(kvs) > 1 or not all(isinstance(kv, dict) for kv in kvs):
        raise WireError("etcd: the answer to the read of a key has no list of at most one key")
    return _number(kvs[0].get("mod_revision"), "mod_revision") if kvs else 0


def _number(text: object, field: str) -> int:
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or int(text[:20]) > LONG_MAX:
        raise WireError(f"etcd: {field} {str(text)[:40]!r} is not a number")
    return int(text)
