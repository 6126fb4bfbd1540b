"""Fixtures for anybody's tests: a broker for each test, or one for the whole session.

pytest loads this module in every environment where Orbitlog is installed, so that it imports nothing until a fixture
is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from orbitlog.testing.broker_process import BrokerProcess
    from orbitlog.testing.running_broker import RunningBroker

MakeBroker = Callable[..., "RunningBroker"]


@pytest.fixture
def orbitlog_broker(make_orbitlog_broker: MakeBroker) -> RunningBroker:
    """A broker of this test's own, with an empty store: `orbitlog_broker.address` is its name server."""
    return make_orbitlog_broker()


@pytest.fixture
def orbitlog_broker_process(make_orbitlog_broker: MakeBroker) -> BrokerProcess:
    """The same as a process of its own, which can be killed: `orbitlog_broker_process.kill_broker()`."""
    from orbitlog.testing.broker_process import BrokerProcess

    broker = make_orbitlog_broker(in_process=False)
    assert isinstance(broker, BrokerProcess)
    return broker


@pytest.fixture
def make_orbitlog_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeBroker]:
    """A factory of brokers with settings of broker.conf: `make_orbitlog_broker(defaultTopicQueueNums=2)`.

    `in_process=False` makes one that is a process of its own.
    """
    from orbitlog.testing.broker_process import BrokerProcess
    from orbitlog.testing.running_broker import RunningBroker

    with ExitStack() as running:

        def make(*, in_process: bool = True, **settings: object) -> RunningBroker:
            texts = {
                name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()
            }
            kind = RunningBroker if in_process else BrokerProcess
            return running.enter_context(kind(tmp_path_factory.mktemp("orbitlog") / "store", texts))

        yield make


@pytest.fixture(scope="session")
def orbitlog_session_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for all tests that ask for it: give each its own topics and groups."""
    from orbitlog.testing.running_broker import RunningBroker

    with RunningBroker(tmp_path_factory.mktemp("orbitlog-session") / "store") as broker:
        yield broker
