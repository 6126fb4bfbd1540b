"""Header patterns: regular expressions that read JSON headers which repeat one another in all but a few values.

A client repeats most of the header text from request to request. The pattern of one header matches exactly the headers
that have the same bytes everywhere except in the given values, and captures these, without parsing any JSON. Sends
(`broker.sending.send_templates`) and pulls (`wire.repeated_pulls`) both use it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

# A request number as JSON writes it. At most 9 digits: fewer than the largest int, so that none is out of range.
OPAQUE_MARK = b'"opaque":'
OPAQUE_VALUE = rb"(0|[1-9][0-9]{0,8})"
# Account and signature of a request; the signature as Base64 without escapes.
ACCOUNT_FIELD = "AccessKey"
SIGNATURE_FIELD = "Signature"
SIGNATURE_MARK = b'"%b":"' % SIGNATURE_FIELD.encode()
SIGNATURE_VALUE = rb"([A-Za-z0-9+/]{27}=)"


class HeaderPattern(NamedTuple):
    """`match` accepts a whole header; `groups` are the group numbers of the values, in the order they were given."""

    match: Callable[[bytes], re.Match[bytes] | None]
    groups: tuple[int, ...]


MISSES_BEFORE_PATTERN = 32


class PatternPace:
    """Decides when a peer's header is worth a pattern: after some headers that no pattern of the peer matched.

    Compiling a pattern costs as much as decoding fifty headers. So a peer whose patterns rarely match is allowed twice
    as many misses before the next one. `hits` and `misses` are counted since the last pattern.
    """

    __slots__ = ("hits", "misses", "misses_allowed")

    def __init__(self) -> None:
        self.misses_allowed = MISSES_BEFORE_PATTERN
        self.hits = self.misses = 0

    def is_due(self) -> bool:
        """Count a header that no pattern matched; return whether it should get one."""
        self.misses += 1
        if self.misses < self.misses_allowed:
            return False
        is_useful = self.hits >= self.misses
        self.misses_allowed = MISSES_BEFORE_PATTERN if is_useful else 2 * self.misses_allowed
        self.hits = self.misses = 0
        return True


def header_pattern(header: bytes, values: Mapping[bytes, bytes]) -> HeaderPattern | None:
    """Return the pattern of headers like this one; None if a value is missing, repeated or spelled differently.

    `values` maps the text in front of each value (its mark) to a regular expression of the value with one group. A
    mark starts with a quotation mark, and JSON escapes those inside strings: so a mark never matches inside a string.
    """
    starts = {}
    for mark in values:
        if header.count(mark) != 1:
            return None
        starts[mark] = header.index(mark) + len(mark)
    order = sorted(starts, key=starts.__getitem__)
    pattern, position = b"", 0
    for mark in order:
        value = re.compile(values[mark]).match(header, starts[mark])
        if value is None:
            return None
        pattern += re.escape(header[position : value.start()]) + values[mark]
        position = value.end()
    pattern += re.escape(header[position:])
    return HeaderPattern(re.compile(pattern).fullmatch, tuple(order.index(mark) + 1 for mark in values))
