"""Source addresses: which peers a white address of ACL 1.0 or a source IP of ACL 2.0 matches.

A pattern that is not understood is refused when it is read: a pattern that matches nothing by mistake would lock out
clients, one that matches too much would let them in. Mirrors Java `RemoteAddressStrategyFactory`, `IPAddressUtils`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable

from orbitlog.errors import OrbitlogError

AddressTest = Callable[[str], bool]

_ANYWHERE = frozenset(("*", "*.*.*.*", "*:*:*:*:*:*:*:*"))
_V4_PARTS, _V6_PARTS = 4, 8
_V4_MAX, _V6_MAX = 255, 0xFFFF


class BadAddress(OrbitlogError):
    """A pattern of addresses that is not understood."""


def white_address(pattern: str) -> AddressTest:
    """Return the test of a white address of `plain_acl.yml`; an empty pattern matches no peer."""
    if not pattern.strip():
        return _nowhere
    if pattern in _ANYWHERE:
        return _anywhere
    if pattern.endswith("}"):
        return _one_of(_in_braces(pattern))
    if "," in pattern:
        return _one_of(pattern.split(","))
    if "*" in pattern or "-" in pattern:
        return _v6_range(pattern) if ":" in pattern else _v4_range(pattern)
    return _one_of((pattern,))


def source_ip(text: str) -> AddressTest:
    """Return the test of a source IP of a policy: an address, or a network such as 10.0.0.0/8."""
    if "/" not in text:
        return _one_of((text,))
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise _bad(text, "is not a network such as 10.0.0.0/8") from None
    return lambda peer: _in_network(peer, network)


def _in_network(peer: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    address = _parsed(peer)
    return address is not None and address.version == network.version and address in network


def _nowhere(_: str) -> bool:
    return False


def _anywhere(_: str) -> bool:
    return True


def _bad(pattern: str, problem: str) -> BadAddress:
    return BadAddress(f"address {pattern!r} {problem}")


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _one_of(texts: Iterable[str]) -> AddressTest:
    addresses = set()
    for text in texts:
        address = _parsed(text)
        if address is None:
            raise _bad(text, "is neither an IPv4 nor an IPv6 address")
        addresses.add(address)
    return lambda peer: _parsed(peer) in addresses


def _in_braces(pattern: str) -> list[str]:
    """Expand `a.b.c.{1,2}`; braces are allowed in the last part only."""
    separator = ":" if ":" in pattern else "."
    head, _, last = pattern.rpartition(separator)
    if not last.startswith("{") or "{" in head or "}" in head:
        raise _bad(pattern, "has braces in another part than the last")
    return [f"{head}{separator}{part}" for part in last[1:-1].split(",")]


def _v4_range(pattern: str) -> AddressTest:
    parts = pattern.split(".")
    fixed = _fixed_parts(pattern, parts, _V4_PARTS)
    numbers = [_number(pattern, part, 10, _V4_MAX) for part in parts[:fixed]]
    low, high = _bounds(pattern, parts[fixed], 10, _V4_MAX)

    def parts_of(peer: str) -> list[int]:
        address = _parsed(peer)
        return list(address.packed) if isinstance(address, ipaddress.IPv4Address) else []

    return _range_test(parts_of, numbers, low, high)


def _v6_range(pattern: str) -> AddressTest:
    parts = _expanded(pattern).split(":")
    fixed = _fixed_parts(pattern, parts, _V6_PARTS)
    if fixed < _V6_PARTS - 2:
        raise _bad(pattern, "has a range or * in another group than the last two")
    numbers = [_number(pattern, part, 16, _V6_MAX) for part in parts[:fixed]]
    low, high = _bounds(pattern, parts[fixed], 16, _V6_MAX)

    def parts_of(peer: str) -> list[int]:
        address = _parsed(peer)
        if not isinstance(address, ipaddress.IPv6Address):
            return []
        return [int(group, 16) for group in address.exploded.split(":")]

    return _range_test(parts_of, numbers, low, high)


def _range_test(parts_of: Callable[[str], list[int]], numbers: list[int], low: int, high: int) -> AddressTest:
    """Return the test for addresses that begin with `numbers` and continue with a part from `low` to `high`.

    `parts_of` returns the parts of an address, none of one of the other version.
    """
    fixed = len(numbers)

    def test(peer: str) -> bool:
        parts = parts_of(peer)
        return len(parts) > fixed and parts[:fixed] == numbers and low <= parts[fixed] <= high

    return test


def _expanded(pattern: str) -> str:
    """Write `::` out as groups of zeros."""
    if pattern.count("::") != 1:
        return pattern
    groups = len([part for part in pattern.split(":") if part])
    zeros = ":".join(["0"] * (_V6_PARTS - groups))
    return pattern.replace("::", f":{zeros}:" if zeros else ":").strip(":")


def _fixed_parts(pattern: str, parts: list[str], count: int) -> int:
    """Return the number of parts before the first range; all parts after it must be `*`."""
    ranges = [index for index, part in enumerate(parts) if part == "*" or "-" in part]
    if len(parts) != count or not ranges or ranges[0] == 0:
        raise _bad(pattern, f"is not {count} parts with a range or * after the first")
    if any(part != "*" for part in parts[ranges[0] + 1 :]):
        raise _bad(pattern, "has parts other than * after the first range")
    return ranges[0]


def _bounds(pattern: str, part: str, base: int, highest: int) -> tuple[int, int]:
    if part == "*":
        return 0, highest
    low_text, _, high_text = part.partition("-")
    low, high = _number(pattern, low_text, base, highest), _number(pattern, high_text, base, highest)
    if low > high or high == 0:
        raise _bad(pattern, "has an empty range, or one that ends at 0")
    return low, high


def _number(pattern: str, text: str, base: int, highest: int) -> int:
    digits = "0123456789abcdef"[:base]
    if not text or len(text) > 4 or any(letter not in digits for letter in text.lower()) or int(text, base) > highest:
        raise _bad(pattern, f"contains {text!r}, which is not a number from 0 to {highest}")
    return int(text, base)
