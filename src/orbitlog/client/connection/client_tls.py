"""TLS of a client: certificates and how servers are verified."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitlog.errors import ClientError

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

FilePath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for connections to name servers and brokers; servers are verified by CA and host name.

    `ca_file` replaces the system's CAs. `cert_file` and `key_file` are the client's own certificate, for servers that
    require one. `check_host_name=False` accepts a certificate for another host, as Java's client does; `insecure=True`
    accepts every server. All files are in PEM form.

    Example:
        tls = orbitlog.Tls(check_host_name=False)
        async with orbitlog.connect(address, tls=tls) as mq:
            print(mq.client_id)
    """

    ca_file: FilePath | None = None
    cert_file: FilePath | None = None
    key_file: FilePath | None = None
    key_password: str = field(default="", repr=False)
    check_host_name: bool = True
    insecure: bool = False

    def context(self) -> ssl.SSLContext:
        """Return a context with these files; raise `ClientError` if one is missing or invalid."""
        from orbitlog.remoting.tls.tls_contexts import ContextNames, client_context
        from orbitlog.settings.setting import SettingError
        from orbitlog.settings.tls_options import ClientTlsOptions, TlsFiles

        if (self.cert_file is None) != (self.key_file is None):
            raise ClientError("cert_file and key_file must be given together")
        if self.insecure and self.ca_file is not None:
            raise ClientError("insecure=True verifies nothing, so ca_file has no effect; remove one of them")
        if self.insecure:
            log.warning("TLS certificates of servers are not verified (insecure=True)")
        files = TlsFiles(_text(self.cert_file), _text(self.key_file), self.key_password, _text(self.ca_file))
        options = ClientTlsOptions(True, files, not self.insecure, self.check_host_name)
        try:
            return client_context(options, ContextNames("cert_file", "ca_file"))
        except SettingError as error:
            raise ClientError(str(error)) from None


def _text(path: FilePath | None) -> str:
    return "" if path is None else os.fspath(path)


TlsChoice = bool | Tls


def tls_context(tls: TlsChoice | ssl.SSLContext | None, address: str) -> ssl.SSLContext | None:
    """Return the context of a client's connections, None if they are plain.

    Without a choice, the scheme of the address decides: `rocketmqs://`. Raise `ClientError` if both contradict.
    """
    from orbitlog.client.connection.addresses import is_secured

    if tls is None or tls is True:
        return Tls().context() if tls or is_secured(address) else None
    if tls is False:
        if is_secured(address):
            raise ClientError("rocketmqs:// and tls=False contradict each other; write rocketmq:// instead")
        return None
    return tls.context() if isinstance(tls, Tls) else tls
