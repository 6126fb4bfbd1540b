"""Workflows and the development container call targets of the Makefile, with few permissions and pinned actions."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOWS = sorted(Path(".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", Path("Makefile").read_text(), re.MULTILINE))
every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs_of(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())["jobs"]


def steps_of(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs_of(path).values() for step in job["steps"]]


def test_workflows_exist() -> None:
    assert [path.stem for path in WORKFLOWS] == ["check", "release"]


@every_workflow
def test_commands_of_a_workflow_are_targets_of_the_makefile(path: Path) -> None:
    commands = [step["run"] for step in steps_of(path) if "run" in step]
    assert len(commands) == len(jobs_of(path))
    for command in commands:
        match = re.fullmatch(r"make ([a-z-]+)( ARGS=\"[^\"]*\")?", command)
        assert match is not None, command
        assert match[1] in TARGETS


@every_workflow
def test_workflow_may_only_read_and_ends(path: Path) -> None:
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    for name, job in jobs_of(path).items():
        assert "permissions" not in job and job["timeout-minutes"] <= 60, name
    assert "secrets." not in path.read_text() and "pull_request_target" not in path.read_text()


@every_workflow
def test_actions_are_pinned_to_commits(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    for step in steps_of(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}


def test_an_action_has_the_same_commit_everywhere() -> None:
    used = {action for path in WORKFLOWS for action in re.findall(r"uses: (.*)", path.read_text())}
    assert len({action.partition("@")[0] for action in used}) == len(used)


def test_unit_tests_run_on_every_python_that_the_package_names() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: "
    named = [word.removeprefix(prefix) for word in project["classifiers"] if word.startswith(prefix + "3.")]
    (check, release) = WORKFLOWS
    assert jobs_of(check)["unit"]["strategy"]["matrix"]["python"] == named
    (released,) = (
        step["with"]["python-version"] for step in steps_of(release) if "setup-python" in step.get("uses", "")
    )
    assert set(named) <= set(released.split())


@every_workflow
def test_files_that_a_workflow_names_exist(path: Path) -> None:
    for step in steps_of(path):
        name = step.get("with", {}).get("cache-dependency-path")
        assert name is None or Path(name).is_file()


def test_release_page_names_every_job_of_the_check() -> None:
    page = Path("docs/releasing.md").read_text()
    (sentence,) = re.findall(r"`check` for each change \(([^)]*)\)", page)
    words = {"unit": "unit tests", "test": "the whole suite"}
    names = {words.get(name, name) for name in jobs_of(WORKFLOWS[0])}
    assert {word.strip() for word in sentence.split(",")} == names


def test_development_container_calls_a_target_and_names_ports_and_java() -> None:
    container = json.loads(Path(".devcontainer/devcontainer.json").read_text())
    target = container["postCreateCommand"].removeprefix("make ")
    assert target in TARGETS
    python = re.search(r"python:(\d\.\d+)", container["image"])
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert python is not None and project["requires-python"] == f">={python[1]}"
    assert {8082, 9876, 10911} <= set(container["forwardPorts"])
