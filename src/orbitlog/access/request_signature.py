"""Request signatures: HMAC-SHA1 over the header fields and the body of a request, both directions.

The content is the values of all ext fields except `Signature`, ordered by field name, followed by the body. Code,
opaque number, flag and version are not part of it. Mirrors Java `AclClientRPCHook`, `AclUtils.combineRequestContent`,
`AclSigner`.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Protocol

from orbitlog.formats.java import utf8_encode
from orbitlog.wire.header_patterns import ACCOUNT_FIELD, SIGNATURE_FIELD

ACCESS_KEY = ACCOUNT_FIELD
SIGNATURE = SIGNATURE_FIELD
SECURITY_TOKEN = "SecurityToken"  # noqa: S105 - the name of a field

UNSIGNED_FIELDS = frozenset(("_UNIQUE_KEY_QUERY", "__ZONE_NAME", "__ZONE_MODE", SECURITY_TOKEN))
"""Fields that some clients add after signing: 4.9.3 and earlier the first, Java with a zone the next two, Go the last.

None of them changes what a request may do, so a signature without them is accepted.
"""

_BLOCK_BYTES = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
_SHAPES_MAX = 1024

_Getter = Callable[[Mapping[str, str]], Any]


class HashState(Protocol):
    """A hash of `hashlib`, before its end."""

    def copy(self) -> HashState: ...

    def update(self, content: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


class SigningKey:
    """The key of one account, kept as two hash states: copying them is faster than to start an HMAC."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: str) -> None:
        key = utf8_encode(secret)
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha1(key, usedforsecurity=False).digest()
        key = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha1(key.translate(_INNER), usedforsecurity=False)
        self._outer = hashlib.sha1(key.translate(_OUTER), usedforsecurity=False)

    def __repr__(self) -> str:
        return "SigningKey(***)"

    def states_after(self, content: bytes) -> tuple[HashState, HashState]:
        """Return copies of both states, the inner one after `content`: the start of many signatures."""
        inner = self._inner.copy()
        inner.update(content)
        return inner, self._outer.copy()

    def sign(self, content: bytes, body: bytes = b"") -> bytes:
        """Return the Base64 text of the signature."""
        inner = self._inner.copy()
        inner.update(content)
        if body:
            inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)


class FieldOrder:
    """Joins the values of ext fields in the order of their names; remembers the order of each set of names."""

    __slots__ = ("_getters",)

    def __init__(self) -> None:
        self._getters: dict[tuple[str, ...], _Getter] = {}

    def content(self, fields: Mapping[str, str]) -> bytes:
        """Return the signed content of a request without its body."""
        shape = tuple(fields)
        getter = self._getters.get(shape)
        if getter is None:
            if len(self._getters) >= _SHAPES_MAX:
                self._getters.clear()  # a peer chooses field names freely: the table must not grow without limit
            getter = self._getters[shape] = _getter(shape)
        text = "".join(getter(fields))
        try:
            return text.encode()
        except UnicodeEncodeError:  # an unpaired surrogate, which a string from loose JSON can contain
            return utf8_encode(text)


def _getter(shape: tuple[str, ...]) -> _Getter:
    names = sorted((name for name in shape if name != SIGNATURE), key=_utf16_order)
    return itemgetter(*names) if names else lambda _: ()  # one name: a string, which `join` takes as well


def _utf16_order(name: str) -> bytes:
    """Return a sort key with the order of Java's `String.compareTo`: by UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")


_ORDER = FieldOrder()


def join_values(fields: Mapping[str, str]) -> bytes:
    """Return the values of some fields as a part of the signed content."""
    return _ORDER.content(fields)


def signature_of(secret: str, fields: Mapping[str, str], body: bytes) -> str:
    """Return the value of the field `Signature`; a signature among the fields is left out."""
    return SigningKey(secret).sign(_ORDER.content(fields), body).decode()


def is_signed_by(key: SigningKey, fields: Mapping[str, str], body: bytes, order: FieldOrder = _ORDER) -> bool:
    """Return whether the field `Signature` is that of the key, over all fields or without `UNSIGNED_FIELDS`.

    Compares in constant time, and computes two signatures at most.
    """
    text = fields.get(SIGNATURE, "")
    given = text.encode() if text.isascii() else text.encode("utf-8", "surrogatepass")
    if hmac.compare_digest(key.sign(order.content(fields), body), given):
        return True
    if UNSIGNED_FIELDS.isdisjoint(fields):
        return False
    signed = {name: value for name, value in fields.items() if name not in UNSIGNED_FIELDS}
    return hmac.compare_digest(key.sign(order.content(signed), body), given)
