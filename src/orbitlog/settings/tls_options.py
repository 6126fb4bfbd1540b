"""TLS options of a server, resolved from its settings and the file of `tls.config.file`; contradictions are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from orbitlog.settings import tls_settings as keys
from orbitlog.settings.properties_file import read_properties
from orbitlog.settings.setting import Setting, SettingError

T = TypeVar("T")

_FILE_BYTES_MAX = 1 << 20


class TlsFiles(NamedTuple):
    """Files of one side; an empty path is a file that is not given."""

    certificate: str = ""
    key: str = ""
    key_password: str = ""
    trust: str = ""

    def __repr__(self) -> str:
        return f"TlsFiles(certificate={self.certificate!r}, key={self.key!r}, trust={self.trust!r})"


class TlsRules(NamedTuple):
    """Allowed versions and cipher suites; none given stands for all that are considered safe."""

    protocols: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()


class ServerTlsOptions(NamedTuple):
    """TLS of a server's ports."""

    mode: str = keys.DISABLED
    files: TlsFiles = TlsFiles()
    is_test: bool = False
    client_authentication: str = keys.NONE
    principal_from: str = ""
    rules: TlsRules = TlsRules()
    notices: tuple[str, ...] = ()
    """Sentences about settings with an effect that differs from Java's."""

    @property
    def is_on(self) -> bool:
        return self.mode != keys.DISABLED

    @property
    def is_enforcing(self) -> bool:
        return self.mode == keys.ENFORCING


class ClientTlsOptions(NamedTuple):
    """TLS of connections that a client, or a server as a client, opens."""

    is_on: bool = False
    files: TlsFiles = TlsFiles()
    verifies: bool = True
    checks_host: bool = True
    rules: TlsRules = TlsRules()


class TlsOptions(NamedTuple):
    """TLS of both directions."""

    server: ServerTlsOptions = ServerTlsOptions()
    client: ClientTlsOptions = ClientTlsOptions()


def tls_options(given: Mapping[str, str], default_file: str = keys.DEFAULT_CONFIG_FILE) -> TlsOptions:
    """Return the options of the given texts, which have been checked, and of the properties file that they name.

    Raise a `SettingError` if the file is invalid or settings contradict each other.
    """
    texts = {key: text for key, text in given.items() if key in keys.TLS_SETTINGS or key == keys.USE_TLS.key}
    texts = _with_file(_without_aliases(texts), default_file)
    values = _Values(texts)
    if values[keys.TEST_MODE] and (values[keys.SERVER_CERTIFICATE] or values[keys.SERVER_KEY]):
        raise SettingError(
            "tls.test.mode.enable=true and tls.server.certPath contradict each other: Java would ignore the file; set"
            " tls.test.mode.enable=false to use it"
        )
    server = _server_options(values)
    return TlsOptions(server, _client_options(values, server))


class _Values:
    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def __getitem__(self, setting: Setting[T]) -> T:
        text = self.texts.get(setting.key)
        return setting.default if text is None else setting.parse(text)

    @property
    def rules(self) -> TlsRules:
        return TlsRules(keys.comma_list(self[keys.PROTOCOLS]), keys.comma_list(self[keys.CIPHERS]))


def _without_aliases(given: Mapping[str, str]) -> dict[str, str]:
    """Return the texts under Java's keys; raise a `SettingError` if a key and its alias contradict each other."""
    texts = {key: text for key, text in given.items() if key not in keys.ALIASES}
    for alias, setting in keys.ALIASES.items():
        text = given.get(alias)
        if text is not None and texts.setdefault(setting.key, text) != text:
            raise SettingError(f"{alias} and {setting.key} contradict each other; remove one of them")
    return texts


def _with_file(given: dict[str, str], default_file: str) -> dict[str, str]:
    named = given.get(keys.CONFIG_FILE.key)
    path = Path(named or default_file)
    if not named and not path.exists():
        return given
    for key, text in read_tls_file(path).items():
        if key in given and given[key] != text:
            raise SettingError(
                f"{key} has one value in {path} and another in the server's settings; remove one of them"
            )
        given[key] = text
    return given


def read_tls_file(path: Path) -> dict[str, str]:
    """Return the texts of a `tls.properties` file, each checked; raise a `SettingError` if it is invalid."""
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise SettingError(f"tls.config.file={path}: larger than {_FILE_BYTES_MAX} bytes")
        texts = read_properties(path)
    except OSError as error:
        raise SettingError(f"tls.config.file={path}: {(error.strerror or str(error)).lower()}") from None
    for key, text in texts.items():
        if key not in keys.TLS_SETTINGS or key in (keys.CONFIG_FILE.key, *keys.ALIASES):
            raise SettingError(f"{key} from {path}: unknown key of tls.properties; remove this line")
        keys.TLS_SETTINGS[key].check(text, str(path))
    return texts


def _server_options(values: _Values) -> ServerTlsOptions:
    files = TlsFiles(
        values[keys.SERVER_CERTIFICATE],
        values[keys.SERVER_KEY],
        values[keys.SERVER_KEY_PASSWORD],
        values[keys.SERVER_TRUST],
    )
    _check_pair(files, "tls.server")
    is_test = values[keys.TEST_MODE]
    has_certificate = bool(files.certificate) or is_test
    mode = values[keys.SERVER_MODE] or (keys.PERMISSIVE if has_certificate else keys.DISABLED)
    if mode != keys.DISABLED and not has_certificate:
        raise SettingError(
            f"tls.server.mode={mode} needs tls.server.certPath and tls.server.keyPath, or tls.test.mode.enable=true for"
            " a self-signed certificate; `orbitlog access tls init` creates files for development"
        )
    authentication, principal = values[keys.CLIENT_AUTHENTICATION], values[keys.PRINCIPAL]
    _check_client_authentication(values, authentication, principal)
    notices = []
    if authentication != keys.NONE and not values[keys.AUTHENTICATES_CLIENTS]:
        notices.append(
            f"tls.server.need.client.auth={authentication}: client certificates are verified with"
            " tls.server.trustCertPath although tls.server.authClient is not true"
        )
    return ServerTlsOptions(
        mode, files, is_test, authentication, principal, values.rules, tuple(notices) if mode != keys.DISABLED else ()
    )


def _check_client_authentication(values: _Values, authentication: str, principal: str) -> None:
    if authentication != keys.NONE and not values[keys.SERVER_TRUST]:
        raise SettingError(
            f"tls.server.need.client.auth={authentication} needs tls.server.trustCertPath: a certificate that is not"
            " verified proves nothing"
        )
    if authentication == keys.NONE and values[keys.AUTHENTICATES_CLIENTS]:
        raise SettingError(
            "tls.server.authClient=true verifies nothing while tls.server.need.client.auth=none; set that to optional"
            " or require"
        )
    if authentication == keys.NONE and principal:
        raise SettingError(
            f"tlsPrincipalFrom={principal} needs client certificates; set tls.server.need.client.auth to optional or"
            " require"
        )


def _client_options(values: _Values, server: ServerTlsOptions) -> ClientTlsOptions:
    files = TlsFiles(
        values[keys.CLIENT_CERTIFICATE],
        values[keys.CLIENT_KEY],
        values[keys.CLIENT_KEY_PASSWORD],
        values[keys.CLIENT_TRUST],
    )
    _check_pair(files, "tls.client")
    switches = [values[setting] for setting in (keys.CLIENT_ENABLED, keys.USE_TLS) if setting.key in values.texts]
    if len(set(switches)) > 1:
        raise SettingError("tls.enable and useTLS contradict each other; remove one of them")
    return ClientTlsOptions(
        switches[0] if switches else server.is_enforcing,
        files,
        values[keys.VERIFIES_SERVERS] and not values[keys.TEST_MODE],
        values[keys.CHECKS_HOST],
        values.rules,
    )


def _check_pair(files: TlsFiles, prefix: str) -> None:
    if bool(files.certificate) != bool(files.key):
        missing = f"{prefix}.keyPath" if files.certificate else f"{prefix}.certPath"
        raise SettingError(f"{missing} is missing: certificate and private key must be given together")
