"""Images: as built by `make image`, confined and working; the slim one runs with runc and serves an official client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import orbitlog
from orbitlog.doctor.examination import examine
from tests.interop import test_push_consumers, test_sending
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.matrix import JAVA_497, start_driver
from tests.interop.harness.packages import ApachePackages, NotAvailable, apache_packages
from tests.interop.harness.systems import System
from tests.support.free_ports import free_port
from tools import image

pytestmark = pytest.mark.interop
SECONDS_MAX = 60
VARIANTS = [name for name in image.VARIANTS if (image.PLACE / f"{name}.json").exists()]
SCENARIOS: tuple[Callable[[Client], None], ...] = (
    partial(test_sending.test_acknowledged_sends_are_where_the_answer_states, mode="sync"),
    test_sending.test_a_batch_is_stored_as_its_members,
    test_push_consumers.test_a_message_reaches_a_waiting_consumer,
)


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    reason = image.missing_tools()
    if reason is not None:
        pytest.skip(reason)
    assert "slim" in VARIANTS, "run `make image`"


def test_containerfile_has_no_findings() -> None:
    directory = os.environ.get("ORBITLOG_DEPLOY_TOOLS")
    if not directory:
        pytest.skip("hadolint is installed by `make image`")
    # Versions of packages are pinned by constraints.txt and by the digest of a base.
    command = [f"{directory}/hadolint", "--ignore", "DL3042", str(image.CONTAINERFILE)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
def test_configuration_has_user_health_check_and_labels(variant: str) -> None:
    config = image.config_of(variant)["config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"] == ["orbitlog"]
    assert config["Healthcheck"]["Test"] == ["CMD", "orbitlog", "probe", "live"]
    assert config["StopSignal"] == "SIGTERM" and "/var/lib/orbitlog" in config["Volumes"]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.version"] == orbitlog.__version__
    assert labels["org.opencontainers.image.title"] == f"orbitlog-{variant}"
    assert len(labels["org.opencontainers.image.revision"]) == 40


@pytest.mark.parametrize("variant", VARIANTS)
def test_files_are_sound_and_listed(variant: str) -> None:
    with image.mounted(variant) as root:
        assert [*image.findings(root), *image.config_findings(image.config_of(variant))] == []
        sbom = json.loads((root / "opt/orbitlog/sbom.cdx.json").read_text())
        packages = {
            path.name.split("-")[0].lower() for path in root.glob("opt/orbitlog/lib/*/site-packages/*.dist-info")
        }
    names = {component["name"].replace("-", "_") for component in sbom["components"]}
    assert packages - {"orbitlog"} <= names and {"libc6", "python3.11_minimal"} <= names
    assert sbom["metadata"]["component"]["version"] == orbitlog.__version__
    check_schema(sbom)


SCHEMA_CHECK = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(sys.stdin.read())
sys.exit(str(error) if error else 0)
"""


def check_schema(sbom: dict[str, Any]) -> None:
    """Validate an SBOM by the schema of CycloneDX, where that is installed."""
    directory = os.environ.get("ORBITLOG_DEPLOY_TOOLS")
    if directory:
        command = [f"{directory}/python", "-c", SCHEMA_CHECK]
        done = subprocess.run(command, input=json.dumps(sbom), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


# The slim image, run by runc


class Container(System):
    """`orbitlog up` of the slim image: its user, no capabilities, root read-only, network of the host."""

    kind = "image"

    def __init__(self, directory: Path, root: Path) -> None:
        data = directory / "data"
        super().__init__(directory, data / "store", {})
        data.mkdir()
        os.chown(data, image.USER_ID, image.USER_ID)
        self._ports = {name: free_port() for name in ("name-server", "broker", "metrics")}
        self._name = f"orbitlog-test-{os.getpid()}"
        config = image.config_of("slim")["config"]
        command = [word for word in config["Cmd"] if word not in ("--metrics-port", "5557")]
        command[command.index("0.0.0.0")] = "127.0.0.1"  # the network is that of the host
        for option, name in (
            ("--name-server-port", "name-server"),
            ("--broker-port", "broker"),
            ("--metrics-port", "metrics"),
        ):
            command += [option, str(self._ports[name])]
        environment = dict(variable.split("=", 1) for variable in config["Env"])
        for variable in ("brokerName=" + self.broker_name, "brokerClusterName=" + self.cluster_name):
            environment["ORBITLOG_SET_" + variable.partition("=")[0]] = variable.partition("=")[2]
        spec = image.runtime_spec(root, [*config["Entrypoint"], *command], data, environment)
        (directory / "config.json").write_text(json.dumps(spec))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name_server_address(self) -> str:
        return f"127.0.0.1:{self._ports['name-server']}"

    @property
    def broker_address(self) -> str:
        return f"127.0.0.1:{self._ports['broker']}"

    def start(self) -> None:
        with (self.directory / "container.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["runc", "--root", str(self.directory / "runc"), "run", "--bundle", str(self.directory), self._name],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith(b"ready "), (self.directory / "container.log").read_text()

    def execute(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container."""
        command = ["runc", "--root", str(self.directory / "runc"), "exec", self._name, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)

    def stop_broker(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        subprocess.run(["runc", "--root", str(self.directory / "runc"), "kill", self._name, "TERM"], check=True)
        assert self._process.wait(SECONDS_MAX) == 0
        self._process.stdout.close()
        self._process = None

    def kill_broker(self) -> None:
        if self._process is not None:
            subprocess.run(["runc", "--root", str(self.directory / "runc"), "delete", "--force", self._name])
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    stop, kill = stop_broker, kill_broker


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    directory = tmp_path_factory.mktemp("container")
    for part in (directory, *directory.parents):  # the user of the image must reach its volume
        if part.is_relative_to("/tmp") and part != Path("/tmp"):
            part.chmod(part.stat().st_mode | 0o011)
    with image.mounted("slim") as root:
        running = Container(directory, root)
        try:
            running.start()
            yield running
        finally:
            running.kill()


def test_container_is_confined(container: Container) -> None:
    status = container.execute("cat", "/proc/1/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert set(fields["Uid"].split()) == {"10001"} and set(fields["Gid"].split()) == {"10001"}
    assert int(fields["CapEff"], 16) == int(fields["CapBnd"], 16) == 0 and fields["NoNewPrivs"] == "1"
    refused = container.execute("touch", "/opt/orbitlog/x")
    assert refused.returncode != 0 and "Read-only file system" in refused.stderr


def test_health_check_passes(container: Container) -> None:
    probe = image.config_of("slim")["config"]["Healthcheck"]["Test"][1:]
    done = container.execute(*probe, "--port", str(container._ports["metrics"]))
    assert done.returncode == 0, done.stderr


def test_official_java_client_sends_and_consumes(container: Container, tmp_path: Path) -> None:
    def packages_of(version: str) -> ApachePackages:
        try:
            return apache_packages(version)
        except NotAvailable as reason:
            pytest.skip(str(reason))

    driver: Driver = start_driver(JAVA_497, tmp_path, packages_of)
    try:
        for scenario in SCENARIOS:
            client = Client(driver, container)
            try:
                scenario(client)
            finally:
                client.close()
    finally:
        driver.close()


def test_stop_is_clean_and_leaves_a_sound_store(container: Container) -> None:
    with orbitlog.connect(f"rocketmq://{container.name_server_address}") as mq:
        mq.send("Orders", "the last one", timeout=30)
    started = time.monotonic()
    container.stop_broker()
    assert time.monotonic() - started < SECONDS_MAX
    assert examine(container.store).is_sound and not (container.store / "abort").exists()
