"""pytest fixtures: a broker for each test, or one for the whole session.

pytest loads this module in every environment with Orbitlog installed, so Orbitlog is imported only inside fixtures.
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
    """A broker for this test with an empty store; `orbitlog_broker.address` is its name server."""
    return make_orbitlog_broker()


@pytest.fixture
def orbitlog_secured_broker(make_orbitlog_broker: MakeBroker) -> RunningBroker:
    """A broker with TLS and access control: clients need `orbitlog_secured_broker.tls` and `.credentials`."""
    return make_orbitlog_broker(secured=True)


@pytest.fixture
def orbitlog_broker_process(make_orbitlog_broker: MakeBroker) -> BrokerProcess:
    """A broker in a separate process, which can be killed: `orbitlog_broker_process.kill_broker()`."""
    from orbitlog.testing.broker_process import BrokerProcess

    broker = make_orbitlog_broker(in_process=False)
    assert isinstance(broker, BrokerProcess)
    return broker


@pytest.fixture
def make_orbitlog_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeBroker]:
    """A factory of brokers with settings of broker.conf: `make_orbitlog_broker(defaultTopicQueueNums=2)`.

    `in_process=False` starts the broker in a separate process, `secured=True` one with TLS and access control.
    """
    from orbitlog.testing.broker_process import BrokerProcess
    from orbitlog.testing.running_broker import RunningBroker

    with ExitStack() as running:

        def make(*, in_process: bool = True, secured: bool = False, **settings: object) -> RunningBroker:
            texts = {
                name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()
            }
            kind = RunningBroker if in_process else BrokerProcess
            store = tmp_path_factory.mktemp("orbitlog") / "store"
            return running.enter_context(kind(store, texts, secured=secured))

        yield make


@pytest.fixture(scope="session")
def orbitlog_session_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for the whole session; tests that share it need different topics and groups."""
    from orbitlog.testing.running_broker import RunningBroker

    with RunningBroker(tmp_path_factory.mktemp("orbitlog-session") / "store") as broker:
        yield broker
