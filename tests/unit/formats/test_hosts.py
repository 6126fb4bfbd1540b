from __future__ import annotations

import pytest

from orbitlog.errors import BadField
from orbitlog.formats.hosts import Host, decode_host, parse_host

LOOPBACK = Host(bytes((127, 0, 0, 1)), 10911)
DOCUMENTATION = Host(bytes.fromhex("20010db8000000000000000000000001"), 9876)


@pytest.mark.parametrize(
    ("host", "raw", "text"),
    [
        (LOOPBACK, "7f00000100002a9f", "127.0.0.1:10911"),
        (Host(bytes(4), 0), "0000000000000000", "0.0.0.0:0"),
        (Host(b"\xff" * 4, -1), "ffffffffffffffff", "255.255.255.255:-1"),
        (DOCUMENTATION, "20010db800000000000000000000000100002694", "2001:db8:0:0:0:0:0:1:9876"),
    ],
)
def test_a_host_is_address_and_port(host: Host, raw: str, text: str) -> None:
    assert host.encode().hex() == raw
    assert decode_host(bytes.fromhex(raw)) == host
    assert str(host) == text
    assert host.is_ipv6 == (len(raw) == 40)


def test_ipv6_is_printed_as_java_prints_it() -> None:
    assert DOCUMENTATION.ip == "2001:db8:0:0:0:0:0:1"
    assert Host(bytes(15) + b"\1", 1).ip == "0:0:0:0:0:0:0:1"
    assert parse_host("[fe80::a:0:ff]:1").ip == "fe80:0:0:0:0:a:0:ff"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("127.0.0.1:10911", LOOPBACK),
        ("2001:db8::1:9876", DOCUMENTATION),
        ("[2001:db8::1]:9876", DOCUMENTATION),
        ("2001:db8:0:0:0:0:0:1:9876", DOCUMENTATION),
        ("0.0.0.0:65535", Host(bytes(4), 65535)),
    ],
)
def test_parse_host(text: str, host: Host) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "127.0.0.1",
        "127.0.0.1:",
        ":10911",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:+1",
        "127.0.0.1: 1",
        "127.0.0.1:1_0",
        "127.0.0.1:\u0661",
        "127.0.0.1:" + "9" * 5000,
        "127.0.0:1",
        "127.0.0.256:1",
        "localhost:1",
        "1:2:3:4",
    ],
)
def test_anything_else_is_no_host(text: str) -> None:
    with pytest.raises(BadField) as caught:
        parse_host(text)
    assert caught.value.field == "host"


def test_only_whole_hosts_are_decoded() -> None:
    with pytest.raises(AssertionError):
        decode_host(b"\x7f\0\0\1")
