"""Man pages: up to date, installed with the wheel, and without a warning of groff."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from orbitlog.cli.main import COMMANDS
from tools import generate_man

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "src" / "man").glob("man?/*"))


def test_pages_are_up_to_date() -> None:
    stored = {path.relative_to(generate_man.MAN).as_posix(): path.read_text() for path in PAGES}
    assert stored == generate_man.man_pages(), "run `make docs`"


def test_every_command_has_a_page() -> None:
    names = {path.name for path in PAGES}
    assert {f"orbitlog-{name}.1" for name in COMMANDS} | {"orbitlog.1", "orbitlog.conf.5"} == names


def test_wheel_installs_the_pages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shared = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared == {f"src/man/man{section}": f"share/man/man{section}" for section in (1, 5)}


def test_text_that_looks_like_a_request_is_escaped() -> None:
    assert generate_man.escaped(".so /etc/passwd\n'x -a\\b") == "\\&.so /etc/passwd\n\\&'x \\-a\\eb"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_accepts_the_pages() -> None:
    # `break`: a long word that cannot be divided is no mistake of a page.
    command = ["groff", "-man", "-Tutf8", "-ww", "-Wbreak", "-z", *map(str, PAGES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
