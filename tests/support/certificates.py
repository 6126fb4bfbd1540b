"""Certificates of the TLS tests: one CA and its certificates for the whole run, created at first use."""

from __future__ import annotations

import atexit
import shutil
import ssl
import tempfile
from functools import lru_cache
from pathlib import Path

from orbitlog.remoting.tls.development_certificates import DevelopmentCa, default_hosts
from orbitlog.remoting.tls.server_tls import ServerTls
from orbitlog.remoting.tls.tls_contexts import client_context
from orbitlog.settings.tls_options import ClientTlsOptions, ServerTlsOptions, TlsFiles

DAYS_EXPIRED = -1
NO_FILES = TlsFiles()


@lru_cache
def certificate_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="orbitlog-certificates-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@lru_cache
def shared_ca() -> DevelopmentCa:
    ca = DevelopmentCa(certificate_directory() / "ca")
    ca.create()
    return ca


@lru_cache
def other_ca() -> DevelopmentCa:
    ca = DevelopmentCa(certificate_directory() / "other")
    ca.create("Another CA")
    return ca


@lru_cache
def server_files() -> TlsFiles:
    return shared_ca().issue_server("server", default_hosts())


@lru_cache
def client_files() -> TlsFiles:
    return shared_ca().issue_client("client", "alice")


@lru_cache
def strange_client_files() -> TlsFiles:
    """A client certificate of a CA that servers do not trust."""
    return other_ca().issue_client("client", "alice")


@lru_cache
def expired_server_files() -> TlsFiles:
    return shared_ca().issue_server("expired", default_hosts(), days=DAYS_EXPIRED)


@lru_cache
def elsewhere_server_files() -> TlsFiles:
    """A certificate for a host that no test connects to."""
    return shared_ca().issue_server("elsewhere", ["broker.example"])


def server_tls(files: TlsFiles | None = None, **options: object) -> ServerTls:
    return ServerTls(ServerTlsOptions(**{"mode": "permissive", "files": files or server_files(), **options}))  # type: ignore[arg-type]


def trusting(files: TlsFiles = NO_FILES, **options: object) -> ssl.SSLContext:
    """The context of a client that trusts the CA of the tests, with a certificate if one is given."""
    files = files._replace(trust=str(shared_ca().certificate))
    return client_context(ClientTlsOptions(**{"is_on": True, "files": files, **options}))  # type: ignore[arg-type]
