"""Directories of the user."""

from __future__ import annotations

from pathlib import Path

from orbitlog.settings.user_directories import user_directory


def test_user_directory_is_below_the_one_that_the_variable_names() -> None:
    assert user_directory("XDG_STATE_HOME", {"XDG_STATE_HOME": "/var/state"}) == Path("/var/state/orbitlog")


def test_user_directory_without_the_variable_is_below_its_default() -> None:
    assert user_directory("XDG_DATA_HOME", {}) == Path.home() / ".local" / "share" / "orbitlog"
    assert user_directory("XDG_CACHE_HOME", {"XDG_CACHE_HOME": ""}) == Path.home() / ".cache" / "orbitlog"


def test_user_directory_with_a_relative_path_is_below_the_default() -> None:
    assert user_directory("XDG_CONFIG_HOME", {"XDG_CONFIG_HOME": "state"}) == Path.home() / ".config" / "orbitlog"
