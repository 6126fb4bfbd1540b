"""TLS sessions in memory: handshakes, records in any pieces, the end, damaged bytes."""

from __future__ import annotations

import re
import ssl

import pytest

from orbitlog.remoting.tls.tls_failures import describe_failure
from orbitlog.remoting.tls.tls_session import TlsSession
from orbitlog.settings.tls_options import TlsFiles, TlsRules
from tests.support.certificates import (
    client_files,
    elsewhere_server_files,
    expired_server_files,
    other_ca,
    server_tls,
    shared_ca,
    strange_client_files,
    trusting,
)

AUTHENTICATED = {"client_authentication": "require"}


def pair(
    server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> tuple[TlsSession, TlsSession]:
    server = server or server_tls().context
    return TlsSession(server, server_side=True), TlsSession(client or trusting(), server_side=False, host=host)


def shake_hands(server: TlsSession, client: TlsSession) -> None:
    client.start()
    for _ in range(8):
        server.receive(client.take_output())
        client.receive(server.take_output())
    assert server.is_established and client.is_established


def with_authentication(files: TlsFiles | None = None) -> ssl.SSLContext:
    files = server_tls().options.files._replace(trust=str(shared_ca().certificate)) if files is None else files
    return server_tls(files, **AUTHENTICATED).context


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("size", [0, 1, 300, 16 * 1024, 16 * 1024 + 1, 1_000_000])
def test_bytes_arrive_as_they_were_sent(version: str, size: int) -> None:
    server, client = pair(client=trusting(rules=TlsRules((version,))))
    shake_hands(server, client)
    assert server.tls.version() == version
    sent = bytes(index % 251 for index in range(size))
    assert server.receive(client.encrypt(sent)) == sent if size else True
    assert client.receive(server.encrypt(sent)) == sent if size else True


def test_bytes_in_any_pieces_are_the_same() -> None:
    server, client = pair()
    client.start()
    for sender, receiver in ((client, server), (server, client), (client, server), (server, client)):
        for byte in sender.take_output():
            receiver.receive(bytes((byte,)))
    records = client.encrypt(b"one") + client.encrypt(b"two" * 7_000)
    received = b"".join(server.receive(records[start : start + 977]) for start in range(0, len(records), 977))
    assert received == b"one" + b"two" * 7_000


def test_end_is_announced_and_noticed() -> None:
    server, client = pair()
    shake_hands(server, client)
    assert server.receive(client.encrypt(b"last") + client.end()) == b"last"
    assert server.is_ended and not client.is_ended
    assert client.receive(server.encrypt(b"answer")) == b"answer"


@pytest.mark.parametrize(
    ("server", "client", "host", "reason"),
    [
        (lambda: server_tls(expired_server_files()).context, trusting, "127.0.0.1", "is expired"),
        (lambda: server_tls(elsewhere_server_files()).context, trusting, "127.0.0.1", "is for another host"),
        (lambda: server_tls(elsewhere_server_files()).context, trusting, "localhost", "is for another host"),
        (lambda: server_tls().context, ssl.create_default_context, "localhost", "CA of the peer's .* is not trusted"),
        (
            lambda: server_tls(is_test=True, files=TlsFiles()).context,
            trusting,
            "localhost",
            "self-signed and not trusted",
        ),
    ],
)
def test_wrong_certificate_is_refused_by_the_client(server, client, host: str, reason: str) -> None:  # type: ignore[no-untyped-def]
    serving, connecting = pair(server(), client(), host)
    with pytest.raises(ssl.SSLError) as caught:
        shake_hands(serving, connecting)
    assert re.search(reason, describe_failure(caught.value).sentence)


def test_client_certificate_is_verified_and_its_subject_known() -> None:
    server, client = pair(with_authentication(), trusting(client_files()))
    shake_hands(server, client)
    assert server.tls.getpeercert()["subject"] == ((("commonName", "alice"),),)  # type: ignore[index]


@pytest.mark.parametrize(
    ("files", "reason"), [(TlsFiles(), "sent no certificate"), (None, "CA of the peer's certificate is not trusted")]
)
def test_missing_or_strange_client_certificate_is_refused(files: TlsFiles | None, reason: str) -> None:
    server, client = pair(with_authentication(), trusting(strange_client_files() if files is None else files))
    with pytest.raises(ssl.SSLError) as caught:
        shake_hands(server, client)
    assert reason in describe_failure(caught.value).sentence
    with pytest.raises(ssl.SSLError) as answered:
        client.receive(server.take_output())
    assert "certificate" in describe_failure(answered.value).sentence


def test_old_version_is_refused() -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(shared_ca().certificate)
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    server, client = pair(client=old)
    with pytest.raises(ssl.SSLError) as caught:
        shake_hands(server, client)
    assert "TLS 1.2 or newer" in describe_failure(caught.value).sentence


def test_damaged_record_and_plain_bytes_fail() -> None:
    server, client = pair()
    shake_hands(server, client)
    record = bytearray(client.encrypt(b"one"))
    record[-1] ^= 1
    with pytest.raises(ssl.SSLError):
        server.receive(bytes(record))
    _, client = pair()
    client.start()
    with pytest.raises(ssl.SSLError) as caught:
        client.receive(b"\x00\x00\x00\x10plain bytes of a frame")
    assert describe_failure(caught.value).sentence == "the peer does not speak TLS"


def test_another_ca_issues_nothing_that_counts() -> None:
    server, client = pair(server_tls(other_ca().issue_server("server", ["localhost"])).context, host="localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client)
