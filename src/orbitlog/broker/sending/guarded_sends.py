"""Guarded sends: passes admitted sends to the fast path.

The signature of each message differs, so it would never match a send template. It is verified here, and then replaced
by the same constant as on the slow path. Only admitted frames reach the fast path. A frame that it does not take
stays in the backlog as it was received, and the slow path verifies it as well. Frames with a signed pattern and a
template are read once: the fast path gets their values with them.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import orjson

from orbitlog.access.guarded_handler import VERIFIED
from orbitlog.access.request_guard import RequestGuard
from orbitlog.access.request_signature import SIGNATURE
from orbitlog.broker.sending.fast_sends import FastSends
from orbitlog.broker.sending.send_templates import HEADER_STARTS, RUN_MAX, TemplateCache
from orbitlog.broker.sending.signed_patterns import SignedPatterns
from orbitlog.remoting.connection import Connection
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Serialization
from orbitlog.wire.frames import Frame

_JSON = int(Serialization.JSON)
_END = int(RequestCode.END_TRANSACTION)
_STARTS = {**HEADER_STARTS, _END: b'{"code":%d,' % _END}
_MARK = b'"%b":"' % SIGNATURE.encode()
_VERIFIED_FIELD = _MARK + VERIFIED.encode() + b'"'


class GuardedSends:
    """Passes the admitted sends of a backlog to the fast path."""

    def __init__(self, guard: RequestGuard, fast_path: FastSends) -> None:
        self._guard = guard
        self._fast_path = fast_path
        # Frames verified at once. After a run that the fast path did not take completely, it is one: frames that are
        # left to the slow path would be verified again and again.
        self._run = RUN_MAX
        self._patterns: dict[Connection, SignedPatterns] = {}

    def __call__(self, connection: Connection, backlog: deque[Frame], outgoing: list[bytes]) -> None:
        """Take sends off the front of a backlog, as `FastSends` does."""
        fast_path, policy = self._fast_path, self._guard.policy
        while True:
            cache = fast_path.templates_of(connection)
            if cache is None:
                return
            patterns = self._patterns.get(connection) or self._patterns_of(connection)
            reads = patterns.read_run(islice(backlog, self._run), policy, cache)
            count = len(reads)
            if count:
                admitted = deque(islice(backlog, count))
            else:
                admitted = self._verified(connection, backlog, patterns, cache)
                count = len(admitted)
                if not count:
                    return
            fast_path(connection, admitted, outgoing, reads=reads)
            for _ in range(count - len(admitted)):
                backlog.popleft()
            if admitted:
                self._run = 1
                return
            self._run = RUN_MAX
            if not backlog or len(outgoing) >= RUN_MAX or connection.is_congested:
                return

    def _verified(
        self, connection: Connection, backlog: deque[Frame], patterns: SignedPatterns, cache: TemplateCache
    ) -> deque[Frame]:
        """Return the first admitted frames, with their signatures replaced."""
        policy, ip = self._guard.policy, connection.remote_address[0]
        admitted: deque[Frame] = deque()
        for frame in islice(backlog, self._run):
            verified = patterns.verified(frame, policy, cache) or self._admitted(frame, ip, patterns)
            if verified is None:
                break
            admitted.append(verified)
        return admitted

    def _patterns_of(self, connection: Connection) -> SignedPatterns:
        patterns = self._patterns[connection] = SignedPatterns(self._guard.policy)
        connection.on_close(self._patterns.__delitem__)
        return patterns

    def _admitted(self, frame: Frame, ip: str, patterns: SignedPatterns) -> Frame | None:
        """Return a frame with its signature replaced if the guard admits it; None if it is left to the slow path."""
        serialization, header, body = frame
        if serialization != _JSON or header.count(_MARK) != 1:
            return None
        try:
            fields = orjson.loads(header)
            code, ext_fields = fields["code"], fields["extFields"]
            signature = ext_fields[SIGNATURE].encode()
            "".join(ext_fields.values())  # raises a TypeError if a value is not text
            if type(code) is not int or not header.startswith(_STARTS[code]):
                return None
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        field = b'%b%b"' % (_MARK, signature)
        if header.count(field) != 1 or not self._guard.is_admitted(code, ext_fields, body, ip):
            return None
        patterns.learn(self._guard, code, ext_fields, header, ip)
        return serialization, header.replace(field, _VERIFIED_FIELD), body
