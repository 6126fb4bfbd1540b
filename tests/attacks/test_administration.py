"""Administration by strangers: refused on exposed addresses, bounded everywhere, and without inside knowledge."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_access import check_access
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings, load_broker_settings
from orbitlog.errors import StoreError
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.client import RemotingClient
from orbitlog.settings.listen_exposure import is_exposed
from orbitlog.settings.runtime_keys import RUNTIME_RANGES
from orbitlog.settings.secret_settings import shown_settings
from orbitlog.settings.setting import Setting, SettingError, number_between
from orbitlog.testing.running_broker import RunningBroker
from orbitlog.wire.administrative import BROKER_CODES, CLIENT_CODES, RequestKind, is_administrative, kind_of
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import SMALL, Desk, at_desk
from tests.support.certificates import server_files
from tests.support.raw_peer import RawPeer

EVERYWHERE = "0.0.0.0"


# Which requests are administrative


@pytest.mark.parametrize(
    "code", [25, 26, 28, 17, 18, 207, 215, 222, 306, 309, 316, 329, 353, 401, 100, 102, 205, 216, 319]
)
def test_requests_of_operators_are_administrative(code: int) -> None:
    assert is_administrative(code)


@pytest.mark.parametrize("code", [0, -1, 9, 9999, 2**31 - 1, 3001])
def test_unknown_request_is_administrative(code: int) -> None:
    assert kind_of(code) is RequestKind.ADMINISTRATIVE


def test_tables_of_requests_are_disjoint() -> None:
    assert not CLIENT_CODES & BROKER_CODES


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, False) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *((host, True) for host in (EVERYWHERE, "::", "", "192.0.2.1", "no.such.host.invalid")),
    ],
)
def test_exposed_addresses(host: str, expected: bool) -> None:
    assert is_exposed(host) is expected


# Servers on exposed addresses


async def codes_refused(address: str, codes: frozenset[int]) -> dict[int, tuple[int, str]]:
    client = RemotingClient()
    try:
        answers = {code: await client.invoke(address, Command(code), 20) for code in sorted(codes)}
    finally:
        await client.close()
    return {code: (answer.code, answer.remark or "") for code, answer in answers.items()}


def on_broker(root: Path, work: Callable[[Broker, str], object], **texts: str) -> None:
    async def run() -> None:
        settings = {**SMALL, "listenPort": "0", "vipChannelEnable": "false", **texts}
        broker = Broker(load_broker_settings(None, [f"{key}={text}" for key, text in settings.items()], {}), root)
        await broker.start()
        try:
            await work(broker, f"127.0.0.1:{broker.address[1]}")  # type: ignore[misc]
        finally:
            await broker.stop()

    asyncio.run(run())


def test_exposed_broker_refuses_administration_and_serves_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: Broker, address: str) -> None:
        codes = frozenset(map(int, RequestCode))
        answers = await codes_refused(address, codes - {RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
        for code, (answer, remark) in answers.items():
            if answer == ResponseCode.NO_PERMISSION:
                assert is_administrative(code) and "allowAnonymous=true" in remark and EVERYWHERE in remark
            elif answer != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                assert not is_administrative(code), RequestCode(code)
        assert answers[RequestCode.GET_BROKER_CONFIG][0] == ResponseCode.NO_PERMISSION
        assert answers[RequestCode.UPDATE_AND_CREATE_TOPIC][0] == ResponseCode.NO_PERMISSION
        sent = await Desk(broker, client := RemotingClient(), []).send()
        await client.close()
        assert sent.code == ResponseCode.SUCCESS

    with caplog.at_level(logging.WARNING):
        on_broker(tmp_path, work, bindAddress=EVERYWHERE, allowAnonymous="clients")
    assert "allowAnonymous=true" in caplog.text


@pytest.mark.parametrize("address", [EVERYWHERE, "::", "192.0.2.1"])
def test_exposed_broker_without_protection_does_not_start(address: str, tmp_path: Path) -> None:
    settings = load_broker_settings(None, [f"bindAddress={address}"], {})
    with pytest.raises(SettingError, match=rf"bindAddress={re.escape(address)} lets other machines connect") as refusal:
        Broker(settings, tmp_path / "store")
    sentence = str(refusal.value)
    for setting in ("authenticationEnabled=true", "tls.server.mode=enforcing", "allowAnonymous=clients"):
        assert setting in sentence
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("mode", "starts"), [("enforcing", True), ("permissive", False), ("disabled", False)])
def test_exposed_broker_without_access_control_starts_if_it_enforces_tls(
    mode: str, starts: bool, tmp_path: Path
) -> None:
    files = server_files()
    texts = {"bindAddress": EVERYWHERE, "tls.server.mode": mode, "tls.server.certPath": files.certificate}
    texts |= {"tls.server.keyPath": files.key}
    settings = load_broker_settings(None, [f"{key}={text}" for key, text in texts.items()], {})
    if starts:
        check_access(settings)
    else:
        with pytest.raises(SettingError, match="lets other machines connect"):
            check_access(settings)


def test_exposed_broker_with_access_control_starts(tmp_path: Path) -> None:
    async def work(_: Broker, address: str) -> None:
        answers = await codes_refused(address, frozenset((RequestCode.GET_BROKER_CONFIG,)))
        assert answers[RequestCode.GET_BROKER_CONFIG][1] == "username cannot be null."

    first = '{"username":"root","password":"secret"}'
    on_broker(tmp_path, work, bindAddress=EVERYWHERE, authenticationEnabled="true", initAuthenticationUser=first)


def test_exposed_broker_with_anonymous_access_serves_administration(tmp_path: Path) -> None:
    async def work(_: Broker, address: str) -> None:
        answers = await codes_refused(address, frozenset((RequestCode.GET_BROKER_CONFIG,)))
        assert answers[RequestCode.GET_BROKER_CONFIG][0] == ResponseCode.SUCCESS

    on_broker(tmp_path, work, bindAddress=EVERYWHERE, allowAnonymous="true")


@pytest.mark.parametrize("allows", [False, True])
def test_exposed_name_server_warns_and_refuses_administration(allows: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> dict[int, tuple[int, str]]:
        server = NameServer(NameServerSettings(bind_address=EVERYWHERE, listen_port=0, allow_anonymous=allows))
        await server.start()
        try:
            return await codes_refused(f"127.0.0.1:{server.address[1]}", server.served_codes)
        finally:
            await server.stop()

    with caplog.at_level(logging.WARNING):
        answers = asyncio.run(work())
    assert "name server listens on 0.0.0.0 without access control" in caplog.text
    refused = {code for code, (answer, remark) in answers.items() if "allowAnonymous" in remark}
    assert refused == (set() if allows else {code for code in answers if is_administrative(code)})


def test_name_server_settings_have_the_port(start_target: Callable[..., RunningBroker]) -> None:
    target = start_target()
    with RawPeer(target.address) as peer:
        lines = peer.ask(RequestCode.GET_NAMESRV_CONFIG).body.decode().splitlines()
    assert f"listenPort={target.address.rpartition(':')[2]}" in lines
    assert not any(line.startswith(("bindAddress", "kvConfigPath")) for line in lines)


# Settings changed by a request


@pytest.mark.parametrize(
    "text",
    [
        "maxTransferBytesOnMessageInMemory=2147483647",
        "maxTransferBytesOnMessageInDisk=2147483647",
        "maxTransferCountOnMessageInMemory=2147483647",
        "flushIntervalCommitLog=2147483647",
        "flushCommitLogThoroughInterval=60001",
        "flushCommitLogLeastPages=2147483647",
        "flushConsumerOffsetInterval=2147483647",
        "flushDelayOffsetInterval=2147483647",
        "fileReservedTime=99999999",
        "diskMaxUsedSpaceRatio=99",
        "deleteWhen=25",
        "transactionCheckInterval=100",
        "transactionCheckMax=2147483647",
        "maxMessageSize=٢٠٤٨",
    ],
)
def test_request_cannot_set_extreme_values(tmp_path: Path, text: str) -> None:
    async def work(desk: Desk) -> None:
        before = desk.broker.state.settings.effective()
        answer = await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, text.encode())
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert desk.broker.state.settings.effective() == before

    at_desk(tmp_path, work)


def test_every_runtime_range_contains_the_default() -> None:
    settings = BrokerSettings()
    for key, allowed in RUNTIME_RANGES.items():
        default = settings.effective()[key]
        settings.change({key: default})
        if allowed is not None:
            with pytest.raises(SettingError):
                settings.change({key: str(allowed.stop)})


def test_retention_changed_by_a_request_takes_effect_and_is_saved(tmp_path: Path) -> None:
    """`mqadmin updateBrokerConfig -k deleteWhen -v 05`, as Java answers it."""
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "# the operator's file\nlistenPort=0\nvipChannelEnable=false\ndeleteWhen=\\\n  04\nfileReservedTime=48\n"
    )
    conf.chmod(0o600)

    async def run() -> None:
        broker = Broker(
            load_broker_settings(conf, [f"{key}={text}" for key, text in SMALL.items()], {}), tmp_path / "store"
        )
        await broker.start()
        client = RemotingClient()
        try:
            body = b"deleteWhen=05\ndiskMaxUsedSpaceRatio=80\n"
            request = Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            answer = await client.invoke(f"127.0.0.1:{broker.address[1]}", request, 20)
            assert answer.code == ResponseCode.SUCCESS
            policy = broker.state.store._retention._policy
            assert (policy.delete_hours, policy.expired_percent, policy.reserved_hours) == ((5,), 80, 48)
        finally:
            await client.close()
            await broker.stop()

    asyncio.run(run())
    assert conf.read_text().splitlines() == [
        "# the operator's file",
        "listenPort=0",
        "vipChannelEnable=false",
        "deleteWhen=05",
        "fileReservedTime=48",
        "diskMaxUsedSpaceRatio=80",
    ]
    assert conf.stat().st_mode & 0o777 == 0o600
    assert "deleteWhen=\\\n  04" in (tmp_path / "broker.conf.bak").read_text()
    assert load_broker_settings(conf, [], {})[keys.LISTEN_PORT] == 0


def test_settings_file_that_cannot_be_saved_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("listenPort=0\nvipChannelEnable=false\n")

    async def run() -> int:
        broker = Broker(
            load_broker_settings(conf, [f"{key}={text}" for key, text in SMALL.items()], {}), tmp_path / "store"
        )
        await broker.start()
        conf.unlink()
        client = RemotingClient()
        try:
            request = Command(RequestCode.UPDATE_BROKER_CONFIG, body=b"deleteWhen=05\n")
            return (await client.invoke(f"127.0.0.1:{broker.address[1]}", request, 20)).code
        finally:
            await client.close()
            await broker.stop()

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run()) == ResponseCode.SUCCESS
    assert "could not save changed settings" in caplog.text


# Answers


def test_pull_never_exceeds_a_frame(tmp_path: Path) -> None:
    """Whatever the settings state: a client closes a connection with a longer frame."""

    async def work(desk: Desk) -> None:
        for _ in range(5):
            assert (await desk.send(body=b"x" * 4_000_000)).code == ResponseCode.SUCCESS
        answer = await desk.pull()
        assert answer.code == ResponseCode.SUCCESS
        assert 12_000_000 < len(answer.body) <= keys.ANSWER_BYTES_MAX

    texts = {"maxTransferBytesOnMessageInMemory": "2147483647", "mappedFileSizeCommitLog": str(64 * 1024 * 1024)}
    at_desk(tmp_path, work, **texts)


def test_internal_error_tells_a_peer_an_id_alone(
    start_target: Callable[..., RunningBroker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("/var/lib/private/store/commitlog/0: no such file")

    target = start_target()
    with RawPeer(target.broker_address) as peer, caplog.at_level(logging.WARNING):
        peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})
        monkeypatch.setattr("orbitlog.broker.runtime.broker_state.BrokerState.max_offset", fail)
        answer = peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "TBW102", "queueId": "0"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    found = re.fullmatch(
        r"internal error ([0-9a-f]{8}); the log of the server has the cause under this id", answer.remark
    )
    assert found is not None
    assert any(found[1] in line and "/var/lib/private" in line for line in caplog.messages)


def test_served_settings_are_masked(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        shown = await desk.ask(RequestCode.GET_BROKER_CONFIG)
        assert b"hunter2" not in shown.body and b"initAuthenticationUser=***\n" in shown.body

    at_desk(tmp_path, work, initAuthenticationUser='{"username":"ann","password":"hunter2"}')


@pytest.mark.parametrize("key", ["tls.server.keyPassword", "objectStoreSecretKey", "sinkToken", "proxyPassword"])
def test_settings_that_look_secret_are_masked(key: str) -> None:
    assert shown_settings({key: "hunter2", "brokerName": "broker-a"}) == {key: "***", "brokerName": "broker-a"}
    with pytest.raises(SettingError) as failed:
        Setting(key, number_between(1), 1, "").check("hunter2", "the file")
    assert "hunter2" not in str(failed.value)
