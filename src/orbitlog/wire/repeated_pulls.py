"""Repeated pulls: decodes pull requests by a header pattern instead of as JSON.

The pulls of one consumer differ in five values and arrive thousands of times a second. The first ones are decoded like
any request. A pull that is repeated often gets a pattern: a header with the same bytes except for opaque number, queue,
offsets, flags and signature is decoded by it to the same command, in a third of the time. Every other header is left to
`decode_json_header`.
"""

from __future__ import annotations

import re

from orbitlog.errors import OrbitlogError
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, Serialization
from orbitlog.wire.command_decoding import WireLimits, decode_json_header
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.header_patterns import (
    OPAQUE_MARK,
    OPAQUE_VALUE,
    SIGNATURE_FIELD,
    SIGNATURE_MARK,
    SIGNATURE_VALUE,
    HeaderPattern,
    PatternPace,
    header_pattern,
)

_JSON = int(Serialization.JSON)
_PATTERNS_MAX = 4  # per connection: a consumer needs one for each topic, and most have one busy topic
_HEADER_BYTES_MAX = 4096

# The ext fields that differ between pulls, with the maximum number of digits of each; in the order of `command`.
_FIELD_DIGITS = {"queueId": 9, "queueOffset": 18, "sysFlag": 9, "commitOffset": 18}
_VALUES = {
    OPAQUE_MARK: OPAQUE_VALUE,
    **{b'"%b":"' % name.encode(): rb"([0-9]{1,%d})" % digits for name, digits in _FIELD_DIGITS.items()},
}
# With access control, the signature of each pull differs as well.
_SIGNED_VALUES = {**_VALUES, SIGNATURE_MARK: SIGNATURE_VALUE}


class RepeatedPulls(PatternPace):
    """The pull patterns of one peer, the most recently used first."""

    __slots__ = ("_patterns",)

    def __init__(self) -> None:
        super().__init__()
        self._patterns: list[_PullPattern] = []

    def read(self, header: bytes, body: bytes, limits: WireLimits) -> Command | None:
        """Decode the header of a pull; None if no pattern matches it."""
        patterns = self._patterns
        for index, pattern in enumerate(patterns):
            match = pattern.match(header)
            if match is not None:
                if index:
                    patterns.insert(0, patterns.pop(index))
                self.hits += 1
                return pattern.command(match, body)
        if self.is_due():
            added = _pattern_of(header, limits)
            if added is not None:
                patterns.insert(0, added)
                del patterns[_PATTERNS_MAX:]
        return None


class _PullPattern:
    """A header pattern, and the command and header whose remaining values its pulls share."""

    __slots__ = ("_command", "_groups", "_header", "match")

    def __init__(self, pattern: HeaderPattern, command: Command, header: PullMessageRequest) -> None:
        self.match, self._groups = pattern
        self._command = command
        self._header = header

    def command(self, match: re.Match[bytes], body: bytes) -> Command:
        """Return the command of a header that matched."""
        opaque, queue_id, queue_offset, sys_flag, commit_offset, *signature = match.group(*self._groups)
        like, pull = self._command, self._header
        ext_fields = like.ext_fields.copy()
        if signature:
            ext_fields[SIGNATURE_FIELD] = signature[0].decode()
        ext_fields["queueId"] = queue_id.decode()
        ext_fields["queueOffset"] = queue_offset.decode()
        ext_fields["sysFlag"] = sys_flag.decode()
        ext_fields["commitOffset"] = commit_offset.decode()
        header = PullMessageRequest(
            pull.group,
            pull.topic,
            int(queue_id),
            int(queue_offset),
            pull.message_count_max,
            int(sys_flag),
            int(commit_offset),
            pull.suspend_timeout_ms,
            pull.subscription_version,
            pull.subscription,
            pull.expression_type,
            pull.message_bytes_max,
            pull.request_source,
            pull.proxy_forward_client_id,
        )
        return Command(
            like.code,
            int(opaque),
            like.flag,
            ext_fields,
            body,
            like.remark,
            like.version,
            like.language,
            _JSON,
            header,
        )


def _pattern_of(header: bytes, limits: WireLimits) -> _PullPattern | None:
    """Return the pattern of a pull; None if the header is invalid, not a pull, or too long to be worth a pattern."""
    if len(header) > _HEADER_BYTES_MAX:
        return None
    try:
        command = decode_json_header(header, b"", limits)
        pull = PullMessageRequest.from_ext_fields(command.ext_fields)
    except OrbitlogError:
        return None  # `decode_json_header` reports the error when the request itself is decoded
    if command.code != RequestCode.PULL_MESSAGE:
        return None
    pattern = header_pattern(header, _SIGNED_VALUES if SIGNATURE_MARK in header else _VALUES)
    return None if pattern is None else _PullPattern(pattern, command, pull)
