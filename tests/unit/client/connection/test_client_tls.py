"""TLS of a client: what verifies by default, contradictions, files that are named in errors."""

from __future__ import annotations

import ssl

import pytest

import orbitlog
from orbitlog.client.connection.client_tls import tls_context
from orbitlog.errors import ClientError
from tests.support.certificates import client_files, shared_ca

PLAIN, SECURED = "rocketmq://h:1", "rocketmqs://h:1"


def test_choice_and_scheme_decide() -> None:
    given = ssl.create_default_context()
    assert tls_context(None, PLAIN) is None and tls_context(False, PLAIN) is None
    assert tls_context(given, PLAIN) is given
    for context in (tls_context(None, SECURED), tls_context(True, PLAIN), tls_context(orbitlog.Tls(), SECURED)):
        assert context is not None
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    with pytest.raises(ClientError, match="contradict"):
        tls_context(False, SECURED)


def test_insecure_verifies_nothing_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    assert orbitlog.Tls(insecure=True).context().verify_mode == ssl.CERT_NONE
    assert "are not verified" in caplog.text


@pytest.mark.parametrize(
    ("tls", "sentence"),
    [
        (lambda: orbitlog.Tls(ca_file="/missing.pem"), r"ca_file: /missing\.pem: no such file"),
        (lambda: orbitlog.Tls(cert_file=client_files().certificate), "must be given together"),
        (lambda: orbitlog.Tls(insecure=True, ca_file=shared_ca().certificate), "verifies nothing"),
        (
            lambda: orbitlog.Tls(cert_file=client_files().certificate, key_file=__file__),
            r"cert_file=.*client\.pem: the file, or its private key .* is not in PEM form",
        ),
    ],
)
def test_unusable_choice_is_refused_at_once(tls, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ClientError, match=sentence):
        orbitlog.connect(PLAIN, tls=tls())


def test_password_is_not_shown() -> None:
    assert "hidden" not in repr(orbitlog.Tls(key_password="hidden"))
