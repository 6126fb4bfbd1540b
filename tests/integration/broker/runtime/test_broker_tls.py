"""A broker and a name server with TLS: registration, mutual TLS with users, and what starts without it."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import load_broker_settings
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.client import RemotingClient
from orbitlog.settings.setting import SettingError
from orbitlog.settings.tls_options import TlsFiles
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import SMALL
from tests.support.certificates import client_files, server_files, shared_ca, trusting
from tests.support.secured_broker import SECURE, send_command


def tls_texts(**more: str) -> dict[str, str]:
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": server_files().certificate,
        "tls.server.keyPath": server_files().key,
        "tls.client.trustCertPath": str(shared_ca().certificate),
        **{key.replace("__", "."): text for key, text in more.items()},
    }


@asynccontextmanager
async def broker_with(texts: dict[str, str], root: Path, name_server: str = "") -> AsyncIterator[str]:
    given = {**SMALL, **texts, "listenPort": "0", "namesrvAddr": name_server}
    broker = Broker(load_broker_settings(None, [f"{key}={text}" for key, text in given.items()], {}), root)
    await broker.start()
    try:
        yield f"127.0.0.1:{broker.address[1]}"
    finally:
        await broker.stop()


async def ask(address: str, command: Command, tls: ssl.SSLContext) -> Command:
    client = RemotingClient(tls=tls)
    try:
        return await client.invoke(address, command, 10.0)
    finally:
        await client.close()


def test_enforcing_broker_registers_over_tls_and_serves(tmp_path: Path) -> None:
    async def test() -> None:
        name_server = NameServer(NameServerSettings(listen_port=0, tls=tls_texts()))
        await name_server.start()
        address = f"127.0.0.1:{name_server.address[1]}"
        async with broker_with(tls_texts(), tmp_path, address) as broker:
            cluster = await ask(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), trusting())
            assert broker.encode() in cluster.body
            assert (await ask(broker, send_command(None), trusting())).code == ResponseCode.SUCCESS
        await name_server.stop()

    asyncio.run(test())


def test_certificate_names_a_user_whose_policies_apply(tmp_path: Path) -> None:
    mutual = tls_texts(
        tls__server__need__client__auth="optional", tls__server__trustCertPath=str(shared_ca().certificate)
    )
    first = {**SECURE, "initAuthenticationUser": '{"username":"alice","password":"alice-secret"}'}

    async def test() -> None:
        async with broker_with({**mutual, **first, "tlsPrincipalFrom": "subjectCN"}, tmp_path) as broker:
            for files, code in ((client_files(), ResponseCode.SUCCESS), (TlsFiles(), ResponseCode.NO_PERMISSION)):
                for command in (send_command(None), Command(RequestCode.GET_BROKER_CONFIG)):
                    assert (await ask(broker, command, trusting(files))).code == code

    asyncio.run(test())


def test_unusable_certificate_stops_the_start_before_the_store_is_touched(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(SettingError, match=r"tls.server.certPath: /missing\.pem: no such file"):
            async with broker_with(tls_texts(tls__server__certPath="/missing.pem"), tmp_path / "store"):
                pass

    asyncio.run(test())
    assert not (tmp_path / "store").exists()


def test_start_without_tls_imports_nothing_of_it() -> None:
    script = (
        "import sys\nfrom orbitlog.broker.runtime.broker_node import Broker\n"
        "from orbitlog.nameserver.name_server import NameServer\n"
        "from orbitlog.settings.tls_settings import check_tls\nassert check_tls({'brokerName': 'a'}) is None\n"
        "print(*sorted(name for name in sys.modules if '.tls' in name and name.startswith('orbitlog')))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["orbitlog.settings.tls_settings"]
