"""Access control of a name server: registrations, routes and configs need credentials."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from orbitlog import SendStatus
from orbitlog.access.access_file import save_access_file
from orbitlog.access.credentials import Credentials
from orbitlog.access.user_table import UserTable
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.client.connection.connect import connect
from orbitlog.errors import BrokerRefused
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import load_nameserver_settings
from orbitlog.remoting.client import RemotingClient
from orbitlog.settings.setting import SettingError
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import SMALL, TIMEOUT_S
from tests.support.certificates import expired_server_files
from tests.support.loops import run, until

ROOT = Credentials("root-user", "root-secret")
FIELDS = {
    "topic": "T",
    "namespace": "N",
    "key": "K",
    "value": "V",
    "brokerName": "a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "C",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}


NOBODY = Credentials("nobody", "nobody-secret")


def with_user(tmp_path: Path, user: Credentials, *entries: dict[str, object]) -> None:
    """Write a user with a policy of these entries into the file of the name server."""
    table = UserTable()
    table.create_user(user.access_key, {"password": user.secret_key})
    if entries:
        table.put_acl(f"User:{user.access_key}", {"policies": [{"entries": [*entries], "policyType": "Custom"}]})
    save_access_file(tmp_path / "access.json", table, 1)


def server_at(tmp_path: Path, **more: str) -> NameServer:
    first = json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key})
    texts = {"listenPort": "0", "accessFile": str(tmp_path / "access.json"), "initAuthenticationUser": first}
    texts |= {"authenticationEnabled": "true", "authorizationEnabled": "true"}
    texts |= {"authenticationFailuresPerMinuteMax": "1000000", **more}
    return NameServer(load_nameserver_settings(None, {}, [f"{key}={text}" for key, text in texts.items()]))


def test_every_code_is_refused_without_and_with_wrong_credentials(tmp_path: Path) -> None:
    async def work() -> None:
        with_user(tmp_path, NOBODY)
        server = server_at(tmp_path)
        await server.start()
        client = RemotingClient()
        address = f"127.0.0.1:{server.address[1]}"
        try:
            for code in (*server.served_codes, 54, 3001, 99999):
                for credentials in (None, Credentials("root-user", "wrong"), Credentials("eve", "x"), NOBODY):
                    command = Command(code, ext_fields=dict(FIELDS))
                    if credentials is not None:
                        credentials.sign(command)
                    answer = await client.invoke(address, command, TIMEOUT_S)
                    assert answer.code == ResponseCode.NO_PERMISSION, (code, credentials)
            assert server.table.broker_count == 0
            assert server.kv_configs.namespace("N") is None
            command = Command(RequestCode.PUT_KV_CONFIG, ext_fields=dict(FIELDS))
            ROOT.sign(command)
            assert (await client.invoke(address, command, TIMEOUT_S)).code == ResponseCode.SUCCESS
            shown = Command(RequestCode.GET_NAMESRV_CONFIG)
            ROOT.sign(shown)
            settings = (await client.invoke(address, shown, TIMEOUT_S)).body
            assert b"authenticationEnabled=true" in settings
            assert b"root-secret" not in settings
        finally:
            await client.close()
            await server.stop()

    run(work())


@pytest.mark.parametrize("checks", [True, False], ids=["broker checks requests", "broker is open"])
@pytest.mark.parametrize("has_credentials", [True, False])
def test_broker_registers_with_its_inner_credentials_only(tmp_path: Path, has_credentials: bool, checks: bool) -> None:
    async def work() -> None:
        server = server_at(tmp_path)
        await server.start()
        inner = json.dumps({"accessKey": ROOT.access_key, "secretKey": ROOT.secret_key})
        more = {"authenticationEnabled": str(checks).lower(), "innerClientAuthenticationCredentials": inner}
        texts = {**SMALL, "listenPort": "0", "namesrvAddr": f"127.0.0.1:{server.address[1]}"}
        broker = Broker(BrokerSettings({**texts, **(more if has_credentials else {})}), tmp_path / "store")
        try:
            await broker.start()
            assert server.table.broker_count == int(has_credentials)
        finally:
            await broker.stop()
            await server.stop()

    run(work())


@pytest.mark.parametrize(("cluster", "registered"), [("East", 1), ("West", 0)])
def test_account_of_a_cluster_registers_brokers_of_that_cluster_only(
    cluster: str, registered: int, tmp_path: Path
) -> None:
    entry = {"resource": "Cluster:East", "actions": ["Update"], "decision": "Allow"}
    with_user(tmp_path, NOBODY, entry)

    async def work() -> None:
        server = server_at(tmp_path)
        await server.start()
        inner = json.dumps({"accessKey": NOBODY.access_key, "secretKey": NOBODY.secret_key})
        texts = {**SMALL, "listenPort": "0", "namesrvAddr": f"127.0.0.1:{server.address[1]}"}
        texts |= {"innerClientAuthenticationCredentials": inner, "brokerClusterName": cluster}
        broker = Broker(BrokerSettings(texts), tmp_path / "store")
        try:
            await broker.start()
            assert server.table.broker_count == registered
        finally:
            await broker.stop()
            await server.stop()

    run(work())


def test_account_creates_a_topic_by_sending_with_a_right_on_that_topic_alone(tmp_path: Path) -> None:
    with_user(tmp_path, NOBODY, {"resource": "Topic:New", "actions": ["Pub"], "decision": "Allow"})

    async def work() -> None:
        server = server_at(tmp_path)
        await server.start()
        inner = json.dumps({"accessKey": ROOT.access_key, "secretKey": ROOT.secret_key})
        texts = {**SMALL, "listenPort": "0", "namesrvAddr": f"127.0.0.1:{server.address[1]}"}
        texts |= {"authenticationEnabled": "true", "authorizationEnabled": "true"}
        texts |= {"accessFile": str(tmp_path / "access.json"), "innerClientAuthenticationCredentials": inner}
        broker = Broker(BrokerSettings(texts), tmp_path / "store")
        try:
            await broker.start()
            async with connect(f"rocketmq://127.0.0.1:{server.address[1]}", credentials=NOBODY) as mq:
                assert (await mq.send("New", "one")).status is SendStatus.SENT
                with pytest.raises(BrokerRefused, match="Topic:Other"):
                    await mq.send("Other", "one")
            assert broker.state.topics.find("Other") is None
        finally:
            await broker.stop()
            await server.stop()

    run(work())


def test_audit_log_has_refusals_and_changes(tmp_path: Path) -> None:
    async def work() -> None:
        server = server_at(tmp_path, accessLogFile=str(tmp_path / "logs" / "access.log"))
        await server.start()
        client = RemotingClient()
        try:
            for credentials in (ROOT, Credentials("eve", "x")):
                command = Command(RequestCode.PUT_KV_CONFIG, ext_fields=dict(FIELDS))
                credentials.sign(command)
                await client.invoke(f"127.0.0.1:{server.address[1]}", command, TIMEOUT_S)
        finally:
            await client.close()
            await server.stop()

    run(work())
    lines = [json.loads(line) for line in (tmp_path / "logs" / "access.log").read_text().splitlines()]
    assert [(line["decision"], line["account"], line["request"]) for line in lines] == [
        ("allowed", "root-user", "PUT_KV_CONFIG"),
        ("refused", "eve", "PUT_KV_CONFIG"),
    ]


def test_authentication_needs_a_file_of_users() -> None:
    with pytest.raises(SettingError, match="accessFile"):
        NameServer(load_nameserver_settings(None, {}, ["authenticationEnabled=true"]))


def test_failed_check_does_not_end_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        server = server_at(tmp_path, scanNotActiveBrokerInterval="10")
        access = server._access
        assert access is not None
        reloads = 0

        def fail() -> bool:
            nonlocal reloads
            reloads += 1
            raise RuntimeError("a reload that fails")

        monkeypatch.setattr(access, "check", fail)
        with pytest.raises(RuntimeError):
            await server.start()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        try:
            await until(lambda: reloads > 2)
        finally:
            await server.stop()

    run(work())


def test_name_server_of_its_own_reports_a_certificate_that_ends(tmp_path: Path) -> None:
    files = expired_server_files()
    tls = {"tls.server.certPath": files.certificate, "tls.server.keyPath": files.key}

    async def work() -> None:
        server = server_at(tmp_path, **tls)
        server.watch_certificate()
        await server.start()
        try:
            assert [active.condition.name for active in server.conditions] == ["certificate_expiring"]
        finally:
            await server.stop()

    run(work())
