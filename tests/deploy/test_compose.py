"""Compose file: commands and settings exist, nothing is exposed, and every container is confined."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_words import check_environment, check_words

ROOT = Path(__file__).resolve().parent.parent.parent
COMPOSE = ROOT / "deploy" / "compose"
PROJECT: dict[str, Any] = yaml.safe_load((COMPOSE / "docker-compose.yml").read_text())
OURS = {name: service for name, service in PROJECT["services"].items() if service["image"].startswith("orbitlog")}


def test_the_services_are_a_replicated_cluster_with_console_and_prometheus() -> None:
    assert set(OURS) == {"nameserver", "broker-1", "broker-2", "broker-3", "console"}
    assert set(PROJECT["services"]) - set(OURS) == {"etcd", "prometheus"}
    members = [OURS[f"broker-{number}"]["environment"] for number in (1, 2, 3)]
    assert [member["ORBITLOG_SET_replicaMemberId"] for member in members] == ["1", "2", "3"]
    assert len({member["ORBITLOG_SET_brokerName"] for member in members}) == 1


@pytest.mark.parametrize("name", OURS)
def test_command_and_settings_exist(name: str) -> None:
    check_words(OURS[name]["command"])
    check_environment(OURS[name].get("environment", {}))


@pytest.mark.parametrize("name", OURS)
def test_container_is_confined(name: str) -> None:
    service = OURS[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"] and service["tmpfs"] == ["/tmp"]
    assert not {"privileged", "user", "network_mode", "pid"} & service.keys()


def test_ports_are_published_on_loopback_alone() -> None:
    published = [port for service in PROJECT["services"].values() for port in service.get("ports", ())]
    assert published and all(port.startswith("127.0.0.1:") for port in published)


def test_addresses_are_those_of_the_network() -> None:
    for name, service in PROJECT["services"].items():
        address = service["networks"]["cluster"]["ipv4_address"]
        assert re.fullmatch(r"172\.30\.76\.\d+", address)
        assert service.get("environment", {}).get("ORBITLOG_SET_brokerIP1", address) == address, name


def test_prometheus_scrapes_every_server_with_metrics() -> None:
    settings = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())
    (job,) = settings["scrape_configs"]
    assert job["job_name"] == "rocketmq"  # the alerts select it
    targets = job["static_configs"][0]["targets"]
    assert set(targets) == {f"{name}:5557" for name, service in OURS.items() if "--metrics-port" in service["command"]}
    for rules in settings["rule_files"]:
        assert (ROOT / "deploy" / "prometheus" / Path(rules).name).exists()


def test_volumes_are_declared() -> None:
    used = {volume.partition(":")[0] for service in PROJECT["services"].values() for volume in service["volumes"]}
    assert {name for name in used if not name.startswith(".")} == set(PROJECT["volumes"])


def test_loader_of_compose_accepts_the_file(tmp_path: Path) -> None:
    found = subprocess.run([ROOT / "tools" / "find_compose"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())
    program = found.stdout.strip()
    loaded = subprocess.run([program, COMPOSE / "docker-compose.yml"], capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    assert set(yaml.safe_load(loaded.stdout)["services"]) == set(PROJECT["services"])
    broken = tmp_path / "docker-compose.yml"
    broken.write_text("services: {one: {image: x, read_onli: true}}\n")
    assert subprocess.run([program, broken], capture_output=True).returncode != 0
