"""Sessions of signed-in visitors: kept in memory under the hash of a random token, which only the cookie contains."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from orbitlog.console.session.console_roles import Role, Visitor

IDLE_SECONDS = 8 * 3600.0
LIFE_SECONDS = 24 * 3600.0
SESSIONS_MAX = 10_000
_TOKEN_BYTES = 32


@dataclass(slots=True)
class _Session:
    visitor: Visitor
    created_s: float
    used_s: float


class Sessions:
    """All open sessions; the clock is a monotonic one in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, name: str, role: Role) -> tuple[str, Visitor]:
        """Open a session with a fresh token; return the token for the cookie, and the visitor."""
        self._drop_expired()
        if len(self._sessions) >= SESSIONS_MAX:
            # The idlest one ends: to refuse instead would let forgotten sessions keep all visitors out.
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].used_s)]
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        key = _hashed(token)
        now_s = self._clock()
        visitor = Visitor(name, role, secrets.token_urlsafe(_TOKEN_BYTES), key)
        self._sessions[key] = _Session(visitor, now_s, now_s)
        return token, visitor

    def find(self, token: str) -> Visitor | None:
        """Return the visitor of a cookie's token; None for unknown, idle and old sessions."""
        session = self._sessions.get(_hashed(token))
        if session is None:
            return None
        now_s = self._clock()
        if self._is_expired(session, now_s):
            self.end(session.visitor)
            return None
        session.used_s = now_s
        return session.visitor

    def end(self, visitor: Visitor) -> None:
        self._sessions.pop(visitor.session_id, None)

    def end_of_user(self, name: str) -> None:
        """End all sessions of a user, whose role or password has changed."""
        for key in [key for key, session in self._sessions.items() if session.visitor.name == name]:
            del self._sessions[key]

    def _drop_expired(self) -> None:
        now_s = self._clock()
        for key in [key for key, session in self._sessions.items() if self._is_expired(session, now_s)]:
            del self._sessions[key]

    def _is_expired(self, session: _Session, now_s: float) -> bool:
        return now_s - session.used_s > IDLE_SECONDS or now_s - session.created_s > LIFE_SECONDS


class OneTimeToken:
    """The token in the address that the start prints, for one sign-in as administrator."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(_TOKEN_BYTES)
        self._is_used = False

    def take(self, text: str) -> bool:
        """Return whether the text is the token; a second use is refused."""
        if self._is_used or not hmac.compare_digest(text.encode(), self.text.encode()):
            return False
        self._is_used = True
        return True


def is_csrf_token(visitor: Visitor, text: str) -> bool:
    """Return whether a text is the CSRF token of the visitor's session."""
    return bool(visitor.csrf_token) and hmac.compare_digest(text.encode(), visitor.csrf_token.encode())


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
