"""Listen address: the broker listens on the address that it advertises, or does not start.

Java's broker listens on every address of the machine unless `bindAddress` is given. Orbitlog listens on loopback, so a
`broker.conf` with `brokerIP1` alone would register an address on which nothing listens. `brokerIP1` asks for clients
from elsewhere, so the broker listens on that address if it is one of this machine's. With neither, a name server that
other machines use would send their clients to 127.0.0.1, each to its own machine.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.settings.listen_exposure import is_ip_address
from orbitlog.settings.setting import AdvisedText, SettingError

_EVERYWHERE = "0.0.0.0"  # noqa: S104 - named in a sentence
_EVERYWHERE_IPV6 = "::"


def with_listen_address(settings: BrokerSettings) -> BrokerSettings:
    """Return the settings with `bindAddress` set to the address of `brokerIP1`, unless it was given.

    Raise a `SettingError` if `brokerIP1` is not an address of this machine or a host name without address, if it is an
    IPv6 address and `bindAddress` one of IPv4, and if a loopback address would be registered with a name server that is
    not on loopback.
    """
    advertised = settings[keys.ADVERTISED_ADDRESS]
    if keys.BIND_ADDRESS.key in settings.texts:
        _refuse_other_family(settings)
        return settings
    if not advertised:
        _refuse_public_name_servers(settings)
        return settings
    for address in advertised_addresses(settings):
        if _is_own(address):
            return settings.with_texts({keys.BIND_ADDRESS.key: address})
    problem = (
        f"brokerIP1={advertised} is not an address of this machine and bindAddress is not given, so clients could not"
        " connect"
    )
    advice = f"add bindAddress={_everywhere(advertised)} to listen on every address of the machine"
    raise SettingError(AdvisedText(problem, advice), key=keys.ADVERTISED_ADDRESS.key)


def _everywhere(advertised: str) -> str:
    return _EVERYWHERE_IPV6 if ":" in advertised else _EVERYWHERE


def _refuse_other_family(settings: BrokerSettings) -> None:
    """Raise a `SettingError` if `brokerIP1` has IPv6 addresses only and the broker listens on IPv4 only.

    Java's broker listens on both with 0.0.0.0, the default of 5.x.
    """
    advertised, bound = settings[keys.ADVERTISED_ADDRESS], settings[keys.BIND_ADDRESS]
    if ":" in advertised and ":" not in bound:
        problem = (
            f"brokerIP1={advertised} is an IPv6 address and bindAddress={bound or _EVERYWHERE} listens on IPv4 only, so"
            " clients could not connect"
        )
        advice = f"set bindAddress={_EVERYWHERE_IPV6}, or remove it to listen on brokerIP1"
        raise SettingError(AdvisedText(problem, advice), key=keys.ADVERTISED_ADDRESS.key)


def _refuse_public_name_servers(settings: BrokerSettings) -> None:
    for name_server in settings[keys.NAME_SERVERS]:
        addresses = _resolved(name_server.rpartition(":")[0].strip("[]"))
        if any(not ipaddress.ip_address(address).is_loopback for address in addresses):
            problem = (
                f"namesrvAddr={name_server} is not on loopback and neither bindAddress nor brokerIP1 is given, so other"
                f" machines would be sent to {settings[keys.BIND_ADDRESS]}"
            )
            advice = (
                f"add bindAddress={_EVERYWHERE} for clients everywhere, or bindAddress=127.0.0.1 for those on this"
                " machine"
            )
            raise SettingError(AdvisedText(problem, advice), key=keys.NAME_SERVERS.key)


def advertised_addresses(settings: BrokerSettings) -> list[str]:
    """Return the IP addresses of `brokerIP1`, none if it is not given; raise a `SettingError` if a name has none."""
    advertised = settings[keys.ADVERTISED_ADDRESS]
    addresses = _resolved(advertised) if advertised else []
    if advertised and not addresses:
        problem = f"brokerIP1={advertised} is a host name without address"
        advice = "set it to an address or a known name"
        raise SettingError(AdvisedText(problem, advice), key=keys.ADVERTISED_ADDRESS.key)
    return addresses


def _resolved(host: str) -> list[str]:
    """Return the addresses of a host, IPv4 first as Java has it; none if it is not known."""
    if is_ip_address(host):
        return [host]
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    addresses = dict.fromkeys(str(address[0]).partition("%")[0] for *_, address in answers)
    return sorted(addresses, key=lambda address: ":" in address)


def contradiction(settings: BrokerSettings, addresses: Iterable[str]) -> str | None:
    """Return a sentence if clients elsewhere are given an address that they cannot connect to, or None.

    `addresses` are those of `brokerIP1` when the broker was opened.
    """
    advertised = settings[keys.ADVERTISED_ADDRESS]
    bound = ipaddress.ip_address(settings[keys.BIND_ADDRESS] or _EVERYWHERE)
    if not bound.is_loopback or advertised == str(bound):
        return None
    add = f"set bindAddress={_everywhere(advertised)} to listen on every address of the machine"
    if any(not ipaddress.ip_address(address).is_loopback for address in addresses):
        where = f"brokerIP1={advertised} unless this machine forwards it"
        return f"bindAddress={bound} is loopback: clients cannot connect to {where}; {add}"
    if advertised and not is_ip_address(advertised):
        return f"brokerIP1={advertised} is {bound} here: clients on other machines cannot connect; {add}"
    return None


def _is_own(address: str) -> bool:
    """Return whether a socket can be bound to this address; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
