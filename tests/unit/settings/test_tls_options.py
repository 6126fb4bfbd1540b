"""TLS options: Java's keys and file, defaults that verify, and contradictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.settings.setting import SettingError
from orbitlog.settings.tls_options import TlsFiles, TlsOptions, tls_options
from orbitlog.settings.tls_settings import TLS_SETTINGS

CERTIFICATE = {"tls.server.certPath": "/c.pem", "tls.server.keyPath": "/k.pem"}


def options_of(texts: dict[str, str]) -> TlsOptions:
    return tls_options(texts, "/does/not/exist")


def test_options_without_settings_are_off() -> None:
    assert options_of({"brokerName": "broker-a"}) == TlsOptions()


@pytest.mark.parametrize(
    ("texts", "mode"),
    [
        (CERTIFICATE, "permissive"),
        ({"tls.test.mode.enable": "true"}, "permissive"),
        ({**CERTIFICATE, "tls.server.mode": "ENFORCING"}, "enforcing"),
        ({**CERTIFICATE, "tls.server.mode": "disabled"}, "disabled"),
        ({"tls.server.mode": "disabled"}, "disabled"),
        ({"tls.enable": "true"}, "disabled"),
    ],
)
def test_options_mode_follows_from_mode_and_certificate(texts: dict[str, str], mode: str) -> None:
    assert options_of(texts).server.mode == mode


@pytest.mark.parametrize(
    ("texts", "is_on"),
    [
        (CERTIFICATE, False),
        ({**CERTIFICATE, "tls.server.mode": "enforcing"}, True),
        ({**CERTIFICATE, "tls.server.mode": "enforcing", "tls.enable": "false"}, False),
        ({"tls.enable": "true"}, True),
        ({"useTLS": "true"}, True),
    ],
)
def test_options_server_connects_with_tls_if_asked_or_enforcing(texts: dict[str, str], is_on: bool) -> None:
    client = options_of(texts).client
    assert (client.is_on, client.verifies, client.checks_host) == (is_on, True, True)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"tls.server.mode": "enforcing"}, "needs tls.server.certPath"),
        ({"tls.server.mode": "permissive"}, "needs tls.server.certPath"),
        ({"tls.server.certPath": "/c"}, "tls.server.keyPath is missing"),
        ({"tls.server.keyPath": "/k"}, "tls.server.certPath is missing"),
        ({"tls.client.keyPath": "/k"}, "tls.client.certPath is missing"),
        ({**CERTIFICATE, "tls.test.mode.enable": "true"}, "contradict each other"),
        ({"tls.enable": "true", "useTLS": "false"}, "contradict each other"),
        ({**CERTIFICATE, "tls.server.need.client.auth": "require"}, "needs tls.server.trustCertPath"),
        ({**CERTIFICATE, "tls.server.authClient": "true"}, "verifies nothing"),
        ({**CERTIFICATE, "tlsPrincipalFrom": "san"}, "needs client certificates"),
        ({"tls.config.file": "/does/not/exist"}, "no such file"),
    ],
)
def test_options_that_would_not_protect_are_refused(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        options_of(texts)


def test_options_of_javas_file_and_of_settings_are_united(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text(
        "tls.test.mode.enable=false\ntls.server.mode=enforcing\ntls.server.certPath=/c.pem\ntls.server.keyPath=/k.pem\n"
        "tls.server.keyPassword=hidden\ntls.server.need.client.auth=REQUIRE\ntls.server.authClient=true\n"
        "tls.server.trustCertPath=/ca.pem\ntls.client.authServer=false\n"
    )
    options = options_of(
        {"tls.config.file": str(path), "tlsPrincipalFrom": "subjectCN", "tls.server.mode": "enforcing"}
    )
    server, client = options
    assert server.files == TlsFiles("/c.pem", "/k.pem", "hidden", "/ca.pem")
    assert (server.mode, server.client_authentication, server.principal_from) == ("enforcing", "require", "subjectCN")
    assert server.notices == ()
    assert (client.is_on, client.verifies) == (True, False)
    assert "hidden" not in repr(options)
    assert tls_options({}, str(path)).server.mode == "enforcing"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("tls.server.mode=strict", r"tls.server.mode=strict from .*tls.properties: 'strict' is not one of disabled"),
        ("tls.server.certificate=/c", "unknown key of tls.properties"),
        ("tls.server.mode=disabled", "has one value in .* and another in"),
        ("tls.protocols=TLSv1", "neither TLSv1.2 nor TLSv1.3"),
    ],
)
def test_options_of_an_invalid_file_are_refused(line: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text(line + "\n")
    with pytest.raises(SettingError, match=sentence):
        options_of({**CERTIFICATE, "tls.server.mode": "enforcing", "tls.config.file": str(path)})


def test_options_that_ask_for_certificates_always_verify_them() -> None:
    texts = {**CERTIFICATE, "tls.server.need.client.auth": "optional", "tls.server.trustCertPath": "/ca.pem"}
    [notice] = options_of(texts).server.notices
    assert "are verified" in notice


def test_defaults_of_settings_can_be_given_as_texts() -> None:
    texts = {key: str(setting.default).lower() for key, setting in TLS_SETTINGS.items()}
    assert options_of(texts) == TlsOptions()


def test_options_aliases_stand_for_the_keys_of_java(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in CERTIFICATE.items()))
    java = {"tls.server.mode": "enforcing", "tls.config.file": str(path)}
    own = {"tlsMode": "enforcing", "tlsConfigFile": str(path)}
    assert options_of(own) == options_of(java) == options_of({**java, **own})
    assert options_of(own).server.is_enforcing


@pytest.mark.parametrize(
    "texts", [{"tlsMode": "enforcing", "tls.server.mode": "disabled"}, {"tlsConfigFile": "/a", "tls.config.file": "/b"}]
)
def test_options_alias_that_contradicts_its_key_is_refused(texts: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="contradict each other; remove one of them"):
        options_of({**CERTIFICATE, **texts})


def test_options_alias_in_a_file_of_java_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tlsMode=enforcing\n")
    with pytest.raises(SettingError, match=r"unknown key of tls\.properties"):
        options_of({"tls.config.file": str(path)})
