"""Signed send patterns: verify the signature of a send without parsing its header.

The signed content is the values of all header fields in the order of their names. The sends of one producer differ in
queue, born timestamp and properties: a header pattern captures these, and the other values are kept, joined. The
verdict on account and topic is part of a pattern, and ends with the policy; the signature is computed for every send.
"""

from __future__ import annotations

import binascii
import hmac
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import orjson

from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.access.request_signature import SIGNATURE, HashState, join_values
from orbitlog.broker.sending.send_rules import MESSAGE_FIELDS
from orbitlog.broker.sending.send_templates import MESSAGE_VALUES
from orbitlog.wire.command import Serialization
from orbitlog.wire.frames import Frame
from orbitlog.wire.header_patterns import (
    SIGNATURE_MARK,
    SIGNATURE_VALUE,
    PatternPace,
    header_pattern,
)

_VALUES = {**MESSAGE_VALUES, SIGNATURE_MARK: SIGNATURE_VALUE}
_QUEUE, _BORN, _PROPERTIES = MESSAGE_FIELDS.values()
_PATTERNS_MAX = 4
_HEADER_BYTES_MAX = 4096
_JSON = int(Serialization.JSON)
_loads = orjson.loads
_equal = hmac.compare_digest
_base64 = binascii.b2a_base64


class SignedPattern(NamedTuple):
    """The sends of one account to one topic over one connection."""

    match: Callable[[bytes], re.Match[bytes] | None]
    groups: tuple[int, ...]
    """Those of queue, born timestamp, properties and signature."""
    inner: HashState
    """The inner hash after the values that are signed before the queue."""
    outer: HashState
    content: tuple[bytes, bytes, bytes]
    """The other signed values: before the timestamp, before the properties, and after them."""


class SignedPatterns(PatternPace):
    """The patterns of one connection, the most recently used first; they end with the policy."""

    __slots__ = ("_patterns", "_policy")

    def __init__(self, policy: AccessPolicy) -> None:
        super().__init__()
        self._patterns: list[SignedPattern] = []
        self._policy = policy

    def verified(self, frame: Frame, policy: AccessPolicy) -> Frame | None:
        """Return a frame with an empty signature if a pattern matches and the signature is valid, else None.

        Every send passes here: it calls as little as possible.
        """
        serialization, header, body = frame
        if policy is not self._policy:
            self._policy = policy
            self._patterns.clear()
        if serialization != _JSON:
            return None
        for pattern in self._patterns:
            found = pattern[0](header)
            if found is not None:
                break
        else:
            return None
        self.hits += 1
        _, groups, inner, outer, (before_time, before_properties, rest) = pattern
        queue_text, time_text, properties, signature = found.group(*groups)
        try:
            raw = _loads(properties).encode()
        except ValueError:  # not valid JSON, or an unpaired surrogate
            return None
        # The steps of `SigningKey.sign`, here because each call costs a twentieth of the budget.
        inner = inner.copy()
        inner.update(b"".join((queue_text, before_time, time_text, before_properties, raw, rest)))
        if body:
            inner.update(body)
        outer = outer.copy()
        outer.update(inner.digest())
        if not _equal(_base64(outer.digest(), newline=False), signature):
            return None
        start, end = found.span(groups[3])
        if pattern is not self._patterns[0]:
            self._patterns.remove(pattern)
            self._patterns.insert(0, pattern)
        return _JSON, header[:start] + header[end:], body

    def learn(self, guard: RequestGuard, code: int, fields: Mapping[str, str], header: bytes, ip: str) -> None:
        """Count an admitted send that no pattern matched; add its pattern if such sends are frequent."""
        if not self.is_due():
            return
        pattern = _pattern_of(guard, code, fields, header, ip)
        if pattern is not None:
            self._patterns.insert(0, pattern)
            del self._patterns[_PATTERNS_MAX:]


def _pattern_of(
    guard: RequestGuard, code: int, fields: Mapping[str, str], header: bytes, ip: str
) -> SignedPattern | None:
    """Return the pattern of a send that was admitted; None if it has none."""
    if len(header) > _HEADER_BYTES_MAX or not fields.keys() >= {_QUEUE, _BORN, _PROPERTIES, SIGNATURE}:
        return None
    key = guard.lasting_key(code, fields, ip)
    pattern = header_pattern(header, _VALUES)
    if key is None or pattern is None:
        return None
    match = pattern.match(header)
    assert match is not None
    start, end = match.span(pattern.groups[3])
    if b"\\" in header[:start] + header[end:]:
        return None  # an escaped field name could repeat a captured field with another value
    shared = {name: text for name, text in fields.items() if name not in (_QUEUE, _BORN, _PROPERTIES, SIGNATURE)}
    before_queue = join_values({name: text for name, text in shared.items() if name < _QUEUE})
    content = (
        join_values({name: text for name, text in shared.items() if _QUEUE < name < _BORN}),
        join_values({name: text for name, text in shared.items() if _BORN < name < _PROPERTIES}),
        join_values({name: text for name, text in shared.items() if name > _PROPERTIES}),
    )
    return SignedPattern(pattern.match, pattern.groups[1:], *key.states_after(before_queue), content)
