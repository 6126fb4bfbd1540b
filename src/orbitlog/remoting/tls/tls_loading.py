"""Loading of TLS: the TLS side of a server's ports and of its connections to others; imported only if TLS is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from orbitlog.remoting.tls.server_tls import ServerTls
    from orbitlog.settings.tls_options import TlsOptions


def load_server_tls(options: TlsOptions) -> ServerTls | None:
    """Return the TLS side of a server's ports, None if it is off; raise an `OrbitlogError` if a file is invalid."""
    if not options.server.is_on:
        return None
    from orbitlog.remoting.tls.server_tls import ServerTls

    return ServerTls(options.server)


def load_client_tls(options: TlsOptions) -> ssl.SSLContext | None:
    """Return the context for connections to other servers, None if they are plain."""
    if not options.client.is_on:
        return None
    from orbitlog.remoting.tls.tls_contexts import client_context

    return client_context(options.client)
