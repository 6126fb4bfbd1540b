"""Accounts of 1.0 that change while clients are connected: every file, white addresses, rotated keys, invalid files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.access.credentials import Credentials
from orbitlog.broker.runtime import broker_node
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import TIMEOUT_S, Desk, at_desk, until
from tests.support.secured_broker import ask, send

OPERATOR = Credentials("operator", "operator-1")
FIRST, SECOND = Credentials("account-1", "secret-1"), Credentials("account-2", "secret-2")
ROTATED = Credentials("account-1", "secret-3")
PULL = {"consumerGroup": "G", "topic": "Orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4"}
PULL |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"}


def account(credentials: Credentials, more: str = "topicPerms: [Orders=PUB|SUB], groupPerms: [G=SUB]") -> str:
    return f"- {{accessKey: {credentials.access_key}, secretKey: {credentials.secret_key}, {more}}}\n"


class Files:
    """The account files of a broker."""

    def __init__(self, home: Path) -> None:
        self.conf = home / "conf"
        (self.conf / "acl" / "deep").mkdir(parents=True)
        self.default = self.conf / "plain_acl.yml"
        self.default.write_text("accounts:\n" + account(OPERATOR, "admin: true") + account(FIRST))


async def settles(is_reached: Callable[[], object], desk: Desk, credentials: Credentials | None, code: int) -> None:
    """Change something, and send until the answers have a code: the broker compares the files by itself."""
    is_reached()
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if (await send(desk, credentials)).code == code:
                return
            await asyncio.sleep(0.01)


def with_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(broker_node, "_RELOAD_ACCOUNTS_MS", 50)
    files = Files(tmp_path / "home")

    async def go(desk: Desk) -> None:
        assert (await send(desk, OPERATOR)).code == ResponseCode.SUCCESS
        await work(desk, files)

    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path / "home")}
    at_desk(tmp_path / "store", go, authenticationFailuresPerMinuteMax="1000000", **settings)


def test_files_below_the_directory_come_and_go_while_clients_are_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(desk: Desk, files: Files) -> None:
        for _ in range(40):  # the connection has patterns of the fast path from here on
            assert (await send(desk, FIRST)).code == ResponseCode.SUCCESS
        more = files.conf / "acl" / "deep" / "more.yaml"
        assert (await send(desk, SECOND)).code == ResponseCode.SYSTEM_ERROR
        await settles(lambda: more.write_text("accounts:\n" + account(SECOND)), desk, SECOND, ResponseCode.SUCCESS)
        assert (await send(desk, FIRST)).code == ResponseCode.SUCCESS
        denied = "accounts:\n" + account(SECOND, "topicPerms: [Orders=SUB]")
        await settles(lambda: more.write_text(denied), desk, SECOND, ResponseCode.SYSTEM_ERROR)
        allowed = "accounts:\n" + account(SECOND)
        await settles(lambda: more.write_text(allowed), desk, SECOND, ResponseCode.SUCCESS)
        await settles(more.unlink, desk, SECOND, ResponseCode.SYSTEM_ERROR)
        assert (await send(desk, FIRST)).code == ResponseCode.SUCCESS
        assert len(desk.broker._listeners.main.connections) == 1

    with_files(tmp_path, monkeypatch, work)


def test_key_is_rotated_while_its_client_sends_and_consumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk, files: Files) -> None:
        for _ in range(40):
            assert (await send(desk, FIRST)).code == ResponseCode.SUCCESS
        text = files.default.read_text().replace("secret-1", "secret-3")
        await settles(lambda: files.default.write_text(text), desk, ROTATED, ResponseCode.SUCCESS)
        for _ in range(40):
            assert (await send(desk, FIRST)).code == ResponseCode.SYSTEM_ERROR
            assert (await send(desk, ROTATED)).code == ResponseCode.SUCCESS
        assert (await ask(desk, RequestCode.PULL_MESSAGE, FIRST, fields=PULL)).code == ResponseCode.SYSTEM_ERROR
        assert (await ask(desk, RequestCode.PULL_MESSAGE, ROTATED, fields=PULL)).code == ResponseCode.SUCCESS

    with_files(tmp_path, monkeypatch, work)


@pytest.mark.parametrize("pattern", ["127.0.0.1", "127.0.0.*", "127.0.0.1-9", "127.0.0.{1,2}", "127.0.0.7,127.0.0.1"])
def test_white_addresses_come_and_go(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk, files: Files) -> None:
        plain = files.default.read_text()
        wrong = Credentials("account-1", "wrong-secret")
        listed = f"globalWhiteRemoteAddresses: ['{pattern}']\n{plain}"
        await settles(lambda: files.default.write_text(listed), desk, None, ResponseCode.SUCCESS)
        assert (await send(desk, wrong)).code == ResponseCode.SUCCESS
        assert (await ask(desk, RequestCode.UPDATE_BROKER_CONFIG)).code == ResponseCode.SYSTEM_ERROR
        await settles(lambda: files.default.write_text(plain), desk, None, ResponseCode.SYSTEM_ERROR)
        assert (await send(desk, wrong)).code == ResponseCode.SYSTEM_ERROR
        own = plain.replace("secret-1,", f"secret-1, whiteRemoteAddress: '{pattern}',")
        await settles(lambda: files.default.write_text(own), desk, wrong, ResponseCode.SUCCESS)
        assert (await send(desk, None)).code == ResponseCode.SYSTEM_ERROR
        assert (await send(desk, Credentials("account-9", "secret-1"))).code == ResponseCode.SYSTEM_ERROR
        await settles(lambda: files.default.write_text(plain), desk, wrong, ResponseCode.SYSTEM_ERROR)

    with_files(tmp_path, monkeypatch, work)


@pytest.mark.parametrize(
    "text",
    [
        "accounts: [",
        "accounts:\n- {accessKey: short, secretKey: secret-1}\n",
        "accounts:\n" + account(FIRST, "topicPerms: [Orders]"),
        "globalWhiteRemoteAddresses: [10.0.0.0/8]\naccounts:\n" + account(OPERATOR, "admin: true"),
        "globalWhiteRemoteAddresses: ['*.0.0.1']\naccounts:\n" + account(OPERATOR, "admin: true"),
        "accounts:\n" + account(FIRST) + account(FIRST),
    ],
    ids=["yaml", "short key", "permission", "CIDR", "star first", "twice"],
)
def test_invalid_file_changes_nothing_and_is_reported_once(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(desk: Desk, files: Files) -> None:
        plain = files.default.read_text()
        files.default.write_text(text)
        await until(lambda: "could not reload access control" in caplog.text)
        await asyncio.sleep(0.3)
        assert caplog.text.count("could not reload access control") == 1
        assert (await send(desk, FIRST)).code == ResponseCode.SUCCESS
        assert (await send(desk, None)).code == ResponseCode.SYSTEM_ERROR
        repaired = plain.replace("secret-1", "secret-3")
        await settles(lambda: files.default.write_text(repaired), desk, ROTATED, ResponseCode.SUCCESS)

    with_files(tmp_path, monkeypatch, work)
