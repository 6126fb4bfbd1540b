"""For every test: the golden stores, shared and as private copies; and how hypothesis looks for examples.

Property tests give the same answer each time and have no time limit; `--hypothesis-profile=search` looks for new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from orbitlog.testing.golden import GoldenStore, extract_golden
from tests.support import hang_limit

GOLDEN = Path(__file__).parent / "golden"

settings.register_profile("repeatable", derandomize=True, max_examples=60, deadline=None, database=None)
settings.register_profile("search", max_examples=2000, deadline=None, database=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hang_limit)
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", help="keep pictures of the console's pages in this directory")
    parser.addoption("--accept-public-api", action="store_true", help="write tests/public_api.txt from the code")


def _shared_store(name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoldenStore]:
    golden = extract_golden(GOLDEN / name, tmp_path_factory.mktemp(name))
    yield golden
    assert golden.changed_files() == [], f"a test wrote into the shared store {name}: take golden_copy instead"


@pytest.fixture(autouse=True, scope="session")
def own_state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The key of repair journals is in the user's state directory, which tests must not touch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def golden_497(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoldenStore]:
    """A store that Apache RocketMQ 4.9.7 closed cleanly; do not write into it."""
    yield from _shared_store("apache-4.9.7", tmp_path_factory)


@pytest.fixture(scope="session")
def golden_497_dledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoldenStore]:
    """A store that Apache RocketMQ 4.9.7 wrote in DLedger mode and closed cleanly; do not write into it."""
    yield from _shared_store("apache-4.9.7-dledger", tmp_path_factory)


@pytest.fixture(scope="session")
def golden_550_crash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoldenStore]:
    """A store whose Apache RocketMQ 5.5.0 broker was killed while it was sent to; do not write into it."""
    yield from _shared_store("apache-5.5.0-crash", tmp_path_factory)


@pytest.fixture
def golden_copy(tmp_path: Path) -> Callable[[GoldenStore], GoldenStore]:
    """A factory of private copies to write into."""
    made: list[GoldenStore] = []

    def copy(golden: GoldenStore) -> GoldenStore:
        made.append(golden.copy_to(tmp_path / f"copy{len(made)}" / "store"))
        return made[-1]

    return copy
