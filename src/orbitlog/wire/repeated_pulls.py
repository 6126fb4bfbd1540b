"""Pulls read by their text: those of one consumer differ in five values, and are asked thousands of times a second.

The first ones are read as any request is. A kind of pull that comes often is remembered as a pattern: whatever is the
same byte for byte but for the numbers of request, queue, offsets and flags is read by it, in a third of the time, to
the same command. Everything else is left to the plain decoder.
"""

from __future__ import annotations

import re

from orbitlog.errors import OrbitlogError
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, Serialization
from orbitlog.wire.command_decoding import WireLimits, decode_json_header
from orbitlog.wire.consume_headers import PullMessageRequest

_JSON = int(Serialization.JSON)
_KINDS_MAX = 4  # of a connection: a consumer has one for each topic, and most have one busy topic
_KNOWN_AFTER = 32
_HEADER_BYTES_MAX = 4096

# What differs, as JSON writes it. None of the marks can stand within a text: the quotes there have backslashes.
_OPAQUE = (b'"opaque":', rb"(0|[1-9][0-9]{0,8})")
_OWN_FIELDS = {"queueId": 9, "queueOffset": 18, "sysFlag": 9, "commitOffset": 18}  # with so many digits at most


class RepeatedPulls:
    """The kinds of pulls that one peer repeats, the one that came last first."""

    __slots__ = ("_kinds", "_known_count", "_patience", "_unknown_count")

    def __init__(self) -> None:
        self._kinds: list[_Kind] = []
        self._patience = _KNOWN_AFTER
        self._known_count = self._unknown_count = 0  # since the last kind was taken up

    def read(self, header: bytes, body: bytes, limits: WireLimits) -> Command | None:
        """Read the header of a pull; None where it is of no known kind."""
        kinds = self._kinds
        for place, kind in enumerate(kinds):
            found = kind.match(header)
            if found is not None:
                if place:
                    kinds.insert(0, kinds.pop(place))
                self._known_count += 1
                return kind.command(found, body)
        self._unknown_count += 1
        if self._unknown_count >= self._patience:
            self._take_up(header, limits)
        return None

    def _take_up(self, header: bytes, limits: WireLimits) -> None:
        """Remember one more kind; a peer that repeats none is asked ever more seldom: a pattern costs fifty pulls."""
        is_of_use = self._known_count >= self._unknown_count
        self._patience = _KNOWN_AFTER if is_of_use else 2 * self._patience
        self._known_count = self._unknown_count = 0
        new = _kind_of(header, limits)
        if new is not None:
            self._kinds.insert(0, new)
            del self._kinds[_KINDS_MAX:]


class _Kind:
    """One kind: a pattern of its text, and what its pulls share."""

    __slots__ = ("_command", "_groups", "_header", "match")

    def __init__(self, pattern: bytes, groups: tuple[int, ...], command: Command, header: PullMessageRequest) -> None:
        self.match = re.compile(pattern).fullmatch
        self._groups = groups
        self._command = command
        self._header = header

    def command(self, found: re.Match[bytes], body: bytes) -> Command:
        opaque, queue_id, queue_offset, sys_flag, commit_offset = found.group(*self._groups)
        like, pull = self._command, self._header
        ext_fields = like.ext_fields.copy()
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


def _kind_of(header: bytes, limits: WireLimits) -> _Kind | None:
    """Return the kind of a pull, or None where it is not one, or not written as others are."""
    if len(header) > _HEADER_BYTES_MAX:
        return None
    try:
        command = decode_json_header(header, b"", limits)
        pull = PullMessageRequest.from_ext_fields(command.ext_fields)
    except OrbitlogError:
        return None  # the plain decoder says what is wrong
    values = dict([_OPAQUE])
    values |= {b'"%b":"' % name.encode(): rb"([0-9]{1,%d})" % digits for name, digits in _OWN_FIELDS.items()}
    if command.code != RequestCode.PULL_MESSAGE or any(header.count(mark) != 1 for mark in values):
        return None
    pattern, position = b"", 0
    order = sorted(values, key=header.index)
    for mark in order:
        start = header.index(mark) + len(mark)
        value = re.compile(values[mark]).match(header, start)
        if value is None:
            return None
        pattern += re.escape(header[position:start]) + values[mark]
        position = value.end()
    pattern += re.escape(header[position:])
    return _Kind(pattern, tuple(order.index(mark) + 1 for mark in values), command, pull)
