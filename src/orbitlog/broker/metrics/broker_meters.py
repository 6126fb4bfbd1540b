"""Broker meters: switches metrics on for one broker, and builds its pages of metrics and health.

Imported only by a broker with metrics. A part of the broker that must be measured gets a wrapper or an observer here;
everything else is read from its tables when metrics are collected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitlog.broker.metrics.broker_health import BrokerHealth
from orbitlog.broker.metrics.client_metrics import client_families
from orbitlog.broker.metrics.lag_metrics import LagMetrics
from orbitlog.broker.metrics.metered_messages import MeteredMessages
from orbitlog.broker.metrics.request_meter import RequestMeter
from orbitlog.broker.metrics.store_metrics import StoreMetrics, TimerMetrics, pop_families, replication_families
from orbitlog.broker.metrics.traffic_metrics import TrafficMetrics
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.observe import metric_table as table
from orbitlog.observe import metrics_settings as keys
from orbitlog.observe.condition_pages import condition_families
from orbitlog.observe.exposition import Exposition
from orbitlog.observe.http_listener import HttpListener
from orbitlog.observe.loop_lag import LoopLag
from orbitlog.observe.metric import Family, Row, label_text, single
from orbitlog.observe.pages import metrics_and_health
from orbitlog.observe.process_metrics import process_reader
from orbitlog.settings.listen_exposure import is_exposed

if TYPE_CHECKING:
    from orbitlog.access.access_control import AccessControl
    from orbitlog.broker.delayed.timed_delivery import TimedDelivery
    from orbitlog.broker.pop.pop_consumption import PopConsumption
    from orbitlog.broker.pulling.handle_pull import PullHandler
    from orbitlog.broker.runtime.listeners import Listeners
    from orbitlog.broker.runtime.master_role import MasterRole
    from orbitlog.broker.runtime.registration import Registration
    from orbitlog.broker.sending.flush_queue import FlushQueue
    from orbitlog.broker.sending.message_writer import MessageWriter
    from orbitlog.broker.slave.slave_role import SlaveRole
    from orbitlog.observe.metrics_export import MetricsExport
    from orbitlog.remoting.connection import FastPath, Handler

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MeteredParts:
    """The parts of a broker that metrics read."""

    timed: TimedDelivery
    pulls: PullHandler
    pops: PopConsumption
    flushes: FlushQueue | None
    master: MasterRole
    registration: Registration
    access: AccessControl | None
    slave: SlaveRole | None


class BrokerMeters:
    """The counters of one broker that exist only with metrics, and the listener of its pages."""

    def __init__(self, state: BrokerState, writer: MessageWriter) -> None:
        self._state = state
        self.requests = RequestMeter()
        self._traffic = TrafficMetrics(state)
        self._store = StoreMetrics(state)
        self._loop_lag = LoopLag()
        self._outlet: HttpListener | MetricsExport | None = None
        self._exposition: Exposition | None = None
        writer.stored = MeteredMessages(state, self._traffic)

    def timed_flush(self, flush: Callable[[], int]) -> Callable[[], int]:
        """Return a flush that measures itself."""
        return self._store.timed_flush(flush)

    def metered(self, handler: Handler, fast_path: FastPath, *, waits: bool) -> tuple[Handler, FastPath]:
        """Return a handler and a fast path that measure; a fast path whose responses wait reports them later."""
        fast = fast_path if waits else self.requests.metered_fast_path(fast_path)
        return self.requests.metered_handler(handler), fast

    def observe(self, parts: MeteredParts, listeners: Listeners) -> None:
        """Switch the observers on, and build the pages."""
        state, settings = self._state, self._state.settings
        timers = TimerMetrics(state, parts.timed)
        observers = state.statistics.observers
        observers.transaction_ended = self._traffic.note_end
        observers.dead_letter = self._traffic.note_dead_letter
        observers.timer_loaded, observers.timer_left = timers.note_loaded, timers.note_left
        observers.request_answered = self.requests.answered_later
        observers.group_committed = self._store.group_commits.observe
        observers.is_on = True
        if parts.flushes is not None:
            parts.flushes.observers = observers
        shared = shared_labels(state)
        self._exposition = Exposition(
            (
                process_reader(state.compat.name),
                lambda _: condition_families(state.conditions),
                self._traffic.read,
                LagMetrics(state, parts.pops.popped).read,
                lambda _: client_families(state),
                self.requests.read,
                self._store.read,
                timers.read,
                lambda _: pop_families(parts.pops.popped, state.now_ms()),
                lambda _: replication_families(parts.master),
                lambda _: self._server_families(parts, listeners),
            ),
            shared,
            settings[keys.CARDINALITY],
        )
        if settings[keys.EXPORTER] == keys.PROM:
            health = BrokerHealth(state, parts.registration, parts.slave)
            pages = metrics_and_health(self._exposition, health.problems, state.conditions)
            host = settings[keys.PROM_HOST] or keys.LOOPBACK
            self._outlet = HttpListener(pages, host, settings[keys.PROM_PORT], state.limits)
        else:
            self._outlet = self._make_export(shared)

    def _make_export(self, shared: str) -> MetricsExport:
        from orbitlog.observe.metrics_export import make_export

        state = self._state
        read, log_path = state.settings.__getitem__, state.root / "logs" / "metrics.log"
        return make_export(
            self.exposition,
            read,
            shared=shared,
            instance=state.broker_name,
            log_path=log_path,
            conditions=state.conditions,
        )

    def _server_families(self, parts: MeteredParts, listeners: Listeners) -> Iterator[Family]:
        """Yield connections, held requests and refusals."""
        held = (("pull", len(parts.pulls.held)), ("pop", parts.pops.held_count))
        yield Family(table.HELD_REQUESTS, [Row(table.HELD_REQUESTS.text(kind), count) for kind, count in held])
        yield single(table.CONNECTIONS, listeners.connection_count)
        yield single(table.BYTES_IN_WORK, listeners.main.working_bytes)
        yield single(table.LOOP_LAG, self._loop_lag.seconds)
        if parts.access is not None:
            yield single(table.ACCESS_REFUSED, parts.access.guard.refused_count)

    @property
    def exposition(self) -> Exposition:
        """The page of metrics; others may add readers to it."""
        assert self._exposition is not None, "observe() was not called"
        return self._exposition

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the listener, which must have been started; None if metrics are exported otherwise."""
        return self._outlet.address if isinstance(self._outlet, HttpListener) else None

    async def start(self) -> None:
        """Listen or export; raise an `OSError` if the port is taken."""
        assert self._outlet is not None
        await self._outlet.start()
        self._loop_lag.start(asyncio.get_running_loop())
        if self.address is not None and is_exposed(self.address[0]):
            log.warning("metrics of this broker can be read by every machine that reaches %s:%d", *self.address)

    async def stop(self) -> None:
        """Close the listener, or export the last values."""
        self._loop_lag.stop()
        if self._outlet is not None:
            await self._outlet.stop()


def shared_labels(state: BrokerState) -> str:
    """Return the labels of all series: those of Apache's broker, and `metricsLabel`."""
    own = {
        "cluster": state.cluster_name,
        "node_type": "broker",
        "node_id": state.broker_name,
        "otel_scope_name": "broker-meter",
    }
    pairs = {**dict(keys.label_pairs(state.settings[keys.LABELS])), **own}
    return label_text(tuple(pairs), tuple(pairs.values()))
