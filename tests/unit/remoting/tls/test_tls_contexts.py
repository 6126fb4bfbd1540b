"""TLS contexts: unusable files are named with what is wrong, versions and cipher suites of Java's names."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from orbitlog.remoting.tls.development_certificates import CertificateError
from orbitlog.remoting.tls.tls_contexts import client_context, server_context
from orbitlog.settings.setting import SettingError
from orbitlog.settings.tls_options import ClientTlsOptions, ServerTlsOptions, TlsFiles, TlsRules
from tests.support.certificates import client_files, server_files, server_tls, shared_ca


def encrypted_key(directory: Path, password: str) -> str:
    path = directory / "encrypted.key"
    words = ["openssl", "pkcs8", "-topk8", "-v2", "aes256", "-in", server_files().key, "-passout", f"pass:{password}"]
    subprocess.run([*words, "-out", str(path)], check=True, capture_output=True, timeout=60)
    return str(path)


def test_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    files = server_files()._replace(key=encrypted_key(tmp_path, "secret"))
    server_context(ServerTlsOptions("enforcing", files._replace(key_password="secret")))
    for password in ("wrong", ""):
        with pytest.raises(SettingError, match=r"the password of .*encrypted\.key is wrong or missing") as caught:
            server_context(ServerTlsOptions("enforcing", files._replace(key_password=password)))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            lambda: server_files()._replace(certificate="/missing.pem"),
            "tls.server.certPath: /missing.pem: no such file",
        ),
        (lambda: server_files()._replace(key="/missing.key"), "tls.server.certPath: /missing.key: no such file"),
        (lambda: server_files()._replace(key=client_files().key), "is that of another certificate"),
        (lambda: server_files()._replace(certificate=__file__), "is not in PEM form"),
        (lambda: server_files()._replace(trust=__file__), "tls.server.trustCertPath=.*contains no certificate"),
        (lambda: server_files()._replace(trust="/missing.pem"), "tls.server.trustCertPath: /missing.pem: no such"),
    ],
)
def test_unusable_file_is_named(files, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SettingError, match=sentence):
        server_context(ServerTlsOptions("enforcing", files(), client_authentication="require"))


def test_client_verifies_unless_switched_off() -> None:
    trust = TlsFiles(trust=str(shared_ca().certificate))
    context = client_context(ClientTlsOptions(True, trust))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    context = client_context(ClientTlsOptions(True, trust, checks_host=False))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    context = client_context(ClientTlsOptions(True, verifies=False))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_renegotiation_and_compression_are_off() -> None:
    options = server_tls().context.options
    assert options & ssl.OP_NO_RENEGOTIATION and options & ssl.OP_NO_COMPRESSION


@pytest.mark.parametrize(
    ("rules", "versions"),
    [
        (TlsRules(("TLSv1.3",)), ("TLSv1_3", "TLSv1_3")),
        (TlsRules(("TLSv1.2", "TLSv1.3")), ("TLSv1_2", "TLSv1_3")),
        (TlsRules(ciphers=("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)), ("TLSv1_2", "TLSv1_2")),
    ],
)
def test_versions_follow_protocols_and_ciphers(rules: TlsRules, versions: tuple[str, str]) -> None:
    context = server_context(ServerTlsOptions("enforcing", server_files(), rules=rules))
    assert (context.minimum_version.name, context.maximum_version.name) == versions


@pytest.mark.parametrize(
    ("suite", "sentence"),
    [("TLS_RSA_WITH_NULL_MD5", "is not supported"), ("TLS_AES_128_GCM_SHA256", "name all suites of TLS 1.3 or none")],
)
def test_unknown_cipher_suite_is_refused(suite: str, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        server_context(ServerTlsOptions("enforcing", server_files(), rules=TlsRules(ciphers=(suite,))))


def test_openssl_is_missing_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(CertificateError, match="the program `openssl` is needed"):
        server_context(ServerTlsOptions("permissive", is_test=True))
