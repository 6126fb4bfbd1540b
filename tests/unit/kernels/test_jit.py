"""The cache of compiled kernels: a changed callee is always detected, and a missing cache is not a failure."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orbitlog.kernels import jit

CALLEE = "from house.jit import inlined\n\n\n@inlined\ndef answer():\n    return {}\n"
CALLER = "from house.callee import answer\nfrom house.jit import kernel\n\n\n@kernel\ndef ask():\n    return answer()\n"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A package like Orbitlog with one kernel that calls into another file."""
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(jit.__file__, package / "jit.py")
    (package / "caller.py").write_text(CALLER)
    return tmp_path


def run(house: Path, answer: int, cache: Path) -> int:
    (house / "house" / "callee.py").write_text(CALLEE.format(answer))
    program = "from house.caller import ask; print(ask())"
    # Python's own cache distinguishes sources by second and size, which are the same for two answers.
    environment = {"NUMBA_CACHE_DIR": str(cache), "PATH": "", "HOME": str(house), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_changed_callee_changes_the_answer_of_a_cached_caller(house: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert [run(house, answer, cache) for answer in (1, 1, 2, 1)] == [1, 1, 2, 1]
    # One directory a version of the sources, each with compiled code in it.
    directories = sorted((cache / "orbitlog").iterdir())
    assert len(directories) == 2
    assert all(any(directory.rglob("*.nbc")) for directory in directories)


def test_no_cache_directory_is_no_failure(house: Path, tmp_path: Path) -> None:
    occupied = tmp_path / "a-file"
    occupied.write_text("not a directory")
    assert run(house, 7, occupied) == 7


def test_the_directory_is_named_after_all_sources() -> None:
    directory = jit.cache_directory()
    assert directory == jit.cache_directory()
    assert directory.name.startswith("kernels-")
