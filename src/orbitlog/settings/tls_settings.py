"""TLS settings, under the names of Java's system properties and `tls.properties`; broker and name server share them.

Mirrors Java `TlsSystemConfig`. Java reads these keys from system properties and from the file of `tls.config.file`
only; Orbitlog also reads them from broker.conf and namesrv.conf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbitlog.settings.setting import Setting, parse_truth

if TYPE_CHECKING:
    from orbitlog.settings.tls_options import TlsOptions

DEFAULT_CONFIG_FILE = "/etc/rocketmq/tls.properties"
DISABLED, PERMISSIVE, ENFORCING = "disabled", "permissive", "enforcing"
NONE, OPTIONAL, REQUIRE = "none", "optional", "require"


def _lower_word(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"is not one of {', '.join(filter(None, words))}")
        return text.lower()

    return parse


def _principal(text: str) -> str:
    if text not in ("", "subjectCN", "san"):
        raise ValueError("is not one of subjectCN, san")
    return text


def comma_list(text: str) -> tuple[str, ...]:
    """Return the words of `a,b,c`."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _protocols(text: str) -> str:
    for word in comma_list(text):
        if word not in ("TLSv1.2", "TLSv1.3"):
            raise ValueError(f"contains {word!r}, which is neither TLSv1.2 nor TLSv1.3")
    return text


SERVER_MODE = Setting(
    "tls.server.mode",
    _lower_word(DISABLED, PERMISSIVE, ENFORCING, ""),
    "",
    "`disabled`, `permissive` (one port serves TLS and plain connections) or `enforcing` (TLS only); without it,"
    " permissive if there is a certificate ([TLS](../tls.md))",
)
CONFIG_FILE = Setting(
    "tls.config.file", str, "", f"Java's `tls.properties`; without it, `{DEFAULT_CONFIG_FILE}` if that exists"
)
MODE_ALIAS = Setting(
    "tlsMode",
    SERVER_MODE.parse,
    "",
    f"the same as {SERVER_MODE.key}, for files without dots in keys (Orbitlog's own key)",
)
FILE_ALIAS = Setting("tlsConfigFile", str, "", f"the same as {CONFIG_FILE.key} (Orbitlog's own key)")
ALIASES: Mapping[str, Setting[str]] = {MODE_ALIAS.key: SERVER_MODE, FILE_ALIAS.key: CONFIG_FILE}
TEST_MODE = Setting(
    "tls.test.mode.enable",
    parse_truth,
    False,
    "serve TLS with a self-signed certificate created at each start, and trust every server; Java's default is true",
)
SERVER_CERTIFICATE = Setting("tls.server.certPath", str, "", "certificate chain of the server, PEM")
SERVER_KEY = Setting("tls.server.keyPath", str, "", "private key of the server, PEM")
SERVER_KEY_PASSWORD = Setting("tls.server.keyPassword", str, "", "password of that key, if it is encrypted")
CLIENT_AUTHENTICATION = Setting(
    "tls.server.need.client.auth",
    _lower_word(NONE, OPTIONAL, REQUIRE),
    NONE,
    "ask clients for a certificate: `none`, `optional` or `require`; one that is shown is always verified",
)
AUTHENTICATES_CLIENTS = Setting(
    "tls.server.authClient", parse_truth, False, "verify client certificates; Orbitlog always does if it asks for them"
)
SERVER_TRUST = Setting("tls.server.trustCertPath", str, "", "CA certificates that client certificates need, PEM")
PRINCIPAL = Setting(
    "tlsPrincipalFrom",
    _principal,
    "",
    "name of a user in a client certificate, whose requests then need no signature: `subjectCN`, or `san` for the"
    " first subject alternative name (Orbitlog's own key)",
)
PROTOCOLS = Setting(
    "tls.protocols", _protocols, "", "TLS versions, separated by commas; without it, TLSv1.2 and TLSv1.3"
)
CIPHERS = Setting(
    "tls.ciphers", str, "", "cipher suites under Java's names, separated by commas; without it, OpenSSL's default"
)
CLIENT_ENABLED = Setting(
    "tls.enable",
    parse_truth,
    False,
    "connect to name servers and brokers with TLS; without it, if tls.server.mode=enforcing",
)
CLIENT_CERTIFICATE = Setting("tls.client.certPath", str, "", "certificate chain for such connections, PEM")
CLIENT_KEY = Setting("tls.client.keyPath", str, "", "private key for such connections, PEM")
CLIENT_KEY_PASSWORD = Setting("tls.client.keyPassword", str, "", "password of that key, if it is encrypted")
VERIFIES_SERVERS = Setting(
    "tls.client.authServer", parse_truth, True, "verify certificates of servers; Java's default is false"
)
CLIENT_TRUST = Setting(
    "tls.client.trustCertPath",
    str,
    "",
    "CA certificates that servers' certificates need, PEM; without it, the system's",
)
CHECKS_HOST = Setting(
    "tls.client.checkHostName",
    parse_truth,
    True,
    "also compare the server's host name or address with its certificate, which Java does not do (Orbitlog's own key)",
)

TLS_SETTINGS: Mapping[str, Setting[Any]] = {
    setting.key: setting
    for setting in (
        SERVER_MODE,
        CONFIG_FILE,
        MODE_ALIAS,
        FILE_ALIAS,
        TEST_MODE,
        SERVER_CERTIFICATE,
        SERVER_KEY,
        SERVER_KEY_PASSWORD,
        CLIENT_AUTHENTICATION,
        AUTHENTICATES_CLIENTS,
        SERVER_TRUST,
        PRINCIPAL,
        PROTOCOLS,
        CIPHERS,
        CLIENT_ENABLED,
        CLIENT_CERTIFICATE,
        CLIENT_KEY,
        CLIENT_KEY_PASSWORD,
        VERIFIES_SERVERS,
        CLIENT_TRUST,
        CHECKS_HOST,
    )
}
USE_TLS = Setting(
    "useTLS", parse_truth, False, "the same as tls.enable, under the name of Java's broker.conf ([TLS](../tls.md))"
)
"""Only a broker reads it: a name server opens no connections."""
_KEYS = TLS_SETTINGS.keys() | {USE_TLS.key}


def check_tls(texts: Mapping[str, str]) -> TlsOptions | None:
    """Return the options of TLS, None if no setting is about it; raise a `SettingError` if they are contradictory."""
    if _KEYS.isdisjoint(texts) and not Path(DEFAULT_CONFIG_FILE).exists():
        return None
    from orbitlog.settings.tls_options import tls_options

    return tls_options(texts)
