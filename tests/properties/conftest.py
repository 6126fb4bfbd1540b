"""Property tests give the same answer each time; `--hypothesis-profile=search` looks for new ones instead."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, max_examples=60, deadline=None, database=None)
settings.register_profile("search", max_examples=2000, deadline=None, database=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("repeatable")
