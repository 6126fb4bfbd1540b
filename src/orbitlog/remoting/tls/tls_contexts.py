"""TLS contexts of servers and clients: certificates, trust, versions and cipher suites. TLS 1.2 or newer, always."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from orbitlog.settings import tls_settings as keys
from orbitlog.settings.setting import SettingError
from orbitlog.settings.tls_options import ClientTlsOptions, ServerTlsOptions, TlsFiles, TlsRules

_FILE_BYTES_MAX = 16 * 1024 * 1024
# Java's names of cipher suites, with OpenSSL's.
_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
}
# Python cannot choose among the suites of TLS 1.3; all three are safe.
_SUITES_13 = frozenset(("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"))
# By OpenSSL's names of errors.
_KEY_PROBLEMS = {"KEY_VALUES_MISMATCH": "is that of another certificate"}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES = {
    keys.NONE: ssl.CERT_NONE,
    keys.OPTIONAL: ssl.CERT_OPTIONAL,
    keys.REQUIRE: ssl.CERT_REQUIRED,
}


def server_context(options: ServerTlsOptions) -> ssl.SSLContext:
    """Return the context of a server; raise a `SettingError` if a file is missing or invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _apply_rules(context, options.rules)
    if options.is_test:
        _load_self_signed(context)
    else:
        load_certificate(context, options.files, keys.SERVER_CERTIFICATE.key)
    if options.client_authentication != keys.NONE:
        load_trust(context, options.files.trust, keys.SERVER_TRUST.key)
        context.verify_mode = _VERIFY_MODES[options.client_authentication]
    return context


class ContextNames(NamedTuple):
    """Names of a client's files in errors."""

    certificate: str = keys.CLIENT_CERTIFICATE.key
    trust: str = keys.CLIENT_TRUST.key


_SETTINGS = ContextNames()


def client_context(options: ClientTlsOptions, names: ContextNames = _SETTINGS) -> ssl.SSLContext:
    """Return the context of a client; raise a `SettingError` if a file is missing or invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _apply_rules(context, options.rules)
    context.check_hostname = options.verifies and options.checks_host
    if not options.verifies:
        context.verify_mode = ssl.CERT_NONE
    elif options.files.trust:
        load_trust(context, options.files.trust, names.trust)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if options.files.certificate:
        load_certificate(context, options.files, names.certificate)
    return context


def load_certificate(context: ssl.SSLContext, files: TlsFiles, key: str) -> None:
    """Load a certificate chain with its private key; errors name the setting `key`."""
    for path in (files.certificate, files.key):
        _check_file(path, key)
    # A function, also without a password: OpenSSL would else ask for it on the terminal.
    password = files.key_password
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: password)
    except ssl.SSLError as error:
        raise SettingError(f"{key}={files.certificate}: {_describe(error, files)}") from None
    except (OSError, ValueError) as error:
        raise SettingError(f"{key}={files.certificate}: {error}") from None


def load_trust(context: ssl.SSLContext, path: str, key: str) -> None:
    """Load trusted CA certificates; errors name the setting `key`."""
    _check_file(path, key)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise SettingError(f"{key}={path}: the file contains no certificate in PEM form") from None


def _check_file(path: str, key: str) -> None:
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise SettingError(f"{key}: {path}: {(error.strerror or str(error)).lower()}") from None
    if size > _FILE_BYTES_MAX:
        raise SettingError(f"{key}: {path}: larger than {_FILE_BYTES_MAX} bytes")


def _describe(error: ssl.SSLError, files: TlsFiles) -> str:
    if problem := _KEY_PROBLEMS.get(error.reason):
        return f"the private key {files.key} {problem}"
    # OpenSSL does not report a wrong password as such.
    if b"ENCRYPTED" in Path(files.key).read_bytes():
        return f"the password of {files.key} is wrong or missing"
    return f"the file, or its private key {files.key}, is not in PEM form ({error.reason or error})"


def _apply_rules(context: ssl.SSLContext, rules: TlsRules) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if rules.protocols:
        versions = [_VERSIONS[name] for name in rules.protocols]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
    if not rules.ciphers:
        return
    unknown = [name for name in rules.ciphers if name not in _SUITES and name not in _SUITES_13]
    if unknown:
        raise SettingError(f"tls.ciphers: {unknown[0]} is not supported; choose among {', '.join(sorted(_SUITES))}")
    older = [_SUITES[name] for name in rules.ciphers if name in _SUITES]
    newer = _SUITES_13.intersection(rules.ciphers)
    if newer and newer != _SUITES_13:
        raise SettingError(f"tls.ciphers: name all suites of TLS 1.3 or none: {', '.join(sorted(_SUITES_13))}")
    if older:
        context.set_ciphers(":".join(older))
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def _load_self_signed(context: ssl.SSLContext) -> None:
    """Load a certificate that exists only as long as this process."""
    from tempfile import TemporaryDirectory

    from orbitlog.remoting.tls.development_certificates import write_self_signed

    with TemporaryDirectory(prefix="orbitlog-tls-") as directory:
        files = write_self_signed(Path(directory))
        load_certificate(context, files, keys.TEST_MODE.key)
