"""A YARN of one resource manager and one node manager on loopback, from Apache's packages; files are local ones."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.interop.harness.packages import yarn_jars
from tests.interop.harness.processes import ServerProcess
from tests.support.free_ports import free_port

READY_SECONDS_MAX = 300
_SERVER = "org.apache.hadoop.yarn.server"
_MANAGERS = {
    "resource manager": f"{_SERVER}.resourcemanager.ResourceManager",
    "node manager": f"{_SERVER}.nodemanager.NodeManager",
}
_PORTS = {
    "yarn.resourcemanager.address",
    "yarn.resourcemanager.scheduler.address",
    "yarn.resourcemanager.resource-tracker.address",
    "yarn.resourcemanager.admin.address",
    "yarn.resourcemanager.webapp.address",
    "yarn.nodemanager.address",
    "yarn.nodemanager.localizer.address",
    "yarn.nodemanager.collector-service.address",
    "yarn.nodemanager.webapp.address",
}
# Without a configuration log4j prints nothing, not even why a manager ended.
_LOG4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""


@dataclass(frozen=True)
class Yarn:
    """A running YARN: the directory that HADOOP_CONF_DIR names, and its page."""

    configuration: Path
    page: str
    logs: Path

    def applications(self) -> list[dict[str, object]]:
        """Return the applications with their states, newest last."""
        answer = self._ask("apps")["apps"]
        found = answer.get("app", []) if answer else []
        return sorted(found, key=lambda one: one["startedTime"])

    def nodes(self) -> int:
        nodes = self._ask("nodes")["nodes"]
        return sum(node["state"] == "RUNNING" for node in nodes["node"]) if nodes else 0

    def _ask(self, what: str) -> dict[str, dict[str, list[dict[str, object]]]]:
        with urllib.request.urlopen(f"http://{self.page}/ws/v1/cluster/{what}", timeout=10) as answer:
            table: dict[str, dict[str, list[dict[str, object]]]] = json.load(answer)
            return table

    def answers(self) -> bool:
        """Return whether the resource manager serves its page."""
        try:
            self.nodes()
        except OSError:
            return False
        return True

    def is_ready(self) -> bool:
        return self.answers() and self.nodes() == 1


@contextmanager
def running_yarn(directory: Path, java: Path) -> Iterator[Yarn]:
    """Run both managers until the block ends."""
    jars = yarn_jars()
    configuration, logs = directory / "configuration", directory / "logs"
    configuration.mkdir()
    settings = _settings(directory, logs)
    _write(configuration / "yarn-site.xml", settings)
    _write(configuration / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(directory / "tmp")})
    (configuration / "log4j.properties").write_text(_LOG4J)
    yarn = Yarn(configuration, settings["yarn.resourcemanager.webapp.address"], logs)
    path = os.pathsep.join([str(configuration), *jars])
    options = ["-Xmx512m", "-XX:+UseSerialGC", f"-Dhadoop.log.dir={directory}", f"-Dyarn.log.dir={directory}"]
    managers: list[ServerProcess] = []
    try:
        for name, main in _MANAGERS.items():
            command = [str(java), *options, "--add-opens=java.base/java.lang=ALL-UNNAMED", "-cp", path, main]
            managers.append(ServerProcess(name, command, directory / f"{name.replace(' ', '-')}.log"))
        resource_manager, node_manager = managers
        # The node manager waits for a resource manager that has ended.
        resource_manager.wait_until(yarn.answers, READY_SECONDS_MAX)
        node_manager.wait_until(yarn.is_ready, READY_SECONDS_MAX)
        yield yarn
    finally:
        for manager in reversed(managers):
            manager.stop()


def _settings(directory: Path, logs: Path) -> dict[str, str]:
    addresses = {name: f"127.0.0.1:{free_port()}" for name in sorted(_PORTS)}
    return addresses | {
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.resourcemanager.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.resource.cpu-vcores": "4",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.nodemanager.local-dirs": str(directory / "local"),
        "yarn.nodemanager.log-dirs": str(logs),
        "yarn.nodemanager.delete.debug-delay-sec": "600",
        "yarn.scheduler.minimum-allocation-mb": "256",
    }


def _write(path: Path, settings: dict[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{escape(text)}</value></property>" for name, text in settings.items()
    )
    path.write_text("<configuration>\n" + "\n".join(lines) + "\n</configuration>\n")
