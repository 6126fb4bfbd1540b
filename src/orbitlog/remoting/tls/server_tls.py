"""TLS of one server: its mode and context, replaced when a file changes; open connections continue.

Mirrors Java `FileWatchService` of `TlsHelper`, which compares hashes of the files.
"""

from __future__ import annotations

import logging
import ssl
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.remoting.flow import Repeated
from orbitlog.remoting.tls.certificate_names import certificate_name
from orbitlog.remoting.tls.handshake_turns import HandshakeTurns
from orbitlog.remoting.tls.port_gate import PortGate
from orbitlog.remoting.tls.tls_contexts import server_context
from orbitlog.settings.setting import SettingError
from orbitlog.settings.tls_options import ServerTlsOptions

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection
    from orbitlog.remoting.tls.tls_session import TlsSession
    from orbitlog.settings.limits import Limits

log = logging.getLogger(__name__)

_REASONS_MAX = 64
_Mark = tuple[int, int, int] | None


class ServerTls:
    """The TLS side of a server's ports; `context` is that of new connections."""

    def __init__(self, options: ServerTlsOptions) -> None:
        """Load the files; raise a `SettingError` if one is missing or invalid."""
        self.options = options
        self.is_enforcing = options.is_enforcing
        self._marks = self._current_marks()
        self.context: ssl.SSLContext = server_context(options)
        self._failures: dict[str, Repeated] = {}  # by reason: a frequent one must not hide the others
        self.turns: HandshakeTurns | None = None  # of all ports that share this
        for notice in options.notices:
            log.warning("%s", notice)
        _warn_of_readable_key(options.files.key)

    def gate(self, connection: Connection, limits: Limits) -> PortGate:
        """Return the protocol of a new connection until its first byte."""
        if self.turns is None:
            self.turns = HandshakeTurns(limits)
        return PortGate(connection, self, self.turns)

    def reload(self) -> bool:
        """Load the files if one has changed; return whether the context was replaced.

        Files that do not fit each other keep the context in force: a certificate and its key are replaced one after
        the other.
        """
        marks = self._current_marks()
        if marks == self._marks:
            return False
        self._marks = marks
        try:
            self.context = server_context(self.options)
        except SettingError as error:
            log.warning("could not reload TLS files, those in force stay: %s", error)
            return False
        log.info("TLS files reloaded: new connections get %s", self.options.files.certificate)
        return True

    def note_client(self, connection: Connection, session: TlsSession) -> None:
        """Record the name in the client's verified certificate, if it names a user."""
        if self.options.principal_from:
            connection.certificate_name = certificate_name(session.tls.getpeercert(), self.options.principal_from)

    def note_failure(self, connection: Connection, reason: str) -> None:
        """Log why a connection is closed; thinned, because a peer can repeat it without limit."""
        key = reason if reason in self._failures or len(self._failures) < _REASONS_MAX else ""
        repeated = self._failures.setdefault(key, Repeated())
        if repeated.is_worth_a_line():
            log.warning("closing %s: %s (%d so far)", connection.peer, reason, repeated.count)

    def _current_marks(self) -> tuple[_Mark, ...]:
        files = self.options.files
        return tuple(_mark(path) for path in (files.certificate, files.key, files.trust) if path)


def _mark(path: str) -> _Mark:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _warn_of_readable_key(path: str) -> None:
    if path and stat.S_IMODE(Path(path).stat().st_mode) & 0o077:
        log.warning("private key %s can be read by other users; set its mode to 0600", path)
