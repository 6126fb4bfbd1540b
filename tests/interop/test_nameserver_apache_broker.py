"""A real Apache broker registers with our name server and with Apache's, and Apache's tools see the same at both."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.harness.cluster import (
    BROKER_NAME,
    CLUSTER_NAME,
    Cluster,
    Ports,
    broker_table,
    server_command,
    start_broker,
    start_name_server,
)
from tests.interop.harness.our_name_server import start_ours
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import ServerProcess, java_command

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("nameserver")]

HOST = "127.0.0.1"
TOPIC = "Routed"
ADMIN_SECONDS_MAX = 120


@dataclass
class TwoNameServers:
    """A broker of Apache's that registered with both."""

    packages: ApachePackages
    directory: Path
    ours: int
    theirs: int
    broker: ServerProcess
    cluster: Cluster

    def admin(self, port: int, *words: str, serialization: str = "JSON") -> str:
        """Run an `mqadmin` command at one of the name servers; what it prints, without what differs by nature."""
        home = self.directory / "admin"
        quiet = home / "conf" / "logback_tools.xml"  # 4.9 does nothing without it
        quiet.parent.mkdir(parents=True, exist_ok=True)
        quiet.write_text("<configuration/>")
        serialize = f"-Drocketmq.serialize.type={serialization}"
        java = java_command(self.packages, home, options=[f"-Drmq.logback.configurationFile={quiet}", serialize])
        command = [*java, "org.apache.rocketmq.tools.command.MQAdminStartup", *words, "-n", f"{HOST}:{port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ADMIN_SECONDS_MAX, check=False)
        text = (done.stdout + done.stderr).replace(str(port), "PORT")
        return "\n".join(line.rstrip() for line in text.splitlines() if line.strip() and not _NOISE.search(line))


_NOISE = re.compile(r"RocketMQLog|SLF4J|log4j|WARN|\|-INFO")


# Brokers that ask before they register whether that is needed; 5.5.0 cannot compress so that Apache's server reads it.
ASKING = {"forceRegister": "false"}
SPARING = {"compressedRegister": "true", **ASKING}


@pytest.fixture(scope="module", params=[("4.9.7", SPARING), ("5.5.0", ASKING)], ids=["4.9.7", "5.5.0"])
def both(
    request: pytest.FixtureRequest,
    packages_of: Callable[[str], ApachePackages],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TwoNameServers]:
    version, settings = request.param
    packages = packages_of(version)
    directory = tmp_path_factory.mktemp(f"nameserver-{version}")
    ours, theirs = Ports.find(), Ports.find()
    command = server_command(packages, directory)
    started: list[ServerProcess] = []
    try:
        our_server = start_ours(directory, ours.name_server)
        started.append(our_server)
        started.append(start_name_server(command, directory, theirs.name_server))
        addresses = f"{HOST}:{ours.name_server};{HOST}:{theirs.name_server}"
        settings = {"namesrvAddr": addresses, **settings}
        broker = start_broker(command, directory, ours, directory / "store", settings)
        started.append(broker)
        broker.wait_until(lambda: BROKER_NAME in (broker_table(theirs.name_server) or {}), 60)
        cluster = Cluster(packages, directory, ours, our_server, broker)
        yield TwoNameServers(packages, directory, ours.name_server, theirs.name_server, broker, cluster)
    finally:
        for server in started:
            server.kill()


def test_tools_print_the_same_at_both(both: TwoNameServers) -> None:
    made = both.admin(both.ours, "updateTopic", "-c", CLUSTER_NAME, "-t", TOPIC, "-r", "6", "-w", "5", "-p", "6")
    assert f"create topic to {HOST}:{both.cluster.ports.broker} success" in made
    for words in (
        ("topicList",),
        ("topicRoute", "-t", TOPIC),
        ("topicRoute", "-t", "NobodyMadeThis"),
        ("topicClusterList", "-t", TOPIC),
        ("clusterList",),
        ("topicStatus", "-t", TOPIC),
    ):
        ours, theirs = (_steady(both.admin(port, *words)) for port in (both.ours, both.theirs))
        assert ours == theirs, f"mqadmin {' '.join(words)}"
        assert ours, f"mqadmin {' '.join(words)} printed nothing"


def _steady(text: str) -> str:
    """Leave out load figures, ages and the order of topics, which no two runs share."""
    lines = [re.sub(r"\s+[0-9.]+\([^)]*\).*$", "", line) for line in text.splitlines()]
    kept = [line for line in lines if not line.lstrip().startswith(("at ", "For more information", "See http"))]
    return "\n".join(sorted(kept))


def test_the_binary_serialization_is_served_in_kind(both: TwoNameServers) -> None:
    route = both.admin(both.ours, "topicRoute", "-t", TOPIC, serialization="ROCKETMQ")
    assert f'"brokerName":"{BROKER_NAME}"' in route


def test_permissions_are_wiped_and_given_back(both: TwoNameServers) -> None:
    for port in (both.ours, both.theirs):
        wiped = both.admin(port, "wipeWritePerm", "-b", BROKER_NAME)
        assert f"wipe write perm of broker[{BROKER_NAME}] in name server[{HOST}:PORT] OK" in wiped
        assert '"perm":4' in both.admin(port, "topicRoute", "-t", TOPIC)
        both.admin(port, "addWritePerm", "-b", BROKER_NAME)
        assert '"perm":6' in both.admin(port, "topicRoute", "-t", TOPIC)


def test_settings_do_not_come_from_the_network(both: TwoNameServers) -> None:
    refused = both.admin(both.ours, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    shown = both.admin(both.ours, "getNamesrvConfig")
    assert "update name server config success" not in refused
    assert re.search(r"orderMessageEnable\s*=\s*true", shown)


def test_a_java_client_sends_by_our_route(both: TwoNameServers) -> None:
    sent = both.cluster.send("ByOurRoute")
    assert sent and all(answer["answer"] == "sent" for answer in sent)


def test_an_ordered_topic_keeps_its_layout(both: TwoNameServers) -> None:
    both.admin(both.ours, "updateTopic", "-c", CLUSTER_NAME, "-t", "Ordered", "-o", "true")
    route = both.admin(both.ours, "topicRoute", "-t", "Ordered")
    assert f'"orderTopicConf":"{BROKER_NAME}:' in route


def test_deleted_topics_and_dead_brokers_are_gone_at_once(both: TwoNameServers) -> None:
    both.admin(both.ours, "deleteTopic", "-c", CLUSTER_NAME, "-t", TOPIC)
    assert TOPIC not in both.admin(both.ours, "topicList").splitlines()
    both.broker.kill()
    both.cluster.name_server.wait_until(lambda: broker_table(both.ours) == {}, 5)
