"""A real browser for the pages of the console: the system's Chromium, driven by Playwright.

Without one of them the tests are skipped with the reason. `--screenshots DIR` keeps a picture of every page.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.integration.console.conftest import busy_broker, site

__all__ = ["busy_broker", "site"]

FIND = Path(__file__).resolve().parent.parent.parent / "tools" / "find_chromium"


def _chromium() -> str:
    """Return the path of a browser, installed first where that is permitted; skip without one."""
    found = subprocess.run([FIND, "--install"], capture_output=True, text=True)
    if found.returncode != 0:
        pytest.skip(found.stderr.strip().splitlines()[-1])
    return found.stdout.splitlines()[0]


# Not for the whole session: Playwright keeps an event loop running in this thread, and other tests call asyncio.run.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="install the extra `browser`")
    path = _chromium()
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=arguments)
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which checks a page for accessibility."""
    pytest.importorskip("axe_core_python", reason="install the extra `browser`")
    return files("axe_core_python").joinpath("axe.min.js").read_text()


@pytest.fixture
def pictures(pytestconfig: pytest.Config) -> Path | None:
    """The directory of --screenshots; None if no pictures are wanted."""
    given = pytestconfig.getoption("--screenshots")
    if given:
        Path(given).mkdir(parents=True, exist_ok=True)
    return Path(given) if given else None


@pytest.fixture
def screenshots(pytestconfig: pytest.Config, tmp_path: Path) -> Path:
    """The directory for pictures: --screenshots, or one of the test."""
    given = pytestconfig.getoption("--screenshots")
    directory = Path(given) if given else tmp_path
    directory.mkdir(parents=True, exist_ok=True)
    return directory
