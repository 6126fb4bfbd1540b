"""`make setup` does its work once, detects what changed, and replaces what was left half done.

The whole-run tests drive the real tools/setup in a small project of its own, in a directory with a space in its
name; that project needs no package at all, so nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import environment

ROOT = Path(__file__).resolve().parent.parent

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "orbitlog"
version = "1"
[project.optional-dependencies]
spark = []
lake = []
dev = []
"""
BACKEND = '''
"""The smallest build backend that can make an editable wheel."""
import zipfile

INFO = "orbitlog-1.dist-info"
FILES = {
    f"{INFO}/METADATA": "Metadata-Version: 2.1\\nName: orbitlog\\nVersion: 1\\n"
    "Provides-Extra: spark\\nProvides-Extra: lake\\nProvides-Extra: dev\\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "marker_of_the_build.py": "",
}


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    name = "orbitlog-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{INFO}/RECORD", "".join(f"{path},,\\n" for path in FILES) + f"{INFO}/RECORD,,\\n")
    return name


build_wheel = build_editable
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def make_project(directory: Path) -> Path:
    """Create a project with our tools and nothing to install, whose path has a space in it."""
    root = directory / "a project"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", root)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "constraints.txt").write_text("")
    (root / "backend.py").write_text(BACKEND)
    return root


def start_setup(project: Path, **environment_variables: str) -> subprocess.Popen[str]:
    # The tests may themselves run below a make, whose settings are not for this one.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    variables = inherited | {"PYTHON": sys.executable, "SYSTEM_PACKAGES": "no"} | environment_variables
    return subprocess.Popen(
        ["make", "setup"], cwd=project, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run_setup(project: Path, **environment_variables: str) -> str:
    process = start_setup(project, **environment_variables)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    return output


def installed(project: Path) -> bool:
    return bool(list((project / ".venv").glob("lib/python*/site-packages/marker_of_the_build.py")))


@pytest.mark.slow
def test_setup_works_once_then_has_nothing_to_do_until_something_changes(project: Path) -> None:
    assert "making .venv" in run_setup(project)
    assert installed(project)
    stamp = project / ".venv" / "setup.stamp"
    made = stamp.stat().st_mtime_ns

    assert run_setup(project) == ""
    assert stamp.stat().st_mtime_ns == made

    (project / "constraints.txt").write_text("# changed\n")
    output = run_setup(project)
    assert "bringing packages up to date" in output
    assert "making .venv" not in output, "a changed pin needs no new environment"

    moved = project.rename(project.with_name("moved project"))
    assert "making .venv" in run_setup(moved), "scripts of an environment name the place where it was made"
    assert run_setup(moved) == ""


@pytest.fixture(scope="module")
def finished_after_interruption(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A project whose first setup was interrupted, set up on a machine without Java; and the output of that setup."""
    project = make_project(tmp_path_factory.mktemp("interrupted"))
    half_made = project / ".venv" / "bin"
    half_made.mkdir(parents=True)
    (half_made / "python").symlink_to(sys.executable)
    (project / ".venv" / "left-over").touch()
    (project / "tools" / "find_java").write_text("#!/bin/sh\necho 'No Java was found.' >&2\nexit 1\n")
    return project, run_setup(project)


@pytest.mark.slow
@pytest.mark.xdist_group("interrupted-setup")
def test_an_interrupted_setup_starts_from_nothing(finished_after_interruption: tuple[Path, str]) -> None:
    project, _ = finished_after_interruption
    assert installed(project)
    assert not (project / ".venv" / "left-over").exists()


@pytest.mark.slow
@pytest.mark.xdist_group("interrupted-setup")
def test_without_java_setup_reports_it_in_one_line_and_succeeds(
    finished_after_interruption: tuple[Path, str],
) -> None:
    project, output = finished_after_interruption
    assert "setup: No Java was found.\n" in output
    assert (project / ".venv" / "java_home").read_text() == ""


@pytest.mark.slow
def test_two_setups_at_once_share_the_work(project: Path) -> None:
    both = [start_setup(project), start_setup(project)]
    outputs = [process.communicate(timeout=240)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum("making .venv" in output for output in outputs) == 1
    assert installed(project)


@pytest.mark.slow
def test_a_failed_setup_shows_the_end_of_the_log_and_leaves_no_stamp(project: Path) -> None:
    (project / "backend.py").write_text("raise SystemExit('the backend is broken')")
    process = start_setup(project)
    output, _ = process.communicate(timeout=240)
    assert process.returncode != 0
    assert "the backend is broken" in output
    assert ".venv/setup.log" in output
    assert not (project / ".venv" / "setup.stamp").exists()


def test_an_unusable_python_is_refused_in_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "python2"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    answer = subprocess.run(
        [ROOT / "tools" / "find_python"], env={"PATH": os.environ["PATH"], "PYTHON": str(old)}, capture_output=True
    )
    assert answer.returncode == 1
    assert answer.stdout == b""
    assert answer.stderr.count(b"\n") == 1


@pytest.mark.parametrize("package_helps", [True, False])
def test_a_python_without_venv_gets_its_package_or_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package_helps: bool
) -> None:
    asked = tmp_path / "asked"
    installer = tmp_path / "tools" / "system_install"
    installer.parent.mkdir()
    installer.write_text(f'#!/bin/sh\necho "$@" >"{asked}"\n')
    installer.chmod(0o755)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "can_make_venv", lambda: asked.exists() and package_helps)
    if package_helps:
        environment.require_venv_module()
    else:
        with pytest.raises(environment.SetupError, match=r"install the package python3\.\d+-venv"):
            environment.require_venv_module()
    assert "apt-get:python3-venv" in asked.read_text()


@pytest.mark.parametrize("name", environment.INPUTS)
def test_a_change_of_any_input_makes_the_environment_stale(tmp_path: Path, name: str) -> None:
    for each in environment.INPUTS:
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text("before")
    before = environment.describe("3.13", tmp_path)
    assert environment.describe("3.13", tmp_path) == before
    assert environment.describe("3.12", tmp_path) != before

    (tmp_path / name).write_text("after")
    assert environment.describe("3.13", tmp_path) != before


@pytest.mark.parametrize(
    ("made_from", "anew"),
    [
        (None, True),
        ({"python": "3.13", "root": "/a", "inputs": "1"}, False),
        ({"python": "3.13", "root": "/a", "inputs": "0"}, False),
        ({"python": "3.12", "root": "/a", "inputs": "1"}, True),
        ({"python": "3.13", "root": "/b", "inputs": "1"}, True),
        ({}, True),
    ],
)
def test_only_another_python_place_or_an_unfinished_run_needs_a_new_venv(
    made_from: dict[str, str] | None, anew: bool
) -> None:
    assert environment.must_recreate(made_from, {"python": "3.13", "root": "/a", "inputs": "1"}) is anew


@pytest.mark.parametrize("content", [None, "", "{", "[]", '"text"'])
def test_a_missing_or_broken_stamp_counts_as_unfinished(tmp_path: Path, content: str | None) -> None:
    stamp = tmp_path / "stamp"
    if content is not None:
        stamp.write_text(content)
    assert environment.read_stamp(stamp) is None


def test_a_whole_stamp_is_read_back(tmp_path: Path) -> None:
    stamp = tmp_path / "stamp"
    stamp.write_text(json.dumps({"python": "3.13"}))
    assert environment.read_stamp(stamp) == {"python": "3.13"}
