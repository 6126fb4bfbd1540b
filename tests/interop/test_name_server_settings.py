"""Settings that change behaviour and concern name servers, of broker and name server, tried at both implementations."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import create_server, socket

import pytest

from orbitlog.nameserver import namesrv_keys
from orbitlog.settings.setting_classes import BEHAVIOUR
from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.interop.harness.cluster import (
    BROKER_NAME,
    CLUSTER_NAME,
    STEADY,
    Ports,
    broker_table,
    server_command,
    start_name_server,
)
from tests.interop.harness.our_name_server import start_ours
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess
from tests.interop.harness.raw_pops import ask_broker
from tests.interop.harness.socks_proxy import SocksProxy
from tests.interop.harness.systems import OrbitlogSystem, start_orbitlog
from tests.support.raw_peer import RawPeer

pytestmark = pytest.mark.interop

VERSION = "5.5.0"
HOST, OTHER_HOST, HOST_NAME = "127.0.0.1", "127.0.0.2", "names.test"
REGISTERED_SECONDS_MAX = 90  # Java's broker asks an address server after ten seconds, and registers every thirty
SETTLE_SECONDS = 5
WAIT_SECONDS = 30
TOPIC = "TBW102"  # every broker has it
RUN = "from orbitlog.cli.main import main; main()"

Apache = Callable[[str], ApachePackages]


def apache_broker(
    packages: ApachePackages, directory: Path, settings: Mapping[str, object], *, options: Sequence[str] = ()
) -> ServerProcess:
    """Start Apache's broker, without waiting for it, with these settings alone and no name server of its own."""
    directory.mkdir(exist_ok=True)
    store, ports = directory / "store", Ports.find()
    given = {**STEADY, "listenPort": ports.broker, "bindAddress": HOST, "storePathRootDir": store, **settings}
    conf = directory / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    java, *words = server_command(packages, directory)
    command = [java, *options, *words, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(conf)]
    return ServerProcess("broker", command, directory / "broker.log")


# Answers for some names, as a line in the hosts file of the machine would.
RESOLVING = """
import socket
names, resolve = {names!r}, socket.getaddrinfo
def answer(host, port, *words, **more):
    return [one for each in names.get(host, [host]) for one in resolve(each, port, *words, **more)]
socket.getaddrinfo = answer
"""


def resolving_broker(directory: Path, settings: Mapping[str, object], names: Mapping[str, list[str]]) -> ServerProcess:
    """Start Orbitlog's broker, without waiting for it, with host names of its own."""
    directory.mkdir()
    words = [word for key, value in {"listenPort": 0, **settings}.items() for word in ("--set", f"{key}={value}")]
    named = ["--set", f"brokerName={BROKER_NAME}", "--store", str(directory / "store")]
    program = RESOLVING.format(names=dict(names)) + RUN
    return ServerProcess("broker", [sys.executable, "-c", program, "broker", *named, *words], directory / "broker.log")


def orbitlog_broker(directory: Path, settings: Mapping[str, object]) -> ServerProcess:
    words = [word for key, value in {"listenPort": 0, **settings}.items() for word in ("--set", f"{key}={value}")]
    names = ["--set", f"brokerName={BROKER_NAME}", "--set", f"brokerClusterName={CLUSTER_NAME}"]
    return start_orbitlog(directory, ["--store", str(directory / "store"), *names, *words], command="broker")[0]


def is_registered(port: int, host: str = HOST) -> bool:
    return BROKER_NAME.encode() in ask_broker(f"{host}:{port}", RequestCode.GET_BROKER_CLUSTER_INFO, {}).body


def stated(directory: Path, command: str) -> str:
    return (directory / f"orbitlog-{command}.log").read_text()


def through(proxy: SocksProxy) -> dict[str, object]:
    """Settings with which a Java server connects through a proxy; with buffers of 0 bytes its connections fail."""
    everywhere = json.dumps({"0.0.0.0/0": {"addr": proxy.address}}, separators=(",", ":"))
    return {"socksProxyConfig": everywhere, "clientSocketSndBufSize": 65_535, "clientSocketRcvBufSize": 65_535}


@contextmanager
def ended(*servers: ServerProcess) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.kill()


class AddressServer(HTTPServer):
    """Answers every request with the address of a name server."""

    def __init__(self, answer: str) -> None:
        super().__init__((HOST, 0), _Answer)
        self.answer = answer
        self.paths: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server_address[1]}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Answer(BaseHTTPRequestHandler):
    server: AddressServer

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.answer.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


# Brokers


@pytest.mark.parametrize("is_named", [False, True], ids=["without namesrvAddr", "with namesrvAddr"])
def test_java_broker_asks_an_address_server_only_without_other_name_servers(
    is_named: bool, tmp_path: Path, packages_of: Apache
) -> None:
    packages, port = packages_of(VERSION), Ports.find().name_server
    name_server = start_name_server(server_command(packages, tmp_path), tmp_path, port)
    addresses = AddressServer(f"{HOST}:{port}")
    settings: dict[str, object] = {"fetchNamesrvAddrByAddressServer": "true"}
    settings["rmqAddressServerDomain"] = addresses.address
    if is_named:
        settings["namesrvAddr"] = f"{HOST}:{port}"
    with ended(name_server, apache_broker(packages, tmp_path / "java", settings)):
        name_server.wait_until(lambda: is_registered(port), REGISTERED_SECONDS_MAX)
        time.sleep(3 * SETTLE_SECONDS if is_named else 0)
        assert set(addresses.paths) == (set() if is_named else {"/rocketmq/nsaddr"})
    addresses.close()


def test_orbitlog_broker_asks_no_address_server(tmp_path: Path) -> None:
    addresses = AddressServer("127.0.0.1:1")
    settings = {"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": addresses.address}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-c", RUN, "broker", "--port", "0", "--store", str(tmp_path / "store"), *words]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2 and "address servers are not supported" in refused.stderr
    port = Ports.find().name_server
    name_server = start_ours(tmp_path, port)
    with ended(name_server, orbitlog_broker(tmp_path / "ours", {**settings, "namesrvAddr": f"{HOST}:{port}"})):
        name_server.wait_until(lambda: is_registered(port), REGISTERED_SECONDS_MAX)
    assert addresses.paths == []
    assert BEHAVIOUR["fetchNamesrvAddrByAddressServer"] in stated(tmp_path / "ours", "broker")
    addresses.close()


def test_only_java_broker_reaches_name_servers_through_a_proxy(tmp_path: Path, packages_of: Apache) -> None:
    packages, port = packages_of(VERSION), Ports.find().name_server
    with SocksProxy() as proxy, ended(name_server := start_ours(tmp_path, port)):
        settings = {**through(proxy), "namesrvAddr": f"{HOST}:{port}"}
        with ended(orbitlog_broker(tmp_path / "ours", settings)):
            name_server.wait_until(lambda: is_registered(port), REGISTERED_SECONDS_MAX)
            assert proxy.targets == []
        name_server.wait_until(lambda: not is_registered(port), REGISTERED_SECONDS_MAX)
        with ended(apache_broker(packages, tmp_path / "java", settings)):
            name_server.wait_until(lambda: is_registered(port), REGISTERED_SECONDS_MAX)
            assert f"{HOST}:{port}" in proxy.targets
    assert BEHAVIOUR["socksProxyConfig"] in stated(tmp_path / "ours", "broker")


def test_both_brokers_register_with_all_name_servers_that_share_a_name(tmp_path: Path, packages_of: Apache) -> None:
    packages, port = packages_of(VERSION), Ports.find().name_server
    first = start_ours(tmp_path, port)
    words = [sys.executable, "-c", RUN, "nameserver", "--host", OTHER_HOST, "--port", str(port)]
    second = ServerProcess("other name server", [*words, "--set", "allowAnonymous=true"], tmp_path / "other.log")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{HOST} {HOST_NAME}\n{OTHER_HOST} {HOST_NAME}\n")
    settings = {"fetchNameSrvAddrByDnsLookup": "true", "namesrvAddr": f"{HOST_NAME}:{port}"}

    def is_at_both() -> bool:
        return is_registered(port) and is_registered(port, OTHER_HOST)

    with ended(first, second):
        java = apache_broker(packages, tmp_path / "java", settings, options=[f"-Djdk.net.hosts.file={hosts}"])
        with ended(java):
            second.wait_until(is_at_both, REGISTERED_SECONDS_MAX)
        second.wait_until(lambda: not is_registered(port) and not is_registered(port, OTHER_HOST), SETTLE_SECONDS)
        with ended(resolving_broker(tmp_path / "ours", settings, {HOST_NAME: [HOST, OTHER_HOST]})):
            second.wait_until(is_at_both, REGISTERED_SECONDS_MAX)


# Name servers


def java_name_server(
    packages: ApachePackages, directory: Path, port: int, settings: Mapping[str, object]
) -> ServerProcess:
    directory.mkdir(exist_ok=True)
    conf = directory / "namesrv.conf"
    given = {"listenPort": port, "bindAddress": HOST, **settings}
    conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    words = ["org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf)]
    server = ServerProcess("name server", [*server_command(packages, directory), *words], directory / "namesrv.log")
    server.wait_until(lambda: broker_table(port) is not None, REGISTERED_SECONDS_MAX)
    return server


def orbitlog_name_server(directory: Path, settings: Mapping[str, object]) -> tuple[ServerProcess, int]:
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    server, ready = start_orbitlog(directory, ["--port", "0", *words], command="nameserver")
    return server, int(ready["name-server"].rpartition(":")[2])


@contextmanager
def both_name_servers(
    packages: ApachePackages, directory: Path, settings: Mapping[str, object]
) -> Iterator[tuple[int, int]]:
    """Start Apache's name server and Orbitlog's; yield their ports."""
    port = Ports.find().name_server
    with ended(java_name_server(packages, directory / "java", port, settings)):
        ours, our_port = orbitlog_name_server(directory / "ours", settings)
        with ended(ours):
            yield port, our_port
    for key in namesrv_keys.BEHAVIOUR.keys() & settings.keys():
        assert namesrv_keys.BEHAVIOUR[key] in stated(directory / "ours", "nameserver")


def test_every_key_of_a_name_server_that_changes_behaviour_is_tried() -> None:
    assert namesrv_keys.BEHAVIOUR.keys() == {"clusterTest", "notifyMinBrokerIdChanged", "socksProxyConfig"}


def route_code(port: int, topic: str = TOPIC) -> int:
    return ask_broker(f"{HOST}:{port}", RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code


def test_only_java_name_server_asks_another_one(
    tmp_path: Path, packages_of: Apache, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = OrbitlogSystem(tmp_path / "product", tmp_path / "product/store", {})
    product.start()
    try:
        monkeypatch.setenv("NAMESRV_ADDR", product.name_server_address)
        with both_name_servers(packages_of(VERSION), tmp_path, {"clusterTest": "true"}) as (java, ours):
            assert (route_code(java), route_code(ours)) == (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
    finally:
        product.kill()


def test_both_name_servers_keep_routes_back_after_their_start(tmp_path: Path, packages_of: Apache) -> None:
    settings = {"needWaitForService": "true", "waitSecondsForService": WAIT_SECONDS}
    with both_name_servers(packages_of(VERSION), tmp_path, settings) as ports:
        addresses = ";".join(f"{HOST}:{port}" for port in ports)
        with ended(orbitlog_broker(tmp_path / "broker", {"namesrvAddr": addresses})):
            deadline = time.monotonic() + WAIT_SECONDS
            while not all(map(is_registered, ports)) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert tuple(map(route_code, ports)) == (ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_ERROR)
            time.sleep(max(deadline - time.monotonic(), 0))
            assert tuple(map(route_code, ports)) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)


def test_only_java_name_server_notifies_brokers_and_uses_a_proxy_for_that(tmp_path: Path, packages_of: Apache) -> None:
    """A slave is registered, then its master: the lowest broker id of the group has changed."""
    with SocksProxy() as proxy, create_server((HOST, 0)) as slave:
        settings = {"notifyMinBrokerIdChanged": "true", **through(proxy)}
        with both_name_servers(packages_of(VERSION), tmp_path, settings) as ports:
            assert [notified(slave, port) for port in ports] == [True, False]
        assert f"{HOST}:{slave.getsockname()[1]}" in proxy.targets


def notified(slave: socket, port: int) -> bool:
    """Register a slave at a listening socket, and its master; return whether the slave is notified."""
    version = {"counter": 1, "timestamp": 1, "stateVersion": 0}
    topics = {"topicConfigTable": {}, "dataVersion": version}
    body = json.dumps({"topicConfigSerializeWrapper": topics, "filterServerList": []}).encode()
    slave.settimeout(SETTLE_SECONDS)
    slave_port = slave.getsockname()[1]
    with RawPeer(f"{HOST}:{port}") as first, RawPeer(f"{HOST}:{port}") as second:
        for peer, number, address in ((first, 1, f"{HOST}:{slave_port}"), (second, 0, f"{HOST}:1")):
            fields = {"brokerName": BROKER_NAME, "clusterName": CLUSTER_NAME, "brokerAddr": address}
            fields |= {"brokerId": str(number), "haServerAddr": address, "compressed": "false", "bodyCrc32": "0"}
            assert peer.ask(RequestCode.REGISTER_BROKER, fields, body).code == ResponseCode.SUCCESS
        try:
            connection, _ = slave.accept()
        except TimeoutError:
            return False
        with connection:
            connection.settimeout(SETTLE_SECONDS)
            return str(int(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE)).encode() in connection.recv(4096)
