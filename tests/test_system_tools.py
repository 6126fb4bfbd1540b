"""The shell tools that look at the machine: which Java is taken, and what is asked of its package manager."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"


def write_program(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str) -> Path:
    """A java that reports the same properties as a real one."""
    settings = f"    java.home = {home}\n    java.specification.version = {version}\n"
    return write_program(home / "bin" / "java", f"cat >&2 <<'END'\nProperty settings:\n{settings}END")


def run_tool(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"]} | variables
    return subprocess.run([TOOLS / name, *arguments], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("version", ["17", "21", "25"])
def test_java_home_is_taken_first_even_with_a_space_in_it(tmp_path: Path, version: str) -> None:
    home = tmp_path / "a jdk"
    fake_java(home, version)
    answer = run_tool("find_java", JAVA_HOME=str(home))
    assert (answer.returncode, answer.stdout) == (0, f"{home}\n")


@pytest.mark.parametrize("version", ["1.8", "11", ""])
def test_a_java_that_is_too_old_is_passed_over_for_the_one_on_the_path(tmp_path: Path, version: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    fake_java(old, version)
    fake_java(new, "17")
    answer = run_tool("find_java", JAVA_HOME=str(old), PATH=f"{new}/bin:{os.environ['PATH']}")
    assert (answer.returncode, answer.stdout) == (0, f"{new}\n")


def test_a_broken_java_is_passed_over(tmp_path: Path) -> None:
    write_program(tmp_path / "old" / "bin" / "java", "exit 1")
    fake_java(tmp_path / "new", "17")
    answer = run_tool("find_java", JAVA_HOME=str(tmp_path / "old"), PATH=f"{tmp_path}/new/bin:{os.environ['PATH']}")
    assert answer.stdout == f"{tmp_path}/new\n"


@pytest.fixture
def package_manager(tmp_path: Path) -> tuple[Path, Path]:
    """A directory for the PATH with an apt-get that knows one package, and where it notes what it was asked."""
    asked = tmp_path / "asked"
    write_program(tmp_path / "bin" / "sudo", 'shift; exec "$@"')
    note = f'echo "$*" >>"{asked}"; case "$*" in *unknown*) exit 100;; esac'
    write_program(tmp_path / "bin" / "apt-get", note)
    return tmp_path / "bin", asked


def test_the_first_package_that_the_system_knows_is_installed(package_manager: tuple[Path, Path]) -> None:
    programs, asked = package_manager
    wanted = ("nosuchmanager:x", "apt-get:unknown", "apt-get:known", "apt-get:not-needed")
    answer = run_tool("system_install", *wanted, PATH=f"{programs}:{os.environ['PATH']}")
    assert answer.returncode == 0
    assert answer.stdout == ""
    questions = asked.read_text().splitlines()
    assert [question.split()[-1] for question in questions] == ["-qq", "unknown", "known"]


def test_nothing_is_installed_where_that_is_forbidden(package_manager: tuple[Path, Path]) -> None:
    programs, asked = package_manager
    answer = run_tool("system_install", "apt-get:known", PATH=f"{programs}:{os.environ['PATH']}", SYSTEM_PACKAGES="no")
    assert answer.returncode == 1
    assert not asked.exists()
