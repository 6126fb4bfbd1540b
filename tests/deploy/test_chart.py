"""Helm chart: its golden renders are safe and use what the commands have; with helm, they are what it renders now."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import orbitlog
from orbitlog.errors import OrbitlogError
from tests.support.command_words import check_environment, check_setting, check_words
from tools.generate_docs import chart_values

ROOT = Path(__file__).resolve().parent.parent.parent
HELM = ROOT / "deploy" / "helm"
CHART = HELM / "orbitlog"
GOLDEN = sorted((HELM / "tests" / "golden").glob("*.yaml"))
VALUE_SETS = sorted((HELM / "tests" / "values").glob("*.yaml"))
RENDER = ("--namespace", "messaging", "--kube-version", "1.31.0")

Object = dict[str, Any]


def objects(render: Path) -> list[Object]:
    return [document for document in yaml.safe_load_all(render.read_text()) if document]


def pod_specs(documents: list[Object]) -> Iterator[tuple[str, Object]]:
    for document in documents:
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def violations(name: str, pod: Object) -> Iterator[str]:
    """Yield what the policy forbids in a pod."""
    shared = pod.get("securityContext", {})
    if shared.get("runAsNonRoot") is not True or not shared.get("runAsUser"):
        yield f"{name} may run as root"
    if shared.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield f"{name} has no seccomp profile"
    if pod.get("automountServiceAccountToken") is not False:
        yield f"{name} gets a token of the API server"
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            yield f"{name} has {key}"
    yield from (f"{name} mounts the host" for volume in pod.get("volumes", ()) if "hostPath" in volume)
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        yield from container_violations(f"{name}/{container['name']}", container)
    for container in pod["containers"]:
        if not {"livenessProbe", "readinessProbe"} <= container.keys():
            yield f"{name}/{container['name']} has no probes"


def container_violations(name: str, container: Object) -> Iterator[str]:
    security = container.get("securityContext", {})
    if security.get("runAsUser") == 0 or security.get("runAsNonRoot") is not True:
        yield f"{name} may run as root"
    if security.get("allowPrivilegeEscalation") is not False or security.get("privileged"):
        yield f"{name} may gain privileges"
    if security.get("readOnlyRootFilesystem") is not True:
        yield f"{name} may write its root file system"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{name} keeps capabilities"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield f"{name} has no memory limit"
    if container["image"].endswith(":latest") or ":" not in container["image"]:
        yield f"{name} has an image without version"


def test_there_are_five_value_sets_each_with_its_render() -> None:
    assert [path.stem for path in GOLDEN] == [path.stem for path in VALUE_SETS]
    assert len(GOLDEN) == 5


@pytest.mark.parametrize("render", GOLDEN, ids=lambda path: path.stem)
def test_no_pod_runs_as_root_or_with_rights(render: Path) -> None:
    pods = list(pod_specs(objects(render)))
    assert len(pods) >= 2
    assert [finding for name, pod in pods for finding in violations(name, pod)] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("securityContext", "runAsNonRoot"), False),
        (("securityContext", "runAsUser"), 0),
        (("automountServiceAccountToken",), True),
        (("hostNetwork",), True),
        (("volumes", 0), {"name": "host", "hostPath": {"path": "/"}}),
        (("containers", 0, "securityContext", "runAsUser"), 0),
        (("containers", 0, "securityContext", "readOnlyRootFilesystem"), False),
        (("containers", 0, "securityContext", "capabilities"), {"add": ["NET_ADMIN"], "drop": ["ALL"]}),
        (("containers", 0, "resources"), {}),
        (("containers", 0, "image"), "orbitlog:latest"),
    ],
    ids=lambda part: ".".join(map(str, part)) if isinstance(part, tuple) else "",
)
def test_policy_reports_a_pod_that_was_changed(path: tuple[Any, ...], value: Any) -> None:
    name, pod = next(pod_specs(objects(GOLDEN[0])))
    part: Any = pod
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert list(violations(name, pod))


@pytest.mark.parametrize("render", GOLDEN, ids=lambda path: path.stem)
def test_commands_and_settings_exist(render: Path) -> None:
    documents = objects(render)
    for _, pod in pod_specs(documents):
        for container in pod["containers"]:
            check_words(container["args"])
            variables = {variable["name"]: variable.get("value") for variable in container.get("env", ())}
            check_environment({name: text and text.replace("$(POD_NAME)", "pod-1") for name, text in variables.items()})
    (config,) = (document for document in documents if document["kind"] == "ConfigMap")
    for name, server in (("broker.conf", "broker"), ("namesrv.conf", "nameserver")):
        for line in config["data"][name].splitlines():
            assert line == line.strip()
            key, _, text = line.partition("=")
            check_setting(key, text, server)


def test_unknown_option_or_setting_is_reported() -> None:
    with pytest.raises(click.UsageError):
        check_words(["broker", "--no-such-option"])
    with pytest.raises(click.UsageError):
        check_words(["no-such-command"])
    with pytest.raises(ValueError, match="no setting"):
        check_environment({"ORBITLOG_SET_noSuchSetting": None})
    with pytest.raises(OrbitlogError):
        check_environment({"ORBITLOG_SET_allowAnonymous": "perhaps"})


@pytest.mark.parametrize("render", GOLDEN, ids=lambda path: path.stem)
def test_selectors_match_pods(render: Path) -> None:
    documents = objects(render)
    labels = [
        document["spec"]["template"]["metadata"]["labels"]
        for document in documents
        if "template" in document.get("spec", {})
    ]
    checked = 0
    for document in documents:
        spec = document.get("spec", {})
        chosen = {
            "Service": lambda spec: spec["selector"],
            "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
            "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
            "StatefulSet": lambda spec: spec["selector"]["matchLabels"],
        }.get(document["kind"])
        if chosen is not None:
            checked += 1
            assert any(chosen(spec).items() <= pod.items() for pod in labels), document["metadata"]["name"]
    assert checked >= 6


def by_kind(name: str) -> dict[str, list[Object]]:
    kinds: dict[str, list[Object]] = {}
    for document in objects(HELM / "tests" / "golden" / f"{name}.yaml"):
        kinds.setdefault(document["kind"], []).append(document)
    return kinds


def test_replicated_groups_have_members_budgets_and_volumes() -> None:
    kinds = by_kind("replicated")
    groups = [
        each for each in kinds["StatefulSet"] if each["metadata"]["labels"]["app.kubernetes.io/component"] == "broker"
    ]
    assert [group["spec"]["replicas"] for group in groups] == [3, 3]
    assert len(kinds["PodDisruptionBudget"]) == 3
    for group in groups:
        assert group["spec"]["ordinals"] == {"start": 1}  # member ids start at 1
        assert group["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"] == "20Gi"
        assert group["spec"]["persistentVolumeClaimRetentionPolicy"] == {
            "whenDeleted": "Retain",
            "whenScaled": "Retain",
        }
        pod = group["spec"]["template"]["spec"]
        assert "requiredDuringSchedulingIgnoredDuringExecution" in pod["affinity"]["podAntiAffinity"]
        environment = {each["name"]: each for each in pod["containers"][0]["env"]}
        member = environment["ORBITLOG_SET_replicaMemberId"]["valueFrom"]["fieldRef"]["fieldPath"]
        assert member == "metadata.labels['apps.kubernetes.io/pod-index']"


def test_secrets_are_referred_to_and_not_contained() -> None:
    kinds = by_kind("secured")
    assert "Secret" not in kinds
    (broker,) = (each for each in kinds["StatefulSet"] if each["metadata"]["name"].endswith("broker-a"))
    pod = broker["spec"]["template"]["spec"]
    assert {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume} == {
        "orbitlog-access",
        "orbitlog-tls",
    }
    environment = {each["name"]: each for each in pod["containers"][0]["env"]}
    reference = environment["ORBITLOG_SET_innerClientAuthenticationCredentials"]["valueFrom"]["secretKeyRef"]
    assert reference == {"name": "orbitlog-access", "key": "innerClientAuthenticationCredentials"}


def test_monitor_selects_the_services_with_metrics() -> None:
    kinds = by_kind("monitored")
    (monitor,) = kinds["ServiceMonitor"]
    wanted = monitor["spec"]["selector"]
    (expression,) = wanted["matchExpressions"]
    chosen = [
        service
        for service in kinds["Service"]
        if wanted["matchLabels"].items() <= service["metadata"]["labels"].items()
        and service["metadata"]["labels"][expression["key"]] in expression["values"]
    ]
    assert len(chosen) == 2
    port = monitor["spec"]["endpoints"][0]["port"]
    assert all(port in {each["name"] for each in service["spec"]["ports"]} for service in chosen)


def test_clients_do_not_reach_the_port_of_copies() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in by_kind("default")["NetworkPolicy"]}
    rules = policies["mq-orbitlog-broker"]["ingress"]
    for rule in rules:
        ports = [each["port"] for each in rule["ports"]]
        own = rule["from"][0].get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/name") == "orbitlog"
        assert own or 10912 not in ports


# Values


def test_every_value_is_described_and_in_the_schema() -> None:
    described = {path for path, _, _ in chart_values()}
    schema = json.loads((CHART / "values.schema.json").read_text())

    def leaves(part: Object, within: Object, path: str) -> Iterator[str]:
        for key, value in part.items():
            name = f"{path}.{key}".strip(".")
            assert key in within["properties"], f"{name} is not in values.schema.json"
            assert within["additionalProperties"] is False
            if name in described:
                yield name
            else:
                yield from leaves(value, within["properties"][key], name)

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(leaves(values, schema, "")) == described


def test_versions_are_those_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == orbitlog.__version__


# With helm


@pytest.fixture(scope="module")
def helm() -> str:
    found = subprocess.run([ROOT / "tools" / "find_helm"], capture_output=True, text=True, timeout=60)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()


@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_render_equals_the_golden_one(helm: str, values: Path) -> None:
    command = [helm, "template", "mq", CHART, "--values", values, *RENDER]
    rendered = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert rendered.returncode == 0, rendered.stderr
    golden = HELM / "tests" / "golden" / values.name
    if os.environ.get("ORBITLOG_ACCEPT_RENDERS"):
        golden.write_text(rendered.stdout)
    assert rendered.stdout == golden.read_text(), "run `ORBITLOG_ACCEPT_RENDERS=1 make chart`, and read the difference"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("brokerGroups[0].name=broker-a,brokerGroups[0].replicas=3", "needs replicaGroups.coordinator"),
        ("accessControl.enabled=true", "needs accessControl.secretName"),
        ("tls.enabled=true", "needs tls.secretName"),
        ("webConsole.enabled=true", "needs webConsole.usersSecretName"),
        ("nameServers.replicas=0", "nameServers.replicas|/nameServers/replicas"),
        ("antiAffinity=sometimes", "antiAffinity"),
        ("noSuchValue=1", "noSuchValue"),
        ("accessControl.allowAnonymous=false", "allowAnonymous"),
    ],
    ids=lambda text: text.partition("=")[0],
)
def test_values_that_make_no_cluster_are_refused(helm: str, setting: str, reason: str) -> None:
    command = [helm, "template", "mq", CHART, "--set", setting, *RENDER]
    rendered = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert rendered.returncode != 0
    assert re.search(reason, rendered.stderr), rendered.stderr
