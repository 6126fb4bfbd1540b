"""Compose file and chart as processes on loopback: their commands and settings make a cluster that works.

Only addresses, ports and directories are replaced. `make image` and `make chart` run it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import orbitlog
from orbitlog.errors import OrbitlogError
from orbitlog.replication.group.coordinator import open_coordinator
from tests.support.certificates import shared_ca
from tests.support.etcd_servers import EtcdServers
from tests.support.serving_process import PROGRAM

pytestmark = pytest.mark.interop

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS_MAX = 90
PASSWORD = "only-for-this-test"


@contextmanager
def server(
    words: Sequence[str], log: Path, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A server process and its ready line."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORBITLOG_", "NAMESRV"))}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*PROGRAM, *words, "--json"], env={**kept, **environment}, stdout=subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()[-3000:]
        yield process, json.loads(line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# Compose: the network 172.30.76.0/24 becomes 127.30.76.0/24


def on_loopback(text: str, service: str, directory: Path, etcd: str) -> str:
    services = PROJECT["services"]
    own = services[service]["networks"]["cluster"]["ipv4_address"]
    name_server = services["nameserver"]["networks"]["cluster"]["ipv4_address"]
    for found, wanted in (
        ("http://etcd:2379", etcd),
        ("nameserver:9876", f"{name_server}:9876"),
        ("172.30.76.0/24", "127.0.0.0/8"),  # all processes of this machine connect from 127.0.0.1
        ("0.0.0.0", own),
        ("/var/lib/orbitlog", str(directory / service)),
    ):
        text = text.replace(found, wanted)
    return text.replace("172.30.76.", "127.30.76.")


PROJECT: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose" / "docker-compose.yml").read_text())


def started(name: str, directory: Path, etcd: str) -> Any:
    service = PROJECT["services"][name]
    words = [on_loopback(word, name, directory, etcd) for word in service["command"]]
    environment = {key: on_loopback(text, name, directory, etcd) for key, text in service["environment"].items()}
    (directory / name).mkdir()
    return server(words, directory / f"{name}.log", **environment)


def test_compose_cluster_survives_its_master(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    etcd = EtcdServers(tmp_path / "etcd", 1)
    with ExitStack() as running:
        running.callback(etcd.close)
        running.enter_context(started("nameserver", tmp_path, etcd.endpoints[0]))
        brokers = {
            ready["broker"]: process
            for process, ready in [
                running.enter_context(started(f"broker-{number}", tmp_path, etcd.endpoints[0])) for number in (1, 2, 3)
            ]
        }
        address = "rocketmq://127.30.76.10:9876"
        sent = [send_until_taken(address, f"order {number}") for number in range(5)]
        wait_until_all_are_in_sync(f"etcd:{etcd.endpoints[0]}")
        with orbitlog.connect(address) as mq:
            master = mq.admin.brokers()["broker-a"]
        brokers[master].kill()
        sent.append(send_until_taken(address, "order after the failure"))
        with orbitlog.connect(address) as mq, mq.consume("Orders", group="g", start_from="first") as consumer:
            seen = set()
            while len(seen) < 6 and (message := consumer.next(SECONDS_MAX)) is not None:
                seen.add(message.text)
                message.ack()
        assert seen >= {*(f"order {number}" for number in range(5)), "order after the failure"}


def wait_until_all_are_in_sync(coordinator: str) -> None:
    """Wait until a failure of one member loses nothing."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        state = asyncio.run(open_coordinator(coordinator, "DefaultCluster", "broker-a", 0).read()).state
        if state is not None and len(state.in_sync) == 3:
            return
        time.sleep(0.1)
    raise AssertionError(f"the members are not in sync: {state}")


def send_until_taken(address: str, text: str) -> str:
    """Send until a master accepts it; return its id."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            with orbitlog.connect(address) as mq:
                return mq.send("Orders", text, timeout=5).message_id
        except OrbitlogError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


# Chart: access control and TLS from the mounted secrets


def secured_pods() -> Mapping[str, Any]:
    documents = yaml.safe_load_all((ROOT / "deploy/helm/tests/golden/secured.yaml").read_text())
    return {f"{document['kind']} {document['metadata']['name']}": document for document in documents if document}


def write_secrets(directory: Path) -> None:
    """Write what docs/kubernetes.md puts into the two secrets, as Kubernetes mounts them: readable by the group."""
    access, tls = directory / "access", directory / "tls"
    tls.mkdir(parents=True)
    access.mkdir()
    for name in ("ann", "inner"):
        words = ["access", "user", "add", name, "--super", "--password-stdin", "--file", str(access / "access.json")]
        subprocess.run([*PROGRAM, *words], input=PASSWORD, text=True, check=True, capture_output=True)
    (access / "access.json").chmod(0o440)
    issued = shared_ca().issue_server("chart", ["127.0.0.1"])
    for name, source in (("tls.crt", issued.certificate), ("tls.key", issued.key), ("ca.crt", issued.trust)):
        (tls / name).write_bytes(Path(source).read_bytes())
        (tls / name).chmod(0o440)


def test_secured_chart_serves_signed_clients_with_tls_alone(tmp_path: Path) -> None:
    pods = secured_pods()
    mounted = tmp_path / "etc"
    write_secrets(tmp_path / "run")
    (mounted / "conf").mkdir(parents=True)
    (mounted / "secrets").mkdir()

    def local(text: str) -> str:
        for found, wanted in (
            ("/etc/orbitlog", str(mounted)),
            ("/run/", f"{tmp_path}/run/"),
            ("/var/lib/orbitlog", str(tmp_path / "data")),
            ("0.0.0.0", "127.0.0.1"),
        ):
            text = text.replace(found, wanted)
        return text

    def words(name: str) -> list[str]:
        (container,) = pods[f"StatefulSet {name}"]["spec"]["template"]["spec"]["containers"]
        return [*(local(word).replace("5557", "0") for word in container["args"]), "--port", "0"]

    for name in ("mq-orbitlog-nameserver", "mq-orbitlog-broker-a"):
        (init,) = pods[f"StatefulSet {name}"]["spec"]["template"]["spec"]["initContainers"]
        subprocess.run([local(word) for word in init["command"]], check=True)
    config = pods["ConfigMap mq-orbitlog"]["data"]
    (mounted / "conf" / "namesrv.conf").write_text(local(config["namesrv.conf"]))
    with ExitStack() as running:
        _, ready = running.enter_context(server(words("mq-orbitlog-nameserver"), tmp_path / "nameserver.log"))
        lines = [line for line in local(config["broker.conf"]).splitlines() if not line.startswith("namesrvAddr=")]
        lines.append(f"namesrvAddr={ready['name-server']}")
        (mounted / "conf" / "broker.conf").write_text("\n".join(lines) + "\n")
        inner = json.dumps({"accessKey": "inner", "secretKey": PASSWORD})
        running.enter_context(
            server(
                words("mq-orbitlog-broker-a"),
                tmp_path / "broker.log",
                ORBITLOG_SET_brokerName="broker-a",
                ORBITLOG_SET_brokerIP1="127.0.0.1",
                ORBITLOG_SET_innerClientAuthenticationCredentials=inner,
            )
        )
        address = f"rocketmq://{ready['name-server']}"
        tls = orbitlog.Tls(ca_file=mounted / "secrets" / "ca.crt")
        with orbitlog.connect(address, tls=tls, credentials=orbitlog.Credentials("ann", PASSWORD)) as mq:
            assert mq.send("Orders", "one", timeout=30).message_id
        with (
            pytest.raises(OrbitlogError),
            orbitlog.connect(address, tls=tls, credentials=orbitlog.Credentials("ann", "wrong")) as mq,
        ):
            mq.send("Orders", "two", timeout=10)
        with pytest.raises(OrbitlogError), orbitlog.connect(address) as mq:
            mq.send("Orders", "three", timeout=10)
