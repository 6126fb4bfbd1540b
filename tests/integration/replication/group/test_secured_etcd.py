"""Replica groups whose etcd has TLS, with client certificates or users. etcd's gateway refuses both together."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import orbitlog
from orbitlog.errors import RemotingError
from orbitlog.replication.group.etcd_gateway import EtcdAccess, EtcdGateway
from tests.support.certificates import client_files, server_files, shared_ca
from tests.support.etcd_servers import EtcdServers
from tests.support.replica_group import ReplicaGroup

pytestmark = pytest.mark.xdist_group("etcd")

USER, PASSWORD = "orbitlog", "secret"


def tls(*, with_certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(shared_ca().certificate))
    if with_certificate:
        context.load_cert_chain(client_files().certificate, client_files().key)
    return context


@contextmanager
def secured_etcd(tmp_path: Path, *, demands_certificates: bool) -> Iterator[EtcdServers]:
    directory = tmp_path / "etcd"
    directory.mkdir()
    files = server_files()._replace(trust=str(shared_ca().certificate))
    servers = EtcdServers(directory, 1, files, demands_certificates=demands_certificates)
    yield servers
    servers.close()


async def add_users(etcd: EtcdServers) -> None:
    """Create root, and a user that may only use the keys of replica groups."""
    gateway = EtcdGateway(etcd.endpoints, EtcdAccess(tls=tls(with_certificate=False)))
    for name in ("root", USER):
        await gateway.call("/v3/auth/role/add", {"name": name})
        await gateway.call("/v3/auth/user/add", {"name": name, "password": PASSWORD})
        await gateway.call("/v3/auth/user/grant", {"user": name, "role": name})
    keys = {"permType": "READWRITE", "key": "L29yYml0bG9nLw==", "range_end": "L29yYml0bG9nMA=="}  # /orbitlog/ to 0
    await gateway.call("/v3/auth/role/grant", {"name": USER, "perm": keys})
    await gateway.call("/v3/auth/enable", {})


async def is_refused(etcd: EtcdServers, access: EtcdAccess) -> bool:
    try:
        await EtcdGateway(etcd.endpoints, access).call("/v3/kv/range", {"key": "L29yYml0bG9nLw=="})
    except RemotingError:
        return True
    return False


def elect_and_send(etcd: EtcdServers, tmp_path: Path, access: EtcdAccess, *settings: str) -> None:
    """Start a group of one, wait until it is elected, and send."""
    ca = f"replicaCoordinatorCaFile={shared_ca().certificate}"
    group = ReplicaGroup(tmp_path, etcd, 1, ca, *settings)
    group.access = access

    async def send() -> None:
        async with orbitlog.connect(f"rocketmq://{group.name_server}") as mq:
            assert (await mq.send("Orders", "one")).status is orbitlog.SendStatus.SENT

    try:
        group.wait_for(lambda state: state.master == 1)
        asyncio.run(send())
    finally:
        group.close()


def test_group_with_client_certificates_for_etcd_elects_a_master(tmp_path: Path) -> None:
    with secured_etcd(tmp_path, demands_certificates=True) as etcd:
        assert asyncio.run(is_refused(etcd, EtcdAccess(tls=ssl.create_default_context())))
        assert asyncio.run(is_refused(etcd, EtcdAccess(tls=tls(with_certificate=False))))
        files = client_files()
        certificate, key = f"replicaCoordinatorCertFile={files.certificate}", f"replicaCoordinatorKeyFile={files.key}"
        elect_and_send(etcd, tmp_path, EtcdAccess(tls=tls()), certificate, key)


def test_group_with_a_user_of_etcd_over_tls_elects_a_master(tmp_path: Path) -> None:
    with secured_etcd(tmp_path, demands_certificates=False) as etcd:
        asyncio.run(add_users(etcd))
        context = tls(with_certificate=False)
        assert asyncio.run(is_refused(etcd, EtcdAccess(tls=context)))
        assert asyncio.run(is_refused(etcd, EtcdAccess(USER, "wrong", context)))
        name, password = f"replicaCoordinatorUser={USER}", f"replicaCoordinatorPassword={PASSWORD}"
        elect_and_send(etcd, tmp_path, EtcdAccess(USER, PASSWORD, context), name, password)
