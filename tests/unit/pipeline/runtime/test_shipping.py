"""What executors unpack: importable anywhere, and leading to one place that stays."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import orbitlog
from orbitlog.pipeline.runtime.shipping import digest_of, pack_package, pack_with_redirect

PACKAGE = Path(orbitlog.__file__).parent
ASK = "import orbitlog, orbitlog.errors; print(orbitlog.__version__, orbitlog.errors.__file__)"


def unpacked(tmp_path: Path) -> Path:
    directory = tmp_path / "application" / "orbitlog"
    with zipfile.ZipFile(pack_with_redirect(PACKAGE, tmp_path / "orbitlog.zip")) as archive:
        archive.extractall(directory)
    return directory


def imported(application: Path, *more: Path, cache: Path) -> tuple[str, Path]:
    """Import the package in a process that has only these directories on its path."""
    path = ":".join(map(str, (application.parent, *more)))
    command = [sys.executable, "-S", "-c", ASK]
    environment = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(cache)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    return answer[0], Path(answer[1])


def test_an_installed_package_of_the_same_bytes_is_used(tmp_path: Path) -> None:
    version, place = imported(unpacked(tmp_path), PACKAGE.parent, cache=tmp_path / "cache")
    assert (version, place) == (orbitlog.__version__, PACKAGE / "errors.py")


def test_without_one_every_application_uses_the_same_copy(tmp_path: Path) -> None:
    application = unpacked(tmp_path)
    places = {imported(application, cache=tmp_path / "cache") for _ in range(2)}
    ((version, place),) = places
    assert version == orbitlog.__version__
    assert place.is_relative_to(tmp_path / "cache")
    assert digest_of(place.parent) == digest_of(PACKAGE)


def test_another_version_beside_it_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "site" / "orbitlog").mkdir(parents=True)
    (tmp_path / "site" / "orbitlog" / "__init__.py").write_text("__version__ = 'other'")
    version, _ = imported(unpacked(tmp_path), tmp_path / "site", cache=tmp_path / "cache")
    assert version == orbitlog.__version__


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a directory should be")
    _, place = imported(application := unpacked(tmp_path), cache=tmp_path / "cache")
    assert place == application / "_sources" / "errors.py"


def test_plain_package_is_at_the_top_level(tmp_path: Path) -> None:
    with zipfile.ZipFile(pack_package(PACKAGE, tmp_path / "plain.zip")) as archive:
        assert archive.read("errors.py") == (PACKAGE / "errors.py").read_bytes()
        assert not [name for name in archive.namelist() if "__pycache__" in name]
