"""Certificate watch: the condition of a server whose certificate ends soon, checked once a minute."""

from __future__ import annotations

from orbitlog.observe.conditions import CERTIFICATE_EXPIRING, Conditions
from orbitlog.remoting.tls.certificate_expiry import expiry_warning

_INTERVAL_MS = 60_000


class CertificateWatch:
    """Watches the certificate of a server's ports; `path` is empty for a self-signed one of this process."""

    def __init__(self, conditions: Conditions, path: str) -> None:
        self._conditions = conditions
        self._path = path
        self._checked_ms = 0

    def check(self, now_ms: int) -> None:
        """Begin or end the condition, if the last check is a minute ago."""
        if now_ms - self._checked_ms >= _INTERVAL_MS:
            self._checked_ms = now_ms
            self._conditions.set(CERTIFICATE_EXPIRING, expiry_warning(self._path, now_ms // 1000), self._path)
