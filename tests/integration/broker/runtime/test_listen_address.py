"""Listen address: the broker listens on the address that it advertises. Only loopback addresses are used."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.listen_address import advertised_addresses, contradiction, with_listen_address
from orbitlog.settings.setting import SettingError
from tests.support.broker_desk import SMALL

ELSEWHERE = "192.0.2.77"  # of a documentation range: no machine has it


def resolved_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def look_up(*_: object, **__: object) -> list[tuple[Any, ...]]:
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_advertised_address_of_this_machine_is_listened_on() -> None:
    settings = with_listen_address(BrokerSettings({"brokerIP1": "127.0.0.2"}))
    assert settings[keys.BIND_ADDRESS] == "127.0.0.2"


def test_advertised_address_of_another_machine_is_refused() -> None:
    with pytest.raises(SettingError, match=r"brokerIP1=192\.0\.2\.77 is not an address.* add bindAddress=0\.0\.0\.0"):
        with_listen_address(BrokerSettings({"brokerIP1": ELSEWHERE}))


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
def test_given_bind_address_is_kept(bound: str) -> None:
    settings = with_listen_address(BrokerSettings({"brokerIP1": ELSEWHERE, "bindAddress": bound}))
    assert settings[keys.BIND_ADDRESS] == bound


@pytest.mark.parametrize("text", ["::1", "[::1]"])
def test_ipv6_address_is_listened_on_with_and_without_brackets(text: str) -> None:
    """Java's brokers write their own address with brackets."""
    settings = with_listen_address(BrokerSettings({"brokerIP1": text}))
    assert (settings[keys.BIND_ADDRESS], settings[keys.ADVERTISED_ADDRESS]) == ("::1", "::1")
    assert with_listen_address(BrokerSettings({"brokerIP1": text, "bindAddress": "[::]"}))[keys.BIND_ADDRESS] == "::"


@pytest.mark.parametrize("bound", ["0.0.0.0", "127.0.0.1", ""])
def test_ipv6_address_that_is_not_listened_on_is_refused(bound: str) -> None:
    with pytest.raises(SettingError, match=r"brokerIP1=::1 is an IPv6 address.* set bindAddress=::, or remove it"):
        with_listen_address(BrokerSettings({"brokerIP1": "::1", "bindAddress": bound}))


def test_ipv6_address_of_another_machine_is_refused_with_the_line_to_add() -> None:
    with pytest.raises(SettingError, match=r"brokerIP1=2001:db8::7 is not an address.* add bindAddress=:: "):
        with_listen_address(BrokerSettings({"brokerIP1": "2001:db8::7"}))


def test_without_advertised_address_loopback_is_listened_on() -> None:
    assert with_listen_address(BrokerSettings())[keys.BIND_ADDRESS] == "127.0.0.1"


def test_host_name_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved_to(monkeypatch, "::1", ELSEWHERE, "127.0.0.2")
    given = BrokerSettings({"brokerIP1": "broker.example"})
    assert advertised_addresses(given) == [ELSEWHERE, "127.0.0.2", "::1"]
    settings = with_listen_address(given)
    assert (settings[keys.BIND_ADDRESS], settings[keys.ADVERTISED_ADDRESS]) == ("127.0.0.2", "broker.example")


def test_host_name_without_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved_to(monkeypatch)
    with pytest.raises(SettingError, match=r"brokerIP1=broker\.example is a host name without address"):
        with_listen_address(BrokerSettings({"brokerIP1": "broker.example"}))


@pytest.mark.parametrize("name_server", [f"{ELSEWHERE}:9876", "names.example:9876", f"127.0.0.1:9876;{ELSEWHERE}:1"])
def test_loopback_is_not_registered_with_public_name_servers(name_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved_to(monkeypatch, ELSEWHERE)
    with pytest.raises(SettingError, match=r"neither bindAddress nor brokerIP1 is given.* add bindAddress=0\.0\.0\.0"):
        with_listen_address(BrokerSettings({"namesrvAddr": name_server}))
    given = BrokerSettings({"namesrvAddr": name_server, "bindAddress": "127.0.0.1"})
    assert with_listen_address(given) is given


@pytest.mark.parametrize("name_server", ["127.0.0.1:9876", "[::1]:9876", "localhost:9876", "unknown.example:9876"])
def test_loopback_is_registered_with_local_name_servers(name_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved_to(monkeypatch, *(["127.0.0.1"] if "localhost" in name_server else []))
    given = BrokerSettings({"namesrvAddr": name_server})
    assert with_listen_address(given) is given


def test_contradiction_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def sentence(**texts: str) -> str | None:
        settings = BrokerSettings(texts)
        return contradiction(settings, advertised_addresses(settings))

    assert sentence() is None
    assert sentence(bindAddress="127.0.0.1", brokerIP1="127.0.0.1") is None
    assert sentence(bindAddress="0.0.0.0", brokerIP1=ELSEWHERE) is None
    assert "cannot connect to brokerIP1=192.0.2.77" in (sentence(bindAddress="127.0.0.1", brokerIP1=ELSEWHERE) or "")
    resolved_to(monkeypatch, "127.0.1.1")
    assert "other machines cannot connect" in (sentence(bindAddress="127.0.1.1", brokerIP1="broker.example") or "")


def test_broker_listens_on_what_it_advertises_and_stores_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved_to(monkeypatch, "127.0.0.2")
    broker = Broker(BrokerSettings({**SMALL, "listenPort": "0", "brokerIP1": "broker.example"}), tmp_path)
    monkeypatch.undo()

    async def work() -> None:
        await broker.start()
        assert broker.address[0] == "127.0.0.2"
        assert broker.state.store_host_raw(None)[:4] == bytes((127, 0, 0, 2))
        await broker.stop()

    asyncio.run(work())
