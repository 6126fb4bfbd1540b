"""Broker identity: the id that Apache's controller gave a broker, in the files of Java's `BrokerMetadata`.

brokerIdentity        cluster#name#id
brokerIdentity-temp   cluster#name#id#address;millis, while the id is applied for: a broker that is killed meanwhile
                      applies for the same id with the same check code
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from orbitlog.errors import RemotingError, StoreError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.java import LONG_MAX
from orbitlog.replication.controller.controller_client import ControllerClient
from orbitlog.storefiles.disk import Disk
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.replication.controller_headers import (
    ApplyBrokerIdRequest,
    NextBrokerIdRequest,
    NextBrokerIdResponse,
)

_TRIES = 5
_PAUSE_S_MAX = 1.0


class BrokerIdentity(NamedTuple):
    """Cluster, name and id of a broker; with a check code while the id is applied for."""

    cluster: str
    broker_name: str
    broker_id: int
    check_code: str = ""


def encode_identity(identity: BrokerIdentity) -> bytes:
    """Return the content of the file, as Java writes it."""
    fields = [identity.cluster, identity.broker_name, str(identity.broker_id)]
    return "#".join((*fields, identity.check_code) if identity.check_code else fields).encode()


def decode_identity(raw: bytes, path: Path) -> BrokerIdentity:
    """Return the identity in a file; raise `StoreError` if it is invalid."""
    fields = raw.decode("utf-8", "replace").strip().split("#")
    if len(fields) not in (3, 4) or not fields[2].isascii() or not fields[2].isdigit() or len(fields[2]) > 19:
        raise StoreError(f"{path}: {raw[:80]!r} is not cluster#name#id, which Java's brokers write")
    if not 0 < int(fields[2]) <= LONG_MAX:
        raise StoreError(f"{path}: {fields[2]} is not an id that a controller gives")
    return BrokerIdentity(fields[0], fields[1], int(fields[2]), fields[3] if len(fields) == 4 else "")


class IdentityFiles:
    """The identity of the broker of one store."""

    def __init__(self, disk: Disk, root: Path, cluster: str, broker_name: str) -> None:
        self._disk = disk
        self._root = root
        self._cluster = cluster
        self._broker_name = broker_name

    def read(self, name: str = tree.BROKER_IDENTITY) -> BrokerIdentity | None:
        """Return the identity; None without a file. Raise `StoreError` if it is that of another broker."""
        path = self._root / name
        raw = self._disk.read_file(path)
        if not raw:
            return None
        identity = decode_identity(raw, path)
        if (identity.cluster, identity.broker_name) != (self._cluster, self._broker_name):
            raise StoreError(
                f"{path} is that of {identity.broker_name} in cluster {identity.cluster}, but brokerName is"
                f" {self._broker_name} and brokerClusterName is {self._cluster}: set them to those of the store"
            )
        return identity

    async def take(self, controller: ControllerClient, address: str, now_ms: Callable[[], int]) -> int:
        """Return the id of this broker; without one, apply for the next free one. Raise `RemotingError`."""
        identity = self.read()
        if identity is not None:
            return identity.broker_id
        self._disk.make_directory(self._root)
        for _ in range(_TRIES):
            applied = self.read(tree.BROKER_IDENTITY_APPLIED) or await self._next(controller, f"{address};{now_ms()}")
            if await self._apply(controller, applied):
                identity = applied._replace(check_code="")
                self._disk.replace_file(self._root / tree.BROKER_IDENTITY, encode_identity(identity))
                self._disk.remove_file(self._root / tree.BROKER_IDENTITY_APPLIED)
                return identity.broker_id
            self._disk.remove_file(self._root / tree.BROKER_IDENTITY_APPLIED)  # another broker has taken it
            await asyncio.sleep(random.uniform(0, _PAUSE_S_MAX))  # noqa: S311 - spreads brokers that start together
        raise RemotingError(f"the controller gave {self._broker_name} no broker id in {_TRIES} tries")

    async def _next(self, controller: ControllerClient, check_code: str) -> BrokerIdentity:
        header = NextBrokerIdRequest(cluster=self._cluster, broker_name=self._broker_name)
        answer = await controller.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        broker_id = NextBrokerIdResponse.from_ext_fields(answer.ext_fields).broker_id
        applied = BrokerIdentity(self._cluster, self._broker_name, broker_id, check_code)
        self._disk.replace_file(self._root / tree.BROKER_IDENTITY_APPLIED, encode_identity(applied))
        return applied

    async def _apply(self, controller: ControllerClient, applied: BrokerIdentity) -> bool:
        header = ApplyBrokerIdRequest(
            cluster=applied.cluster,
            broker_name=applied.broker_name,
            broker_id=applied.broker_id,
            check_code=applied.check_code,
        )
        refused = (ResponseCode.CONTROLLER_BROKER_ID_INVALID,)
        answer = await controller.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header, accepts=refused)
        return answer.code == ResponseCode.SUCCESS
