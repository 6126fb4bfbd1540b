"""TLS: official Java clients and mqadmin at Orbitlog's ports, Orbitlog's client at Apache's, and how both fail.

Java's client with `tls.client.authServer=true` verifies the CA and dates of a server's certificate, never its host
name. A failed handshake shows there as a failed connection; the reason is in the server's log.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import orbitlog
from orbitlog.errors import ConnectionLost, HandshakeFailed
from orbitlog.settings.tls_options import TlsFiles
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Refused
from tests.interop.harness.matrix import start_driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import java_command, run_program
from tests.interop.harness.systems import APACHE_497, APACHE_550, ApacheSystem, OrbitlogSystem, System
from tests.support.certificates import (
    NO_FILES,
    client_files,
    elsewhere_server_files,
    expired_server_files,
    other_ca,
    server_files,
    shared_ca,
    strange_client_files,
)

pytestmark = pytest.mark.interop

VERSIONS = ("4.9.7", "5.5.0")
PackagesOf = Callable[[str], ApachePackages]


def properties(path: Path, texts: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={text}\n" for key, text in {"tls.test.mode.enable": "false", **texts}.items()))
    return path


def server_texts(files: TlsFiles, mode: str) -> dict[str, str]:
    return {
        "tls.server.mode": mode,
        "tls.server.certPath": files.certificate,
        "tls.server.keyPath": files.key,
        # The broker must register, whatever certificate the test gives it.
        "tls.client.authServer": "false",
    }


@contextmanager
def serving(tmp_path: Path, mode: str, files: TlsFiles | None = None, **more: str) -> Iterator[OrbitlogSystem]:
    texts = {
        **server_texts(files or server_files(), mode),
        **{key.replace("__", "."): text for key, text in more.items()},
    }
    system = OrbitlogSystem(tmp_path / "system", tmp_path / "system" / "store", texts)
    system.start()
    try:
        yield system
    finally:
        system.kill()


def java_options(tmp_path: Path, *, trust: Path | None = None, files: TlsFiles = NO_FILES) -> list[str]:
    texts = {"tls.client.authServer": "true", "tls.client.trustCertPath": str(trust or shared_ca().certificate)}
    if files.certificate:
        texts |= {"tls.client.certPath": files.certificate, "tls.client.keyPath": files.key}
    path = properties(tmp_path / "client" / "tls.properties", texts)
    return ["-Dtls.enable=true", f"-Dtls.config.file={path}"]


def java_client(
    packages: ApachePackages, tmp_path: Path, system: System, options: list[str]
) -> list[dict[str, object]]:
    command = java_command(packages, tmp_path / "client", options=options)
    words = [system.name_server_address, "key-of-none", "secret-of-none", "Orders", "billing", "20"]
    return run_program(command, "SignedClient", words)


def server_log(system: OrbitlogSystem) -> str:
    return (system.store / "logs" / "up.log").read_text()


def closings(system: OrbitlogSystem, reason: str) -> list[str]:
    """Wait for lines with this reason: Java's client may still be shutting down."""
    deadline = time.monotonic() + 10
    pattern = re.compile(r"closing 127\.0\.0\.1:\d+: .*")
    while True:
        lines = [line for line in pattern.findall(server_log(system)) if reason in line]
        if lines or time.monotonic() > deadline:
            assert "Traceback" not in server_log(system)
            return lines
        time.sleep(0.1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_java_client_sends_and_consumes_over_tls(
    mode: str, version: str, tmp_path: Path, packages_of: PackagesOf
) -> None:
    with serving(tmp_path, mode) as system:
        answers = java_client(packages_of(version), tmp_path, system, java_options(tmp_path))
        assert len(answers) == 2, answers
        sent, consumed = answers
        assert (sent["answer"], sent["count"]) == ("sent", 23)
        assert (consumed["answer"], consumed["complete"]) == ("consumed", True)
        (plain, *_) = java_client(packages_of(version), tmp_path, system, [])
        assert plain["answer"] == ("sent" if mode == "permissive" else "refused")
        if mode == "enforcing":
            assert closings(system, "plain connection to a port that serves TLS only")


@pytest.mark.parametrize("version", VERSIONS)
def test_java_client_in_its_test_mode_trusts_any_certificate(
    version: str, tmp_path: Path, packages_of: PackagesOf
) -> None:
    with serving(tmp_path, "enforcing") as system:
        (sent, *_) = java_client(packages_of(version), tmp_path, system, ["-Dtls.enable=true"])
        assert sent["answer"] == "sent"


@pytest.mark.parametrize("version", VERSIONS)
def test_java_client_needs_its_certificate_with_mutual_tls(
    version: str, tmp_path: Path, packages_of: PackagesOf
) -> None:
    trust = str(shared_ca().certificate)
    mutual = {"tls__server__need__client__auth": "require", "tls__server__trustCertPath": trust}
    # The broker shows a certificate as well when it registers.
    own = {"tls__client__certPath": client_files().certificate, "tls__client__keyPath": client_files().key}
    with serving(tmp_path, "enforcing", **mutual, **own) as system:
        for files, answer in ((client_files(), "sent"), (strange_client_files(), "refused"), (NO_FILES, "refused")):
            (first, *_) = java_client(packages_of(version), tmp_path, system, java_options(tmp_path, files=files))
            assert first["answer"] == answer
        assert closings(system, "is not trusted") and closings(system, "sent no certificate, and one is required")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wrong", ["untrusted", "expired"])
def test_java_client_refuses_a_wrong_certificate_and_the_server_names_the_reason(
    wrong: str, version: str, tmp_path: Path, packages_of: PackagesOf
) -> None:
    files = expired_server_files() if wrong == "expired" else server_files()
    trust = other_ca().certificate if wrong == "untrusted" else None
    with serving(tmp_path, "enforcing", files) as system:
        (first,) = java_client(packages_of(version), tmp_path, system, java_options(tmp_path, trust=trust))
        assert first["answer"] == "refused"
        assert closings(system, "the peer rejected the certificate of this end")


@pytest.mark.parametrize("version", VERSIONS)
def test_mqadmin_lists_the_cluster_over_tls(version: str, tmp_path: Path, packages_of: PackagesOf) -> None:
    with serving(tmp_path, "enforcing") as system:
        options = java_options(tmp_path)
        java = java_command(packages_of(version), tmp_path / "client", options=options)
        logging = tmp_path / "client" / "conf" / "logback_tools.xml"
        logging.parent.mkdir(parents=True)
        logging.write_text("<configuration/>")
        words = ["clusterList", "-n", system.name_server_address]
        tool = [*java, "org.apache.rocketmq.tools.command.MQAdminStartup", *words]
        theirs = subprocess.run(tool, capture_output=True, text=True, timeout=120)
        assert system.broker_address in theirs.stdout, theirs.stderr
        environment = {**os.environ, "JAVA_OPT_EXT": " ".join(options), "XDG_CONFIG_HOME": str(tmp_path)}
        program = str(Path(sys.executable).parent / "orbitlog")
        ours = subprocess.run(
            [program, "mqadmin", *words], capture_output=True, text=True, timeout=60, env=environment, check=True
        )
        assert system.broker_address in ours.stdout, ours.stderr


@pytest.mark.parametrize("kind", [APACHE_497, APACHE_550])
def test_orbitlog_client_at_apaches_servers(kind: str, tmp_path: Path, packages_of: PackagesOf) -> None:
    packages = packages_of(kind.removeprefix("apache-"))
    system = ApacheSystem(packages, tmp_path / kind, tmp_path / kind / "store", {})
    path = properties(tmp_path / "server.properties", server_texts(server_files(), "permissive"))
    java, *rest = system._command
    system._command = [java, f"-Dtls.config.file={path}", "-Dtls.server.mode=permissive", *rest]
    system.start()
    try:
        tls = orbitlog.Tls(ca_file=shared_ca().certificate)
        for choice in (tls, None):
            with orbitlog.connect(system.name_server_address, tls=choice) as mq:
                assert mq.send("Orders", "one").message_id
        with orbitlog.connect(system.name_server_address, tls=tls) as mq:
            with mq.consume("Orders", group="billing", start_from="first") as consumer:
                assert consumer.next(30).text == "one"
        with orbitlog.connect(system.name_server_address, tls=True) as mq:
            with pytest.raises(HandshakeFailed, match="CA of the peer's certificate is not trusted"):
                mq.send("Orders", "one")
    finally:
        system.kill()


@pytest.mark.parametrize(
    ("files", "reason"), [(expired_server_files, "is expired"), (elsewhere_server_files, "is for another host")]
)
def test_orbitlog_client_names_a_wrong_certificate(files: Callable[[], TlsFiles], reason: str, tmp_path: Path) -> None:
    with serving(tmp_path, "enforcing", files()) as system:
        with orbitlog.connect(system.name_server_address, tls=orbitlog.Tls(ca_file=shared_ca().certificate)) as mq:
            with pytest.raises(HandshakeFailed, match=reason):
                mq.send("Orders", "one")
        with orbitlog.connect(system.name_server_address) as mq:
            with pytest.raises(ConnectionLost, match="if it serves TLS only, connect with TLS"):
                mq.send("Orders", "one")
        assert closings(system, "rejected the certificate") and closings(system, "plain connection")


@contextmanager
def cpp_client(tmp_path: Path, name: str, system: System, packages_of: PackagesOf) -> Iterator[Client]:
    """Start a C++ client in a process of its own: all clients of a process share one TLS context."""
    driver = start_driver("cpp-tls", tmp_path / name, packages_of)
    try:
        client = Client(driver, system)
        yield client
        client.close()
    finally:
        driver.close()


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_cpp_client_sends_and_consumes_over_tls(mode: str, tmp_path: Path, packages_of: PackagesOf) -> None:
    trusted = {"tlsFile": cpp_file(tmp_path / "trusted.properties", shared_ca().certificate)}
    untrusted = {"tlsFile": cpp_file(tmp_path / "untrusted.properties", other_ca().certificate)}
    with serving(tmp_path, mode) as system:
        with cpp_client(tmp_path, "trusting", system, packages_of) as client:
            producer = client.producer(group="producers", **trusted)
            sent = client.send(producer, "Orders", count=20, body="one")
            assert {one["status"] for one in sent} == {"SEND_OK"}
            found = client.push("Orders", "billing", **trusted).wait_for(20)
            assert {one["body"] for one in found} == {f"one {number}" for number in range(20)}
        assert "Traceback" not in server_log(system)
        reasons = {"untrusting": "the peer rejected the certificate of this end"}
        if mode == "enforcing":
            reasons["plain"] = "plain connection to a port that serves TLS only"
        for name, reason in reasons.items():
            with cpp_client(tmp_path, name, system, packages_of) as client:
                with pytest.raises((Refused, AssertionError)):
                    producer = client.producer(group=name, **(untrusted if name == "untrusting" else {}))
                    sent = client.send(producer, "Orders", count=1, body="refused")
                    assert {one["status"] for one in sent} == {"SEND_OK"}
            assert closings(system, reason)


@contextmanager
def go_client(tmp_path: Path, system: System, packages_of: PackagesOf) -> Iterator[Client]:
    driver = start_driver("go-tls", tmp_path / "go", packages_of)
    try:
        client = Client(driver, system)
        yield client
        client.close()
    finally:
        driver.close()


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_go_client_sends_and_consumes_over_tls(mode: str, tmp_path: Path, packages_of: PackagesOf) -> None:
    """The client verifies no certificate: the name in that of the server is a wrong one here."""
    with (
        serving(tmp_path, mode, elsewhere_server_files()) as system,
        go_client(tmp_path, system, packages_of) as client,
    ):
        producer = client.producer(group="producers", tls="true")
        sent = client.send(producer, "Orders", count=20, body="one")
        assert {one["status"] for one in sent} == {"SEND_OK"}
        found = client.push("Orders", "billing", tls="true").wait_for(20)
        assert {one["body"] for one in found} == {f"one {number}" for number in range(20)}
        assert "Traceback" not in server_log(system)
        if mode == "enforcing":
            with pytest.raises((Refused, AssertionError)):
                producer = client.producer(group="plain")
                sent = client.send(producer, "Orders", count=1, body="refused")
                assert {one["status"] for one in sent} == {"SEND_OK"}
            assert closings(system, "plain connection to a port that serves TLS only")


def cpp_file(path: Path, trust: Path) -> str:
    """Return a file of the C++ client, which verifies the CA of servers, never their host name."""
    texts = {"tls.client.authServer": "true", "tls.client.trustCertPath": str(trust)}
    texts |= {"tls.client.certPath": client_files().certificate, "tls.client.keyPath": client_files().key}
    return str(properties(path, texts))
