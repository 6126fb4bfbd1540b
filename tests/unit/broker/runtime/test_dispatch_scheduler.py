"""When dispatch steps are planned, run early, repeated and retried; the store is a stand-in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from unittest.mock import Mock

import pytest

from orbitlog.broker.runtime.dispatch_scheduler import DispatchScheduler
from orbitlog.errors import StoreError


class FakeLoop:
    """Keeps the planned calls instead of running them."""

    def __init__(self) -> None:
        self.soon: list[object] = []
        self.later: list[tuple[float, object]] = []

    def time(self) -> float:
        return 0.0

    def call_soon(self, callback: object) -> Mock:
        self.soon.append(callback)
        return Mock()

    def call_later(self, seconds: float, callback: object) -> Mock:
        self.later.append((seconds, callback))
        return Mock()


class Bench:
    """A scheduler with a store of which each step dispatches ten bytes."""

    def __init__(self) -> None:
        self.store = Mock(messages_appended=0, written_to=0, dispatched_to=0, confirmed_to=0)
        self.store.has_kernels, self.store.is_dispatch_inline = False, True
        self.store.fetch_ahead.return_value = None
        self.store.dispatch_once.side_effect = self._dispatch
        self.pulls, self.pops = Mock(held=[]), Mock(are_held=False)
        self.deliveries, self.disk_thread = Mock(), Mock(spec=Executor)
        self.scheduler = DispatchScheduler(
            Mock(store=self.store), self.pulls, self.pops, self.deliveries, self.disk_thread
        )
        self.loop = FakeLoop()

    def _dispatch(self, max_bytes: int, *, each: bool) -> list[str]:
        self.store.dispatched_to += 10
        return ["arrival"]

    def append(self, size: int) -> None:
        self.store.written_to += size
        self.store.confirmed_to += size
        self.scheduler.plan()

    def start(self) -> None:
        self.scheduler.start(self.loop)  # type: ignore[arg-type]
        self.loop.later.clear()
        self.scheduler.run_step()
        self.store.reset_mock()
        self.store.dispatched_to = 0


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.scheduler.close()


def test_an_append_before_the_start_plans_nothing(bench: Bench) -> None:
    bench.append(10)
    assert bench.scheduler.delayed_step is None


def test_appends_of_one_turn_share_a_step(bench: Bench) -> None:
    bench.start()
    bench.append(5)
    bench.append(5)
    assert bench.loop.later == [(0.0, bench.scheduler.run_step)] and not bench.loop.soon


def test_a_step_that_a_consumer_waits_for_is_not_delayed(bench: Bench) -> None:
    bench.start()
    bench.pops.are_held = True
    bench.append(10)
    assert bench.loop.soon == [bench.scheduler.run_step] and bench.scheduler.delayed_step is None


def test_a_step_wakes_every_kind_of_reader(bench: Bench) -> None:
    bench.start()
    bench.append(10)
    bench.scheduler.run_step()
    for reader in (bench.pulls, bench.pops, bench.deliveries):
        reader.wake.assert_called_with(["arrival"])


def test_a_request_that_reads_runs_all_delayed_steps_first(bench: Bench) -> None:
    bench.start()
    bench.append(30)
    assert bench.scheduler.delayed_step is not None
    bench.scheduler.run_now(bench.scheduler.delayed_step)
    assert bench.store.dispatched_to == 30 and bench.scheduler.delayed_step is None


def test_a_failed_step_is_retried_a_second_later(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.start()
    bench.store.dispatch_once.side_effect = StoreError("no space left")
    with caplog.at_level(logging.ERROR):
        bench.append(10)
        bench.scheduler.run_step()
    assert "dispatch failed, retrying in 1 s: no space left" in caplog.text
    assert bench.loop.later[-1] == (1, bench.scheduler.plan)


def test_only_a_busy_broker_loads_the_kernels(bench: Bench) -> None:
    bench.start()
    bench.append(1024)
    bench.scheduler.run_step()
    assert not bench.scheduler.kernels_requested
    bench.append(64 * 1024)
    bench.scheduler.run_step()
    bench.scheduler.run_step()
    bench.disk_thread.submit.assert_called_once_with(bench.store.load_kernels)


def test_a_step_after_closing_dispatches_nothing(bench: Bench) -> None:
    bench.start()
    bench.append(10)
    bench.scheduler.close()
    bench.scheduler.run_step()
    bench.store.dispatch_once.assert_not_called()
