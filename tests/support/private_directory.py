"""A directory of the user beside a hostile store: no command may read or change its file."""

from __future__ import annotations

from pathlib import Path

import pytest

SECRET = b"private to the user\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory outside the store with a file that nothing may read or change."""
    directory = tmp_path / "home"
    directory.mkdir()
    (directory / "secret").write_bytes(SECRET)
    return directory


def unharmed(victim: Path) -> bool:
    """Return whether the directory contains its file alone, unchanged."""
    return {path.name: path.read_bytes() for path in victim.rglob("*")} == {"secret": SECRET}
