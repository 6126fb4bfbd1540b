"""The code lists of lazy handlers name exactly the codes that their handlers serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.broker.admin.admin_table import admin_table
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.lazy_handlers import LazyHandlers
from orbitlog.broker.runtime.request_router import RARE_CODES, rare_handlers
from orbitlog.broker.sending.message_writer import MessageWriter


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that is built and not started: it has no sockets."""
    broker = Broker(BrokerSettings(), tmp_path)
    yield broker
    broker.state.store.close()


def lazy_handlers(broker: Broker) -> Iterator[LazyHandlers]:
    rare = LazyHandlers(RARE_CODES, lambda: rare_handlers(broker.state, MessageWriter(broker.state), None))
    for table in (rare.table, admin_table(broker.state, broker._admin_needs()), broker._pops.table):
        (handlers,) = set(table.values())
        assert isinstance(handlers, LazyHandlers)
        yield handlers


def test_codes_of_lazy_handlers_are_those_of_the_built_handlers(broker: Broker) -> None:
    for lazy in lazy_handlers(broker):
        assert set(lazy.codes) == lazy.handlers.keys()
        assert len(lazy.codes) == len(set(lazy.codes))


def test_handlers_are_built_once(broker: Broker) -> None:
    for lazy in lazy_handlers(broker):
        assert lazy.handlers is lazy.handlers
