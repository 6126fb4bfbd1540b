"""Signed send patterns: verify the signature of a send without parsing its header.

The signed content is the values of all header fields in the order of their names. The sends of one producer differ in
queue, born timestamp and properties: a header pattern captures these, and the other values are kept, joined. The
verdict on account and topic is part of a pattern, and ends with the policy; the signature is computed for every send.

A pattern also remembers the send template of its sends: they differ from each other in nothing that a template fixes.
So the fast path gets the values that were captured here, and does not read the header a second time.
"""

from __future__ import annotations

import binascii
import hmac
import re
from collections.abc import Callable, Iterable, Mapping

import orjson

from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.access.request_signature import SIGNATURE, HashState, join_values
from orbitlog.broker.sending.send_rules import MESSAGE_FIELDS
from orbitlog.broker.sending.send_templates import (
    MESSAGE_VALUES,
    SEND,
    SendTemplate,
    TemplateCache,
    TemplateKey,
    VerifiedSend,
    find_by_fields,
)
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
_PROPERTIES_GROUP, _SIGNATURE_GROUP = 3, 4
_PATTERNS_MAX = 4
_HEADER_BYTES_MAX = 4096
_JSON = int(Serialization.JSON)
_loads = orjson.loads
_equal = hmac.compare_digest
_base64 = binascii.b2a_base64

_Values = tuple[bytes, bytes, bytes, str, bytes]
"""Opaque number, queue id and born timestamp as text, properties, and their bytes."""


class SignedPattern:
    """The sends of one account to one topic over one connection."""

    __slots__ = ("_content", "_groups", "_inner", "_outer", "_seen", "match", "template", "templates")

    def __init__(
        self,
        match: Callable[[bytes], re.Match[bytes] | None],
        groups: tuple[int, ...],
        states: tuple[HashState, HashState],
        content: tuple[bytes, bytes, bytes],
    ) -> None:
        self.match = match
        # The groups of opaque number, queue, born timestamp, properties and signature.
        self._groups = groups
        # The inner state is that after the values that are signed before the queue.
        self._inner, self._outer = states
        # The other signed values: before the timestamp, before the properties, and after them.
        self._content = content
        self.template: SendTemplate | None = None
        # The template is valid as long as its connection has this table: every change of topics or settings ends it.
        self.templates: dict[TemplateKey, SendTemplate] | None = None
        self._seen = 0  # templates that the table had when none was found

    def values(self, found: re.Match[bytes], body: bytes) -> _Values | None:
        """Return the values of a send whose header matched; None if its signature is wrong.

        Every send passes here: it calls as little as possible.
        """
        opaque, queue_text, time_text, quoted, signature = found.group(*self._groups)
        before_time, before_properties, rest = self._content
        try:
            properties = _loads(quoted)
            raw = properties.encode()
        except ValueError:  # not valid JSON, or an unpaired surrogate
            return None
        # The steps of `SigningKey.sign`, here because each call costs a twentieth of the budget.
        inner = self._inner.copy()
        inner.update(b"".join((queue_text, before_time, time_text, before_properties, raw, rest)))
        if body:
            inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        if not _equal(_base64(outer.digest(), newline=False), signature):
            return None
        return opaque, queue_text, time_text, properties, raw

    def unsigned(self, found: re.Match[bytes], header: bytes) -> bytes:
        """Return a header that matched, with an empty signature."""
        start, end = found.span(self._groups[_SIGNATURE_GROUP])
        return header[:start] + header[end:]

    def find_template(self, cache: TemplateCache, unsigned: bytes) -> None:
        """Look for the template of these sends, by one of their headers, if there are others than before."""
        templates = cache.by_fields
        if self.templates is not templates:
            self.templates, self.template, self._seen = templates, None, 0
        if self.template is None and self._seen != len(templates):
            self._seen = len(templates)
            try:
                self.template = find_by_fields(cache, unsigned, SEND)[0]
            except (KeyError, TypeError, ValueError, AttributeError):
                return  # a batch, or a half message


class SignedPatterns(PatternPace):
    """The patterns of one connection, the most recently used first; they end with the policy."""

    __slots__ = ("_patterns", "_policy")

    def __init__(self, policy: AccessPolicy) -> None:
        super().__init__()
        self._patterns: list[SignedPattern] = []
        self._policy = policy

    def read_run(self, frames: Iterable[Frame], policy: AccessPolicy, cache: TemplateCache) -> list[VerifiedSend]:
        """Return the first frames, up to one without a pattern, a template in `cache` or a valid signature."""
        reads: list[VerifiedSend] = []
        if policy is not self._policy:
            self._end(policy)
        if not self._patterns:
            return reads
        pattern, templates = self._patterns[0], cache.by_fields
        match = pattern.match
        for serialization, header, body in frames:
            found = match(header)
            if found is None:
                other, found = self._find(header)
                if other is None or found is None:
                    break
                pattern, match = other, other.match
            template = pattern.template
            if template is None or pattern.templates is not templates or serialization != _JSON:
                break
            values = pattern.values(found, body)
            if values is None:
                break
            reads.append((template, *values))
        self.hits += len(reads)
        return reads

    def verified(self, frame: Frame, policy: AccessPolicy, cache: TemplateCache | None = None) -> Frame | None:
        """Return a frame with an empty signature if a pattern matches and the signature is valid, else None.

        Its pattern gets the template of its sends, if `cache` has one: then `read_run` takes the next ones.
        """
        serialization, header, body = frame
        if policy is not self._policy:
            self._end(policy)
        if serialization != _JSON:
            return None
        pattern, found = self._find(header)
        if pattern is None or found is None:
            return None
        self.hits += 1
        if pattern.values(found, body) is None:
            return None
        if pattern is not self._patterns[0]:
            self._patterns.remove(pattern)
            self._patterns.insert(0, pattern)
        unsigned = pattern.unsigned(found, header)
        if cache is not None:
            pattern.find_template(cache, unsigned)
        return _JSON, unsigned, body

    def learn(self, guard: RequestGuard, code: int, fields: Mapping[str, str], header: bytes, ip: str) -> None:
        """Count an admitted send that no pattern matched; add its pattern if such sends are frequent."""
        if not self.is_due():
            return
        pattern = _pattern_of(guard, code, fields, header, ip)
        if pattern is not None:
            self._patterns.insert(0, pattern)
            del self._patterns[_PATTERNS_MAX:]

    def _find(self, header: bytes) -> tuple[SignedPattern, re.Match[bytes]] | tuple[None, None]:
        for pattern in self._patterns:
            found = pattern.match(header)
            if found is not None:
                return pattern, found
        return None, None

    def _end(self, policy: AccessPolicy) -> None:
        """Drop all patterns: their verdicts are those of an earlier policy."""
        self._policy = policy
        self._patterns.clear()


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
    start, end = match.span(pattern.groups[_PROPERTIES_GROUP])
    if b"\\" in header[:start] + header[end:]:
        return None  # an escaped field name could repeat a captured field with another value
    shared = {name: text for name, text in fields.items() if name not in (_QUEUE, _BORN, _PROPERTIES, SIGNATURE)}
    before_queue = join_values({name: text for name, text in shared.items() if name < _QUEUE})
    content = (
        join_values({name: text for name, text in shared.items() if _QUEUE < name < _BORN}),
        join_values({name: text for name, text in shared.items() if _BORN < name < _PROPERTIES}),
        join_values({name: text for name, text in shared.items() if name > _PROPERTIES}),
    )
    return SignedPattern(pattern.match, pattern.groups, key.states_after(before_queue), content)
