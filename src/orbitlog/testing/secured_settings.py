"""Settings of a secured test broker: TLS with certificates of its own, and access control with one super user."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import orjson

from orbitlog.access.credentials import Credentials
from orbitlog.client.connection.client_tls import Tls
from orbitlog.remoting.tls.development_certificates import DevelopmentCa, default_hosts

CREDENTIALS = Credentials("test-user", "test-secret")


@lru_cache
def _certificates() -> Path:
    """Create a CA and a server's certificate once in a process; creating them takes longer than starting a broker."""
    directory = Path(tempfile.mkdtemp(prefix="orbitlog-certificates-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    ca = DevelopmentCa(directory / "tls")
    ca.create("Orbitlog test CA")
    ca.issue_server("server", default_hosts())
    return ca.directory


def secured_tls() -> Tls:
    """Return the TLS of clients: they trust the test CA."""
    return Tls(ca_file=_certificates() / "ca.pem")


def tls_texts() -> dict[str, str]:
    """Return the TLS settings of broker and name server."""
    directory = _certificates()
    return {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(directory / "server.pem"),
        "tls.server.keyPath": str(directory / "server.key"),
        "tls.client.trustCertPath": str(directory / "ca.pem"),
    }


def access_texts() -> dict[str, str]:
    """Return the settings of access control."""
    user = {"username": CREDENTIALS.access_key, "password": CREDENTIALS.secret_key}
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": orjson.dumps(user).decode(),
    }
