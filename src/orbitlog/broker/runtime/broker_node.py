"""One broker, put together: handlers behind a server, loops around a store. Mirrors `BrokerController`."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import time
from collections.abc import Awaitable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from orbitlog.broker.admin.admin_table import AdminNeeds, admin_table
from orbitlog.broker.admin.handle_clients import ClientHandlers
from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.delayed.timed_delivery import TimedDelivery
from orbitlog.broker.delayed.timer_handover import TimerHandOver
from orbitlog.broker.pop.pop_consumption import PopConsumption
from orbitlog.broker.pulling.handle_offsets import OffsetHandlers
from orbitlog.broker.pulling.handle_pull import PullHandler
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.background_loops import SteadyLoops
from orbitlog.broker.runtime.broker_opening import OpenStore, clock_ms, open_broker_store, take_broker_state
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.dispatch_pace import DispatchPace
from orbitlog.broker.runtime.group_commit import FlushRule
from orbitlog.broker.runtime.lazy_handlers import LazyHandlers
from orbitlog.broker.runtime.listen_address import contradiction, with_listen_address
from orbitlog.broker.runtime.registration import Registration
from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.broker.sending.handle_send import SendHandler
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.tables.statistics import SAMPLE_MS
from orbitlog.broker.tables.table_saver import TableSaver
from orbitlog.broker.tables.topics import NowMs
from orbitlog.broker.transactions.half_messages import HalfMessages
from orbitlog.broker.transactions.handle_transactions import TransactionHandler
from orbitlog.broker.transactions.transaction_check import TransactionCheck
from orbitlog.broker.transactions.transaction_ends import TransactionEnds
from orbitlog.errors import StoreError
from orbitlog.formats import names
from orbitlog.formats.tables.offset_tables import DELAY_OFFSET
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.flow import RemotingLimits
from orbitlog.remoting.request_dispatch import Dispatch
from orbitlog.remoting.server import RemotingServer
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.storefiles.disk import Disk
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

log = logging.getLogger(__name__)

# A step of dispatch keeps the event loop busy: this much takes some milliseconds, in plain Python and with the kernels.
_DISPATCH_BYTES = 128 * 1024
_KERNEL_DISPATCH_BYTES = 1024 * 1024
# Syncing thousands of queues takes half a second of a core; deriving this much again after a crash takes less.
_DERIVED_BYTES = 64 * 1024 * 1024
# Of a log that is written at 150 MB/s, what two tenths of a second need.
_AHEAD_BYTES = 32 * 1024 * 1024
# A broker is busy that has this much to dispatch at once.
_BUSY_BYTES = 16 * 1024
_FOLLOW_MS = 5
_TICK_MS = 500
_POP_MS = 100
_SCAN_MS = 10_000
_PREPARE_MS = 1_000
_AGAIN_MS = 1_000
_DELAY_LOOK_MS = 1_000
_SETTLED_S = 1.0
# Requests whose answers do not depend on what is dispatched.
_SENDS = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.END_TRANSACTION,
    )
)
# Requests that many brokers never see: what serves them comes with the first.
_SELDOM = (
    *(RequestCode.RECALL_MESSAGE, RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    *(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID),
)
_VIP_DISTANCE = 2
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")
_WAITING_TOPICS = frozenset((names.SCHEDULE_TOPIC, names.TIMER_TOPIC))


class Broker:
    """Serves one store. Use it from one event loop: `await start()`, `await stop()`."""

    def __init__(
        self,
        settings: BrokerSettings,
        root: Path,
        *,
        now_ms: NowMs = clock_ms,
        progress: Progress | None = None,
        disk: Disk | None = None,
        opened: OpenStore | None = None,
    ) -> None:
        self.root = root
        settings = with_listen_address(settings)
        opened = opened or open_broker_store(settings, root, now_ms=now_ms, progress=progress, disk=disk)
        self.state, self._directory = take_broker_state(settings, root, opened, now_ms=now_ms), opened.directory
        self._disk_thread = ThreadPoolExecutor(1, "orbitlog-disk")
        self._fetch_thread = ThreadPoolExecutor(1, "orbitlog-fetch")
        self._writer = MessageWriter(self.state)
        self._saver = TableSaver(self.state, self._directory, self._disk_thread)
        self._delayed = DelayedDelivery(self.state, self._writer, self._directory.load(DELAY_OFFSET))
        self._saver.delayed = self._delayed
        log_bytes = settings[keys.TIMER_LOG_BYTES] if keys.TIMER_LOG_BYTES.key in settings.texts else None
        self._timed = TimedDelivery(
            self.state, self._writer, self._directory.load(TIMER_PROGRESS), TimerHandOver(self.root, disk, log_bytes)
        )
        self._saver.timed = self._timed
        self._flushes = self._make_flush_queue()
        self._client = RemotingClient()
        self._registration = Registration(self.state, self._client)
        self._pops = PopConsumption(self.state, self._writer, self._directory, self._client, self._timed.settled_to_ms)
        self._saver.pops = self._pops
        self._pulls = PullHandler(self.state)
        self._clients = ClientHandlers(self.state)
        self._halves = HalfMessages(self.state, self._writer)
        self._transaction_ends = TransactionEnds(self._halves)
        self._transactions = TransactionHandler(self.state, self._halves, self._transaction_ends, self._flushes)
        self._transaction_check = TransactionCheck(
            self.state, self._halves, self._transactions.can_ask, self._transactions.ask
        )
        self._sends = SendHandler(self.state, self._writer, self._halves, self._transaction_ends, self._flushes)
        self._dispatch_request = Dispatch(self._handlers())
        self._seen: set[Connection] = set()
        self._server = self._make_server(settings[keys.LISTEN_PORT])
        self._vip_server: RemotingServer | None = None
        self._gathering: asyncio.Handle | None = None
        self._pace = DispatchPace()
        self._loops = SteadyLoops()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._derived_lock = asyncio.Lock()
        self._delay_due = asyncio.Event()
        self._last_flush_ms = self._last_derived_ms = self.state.now_ms()
        self._derived_to = self.state.store.dispatched_to
        self._dispatch_planned = self._kernels_wanted = False
        self._damage_told = 0

    # Life

    async def start(self) -> None:
        """Listen, register and begin; returns when clients may connect."""
        state = self.state
        self._loop = asyncio.get_running_loop()
        await self._server.start()
        state.listen_port = self._server.address[1]
        await self._start_vip()
        state.message_appended = self._appended
        state.save_soon = self._saver.soon
        state.topics.changed = self._topics_changed
        state.groups.changed = self._saver.soon
        self._pops.modes.changed = self._saver.soon
        # Not yet: a first send would wait until they are on the disk, and then once more with its own topic.
        self._loop.call_later(_SETTLED_S, self._saver.soon)
        await self._registration.announce()
        self._damage_step()
        self._warn_of_strangers()
        self._start_loops()
        self._plan_dispatch()

    async def stop(self) -> None:
        """Answer what was taken, say good-bye, and close the store so that it needs no recovery."""
        self.state.is_stopping = True
        await self._registration.unregister()
        await self._loops.stop()
        self._pulls.answer_all()
        self._pops.answer_all()
        await self._server.stop()
        if self._vip_server is not None:
            await self._vip_server.stop()
        if self._flushes is not None:
            await self._flushes.close()
        await self._registration.close()
        await self._client.close()
        await self._hand_over()
        await self._saver.close()
        self._disk_thread.shutdown()
        self._fetch_thread.shutdown()
        self._loop = None  # a dispatch that is planned still finds nothing to do: closing dispatches everything
        self.state.store.close()

    async def _hand_over(self) -> None:
        """Leave POP check points and timer files for the next broker, once the log has what they refer to."""
        try:
            self._pops.hand_over()
            await self._saver.flush_log()
            self._dispatch_all()
            self._timed.take_all()
        except StoreError as error:
            log.error("no timer files are written for a Java broker: %s", error)
        else:
            self._timed.hand_over(self.state.now_ms())

    def _dispatch_all(self) -> None:
        """Dispatch what was appended last: the timer must know check points before its files are written."""
        store, before = self.state.store, -1
        while store.is_dispatch_inline and before < store.dispatched_to < store.confirmed_to:
            before = store.dispatched_to
            store.dispatch_once(_DISPATCH_BYTES)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self._server.address

    def _make_server(self, port: int) -> RemotingServer:
        settings = self.state.settings
        limits = RemotingLimits(connections=settings[keys.CONNECTIONS_MAX])
        host = settings[keys.BIND_ADDRESS]
        return RemotingServer(self._serve, host=host, port=port, limits=limits, quick=self._sends.quick)

    def _warn_of_strangers(self) -> None:
        """Warn about what it means to listen where others can connect, or not to."""
        settings = self.state.settings
        if sentence := contradiction(settings, self.state.advertised_ips):
            log.warning("%s", sentence)
        bound = ipaddress.ip_address(settings[keys.BIND_ADDRESS] or "0.0.0.0")  # noqa: S104 - asked, not listened on
        if bound.is_loopback:
            return
        log.warning(
            "listening on %s: whoever can reach it can read, write and delete; there is no access control yet", bound
        )
        if (
            bound.is_unspecified
            and not settings[keys.ADVERTISED_ADDRESS]
            and any(map(os.path.exists, _CONTAINER_MARKS))
        ):
            log.warning(
                "this is a container: clients that come through published ports must be told where to dial, so set"
                " brokerIP1 to an address that they can reach"
            )

    async def _start_vip(self) -> None:
        """Listen two ports below, too, where clients before 4.5 send; without it they cannot."""
        port = self.state.settings[keys.LISTEN_PORT] - _VIP_DISTANCE
        if port <= 0 or not self.state.settings[keys.VIP_CHANNEL]:
            return
        server = self._make_server(port)
        try:
            await server.start()
        except OSError as error:
            log.warning("port %d, for clients before 4.5, cannot be had (%s); the others do not need it", port, error)
        else:
            self._vip_server = server

    def _make_flush_queue(self) -> FlushQueue | None:
        store, settings = self.state.store, self.state.settings
        if not settings.flushes_before_answer:
            return None
        timeout_ms = partial(settings.__getitem__, keys.FLUSH_TIMEOUT_MS)
        return FlushQueue(store.flush_log, self._plan_dispatch, timeout_ms)

    # Requests

    def _handlers(self) -> dict[int, Handler]:
        state = self.state
        send = self._sends
        needs = AdminNeeds(
            self._settle, self._saver.save_tables, self._retain_step, self._pulls.wake_queue, self._delayed
        )
        return {
            RequestCode.SEND_MESSAGE: send,
            RequestCode.SEND_MESSAGE_V2: send,
            RequestCode.SEND_BATCH_MESSAGE: send,
            RequestCode.END_TRANSACTION: self._transactions,
            RequestCode.PULL_MESSAGE: self._pulls,
            RequestCode.LITE_PULL_MESSAGE: self._pulls,
            **OffsetHandlers(state).table,
            **LazyHandlers(_SELDOM, self._seldom_handlers).table,
            **self._clients.table,
            **admin_table(state, needs),
            **self._pops.table,
        }

    def _seldom_handlers(self) -> dict[int, Handler]:
        from orbitlog.broker.delayed.handle_recall import RecallHandler
        from orbitlog.broker.pulling.handle_lookup import LookupHandlers
        from orbitlog.broker.sending.handle_reply import ReplyHandler
        from orbitlog.broker.sending.handle_send_back import SendBackHandler

        state, writer, flushes = self.state, self._writer, self._flushes
        reply = ReplyHandler(state, writer)
        return {
            RequestCode.RECALL_MESSAGE: RecallHandler(state, writer, flushes),
            RequestCode.SEND_REPLY_MESSAGE: reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: reply,
            RequestCode.CONSUMER_SEND_MSG_BACK: SendBackHandler(state, writer, flushes),
            **LookupHandlers(state).table,
        }

    def _serve(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        if connection not in self._seen:
            self._seen.add(connection)
            connection.on_close(self._closed)
            connection.on_end_of_requests(self._ended)
        if self._gathering is not None and request.code not in _SENDS:
            self._stop_gathering(self._gathering)
        version = self.state.topics.data_version
        answer = self._dispatch_request(connection, request)
        if version is not self.state.topics.data_version and isinstance(answer, Command | bytes):
            return self._after_announcing(answer)
        return answer

    async def _after_announcing(self, answer: Command | bytes) -> Answer:
        """Answer when the topic that was made is on the disk, and known to name servers: they are asked next."""
        try:
            await self._settle()
        except StoreError as error:
            log.error("a topic was made, and the table of topics cannot be saved: %s", error)
        return answer

    async def _settle(self) -> None:
        """Return when a change of topics or groups is on the disk and known to name servers.

        Both begin at once, so that the loops which the change has woken share them.
        """
        saving = self._saver.begin_tables()
        await self._registration.announce()
        await asyncio.shield(saving)

    def _ended(self, connection: Connection) -> None:
        """The client will ask nothing more: nothing is kept for it that another could have."""
        self._pulls.answer_owner(connection)
        self._pops.answer_all(connection)
        self._clients.drop(connection)

    def _closed(self, connection: Connection) -> None:
        self._seen.discard(connection)
        self._pulls.drop(connection)
        self._pops.drop(connection)
        self._clients.drop(connection)

    # From the log to readers

    def _appended(self) -> None:
        if self._flushes is None:
            self._plan_dispatch()
        else:
            # Also for what nobody waits for: what is delivered late, committed, or put back.
            self._flushes.flush_soon()

    def _plan_dispatch(self, *, soon: bool = False) -> None:
        """Dispatch when the requests that are being read have been worked off, all of them at once.

        Where no consumer waits, none wants it `soon` and many messages come, a moment later: what has gathered till
        then costs much less a message.
        """
        if self._dispatch_planned or self._loop is None:
            return
        self._dispatch_planned = True
        if self._is_awaited:
            self._loop.call_soon(self._dispatch)
        elif soon:
            self._gathering = self._loop.call_soon(self._dispatch)
        else:
            self._gathering = self._loop.call_later(self._pace.seconds, self._dispatch)

    @property
    def _is_awaited(self) -> bool:
        """Tell whether some consumer waits for a message."""
        return bool(self._pulls.held or self._pops.are_held)

    def _stop_gathering(self, gathering: asyncio.Handle) -> None:
        """Dispatch now what was to wait a moment: somebody may ask for it."""
        gathering.cancel()
        store = self.state.store
        self._dispatch()
        while self._gathering is not None and store.dispatched_to < store.confirmed_to:
            self._gathering.cancel()
            self._dispatch()

    def _dispatch(self) -> None:
        self._dispatch_planned = False
        self._gathering = None
        if self._loop is None:
            return
        store = self.state.store
        self._pace.note(self._loop.time(), store.messages_appended)
        if store.written_to - store.dispatched_to >= _BUSY_BYTES and not self._kernels_wanted:
            self._load_kernels()
        if self._kernels_wanted and (fetch := store.fetch_ahead(_AHEAD_BYTES)) is not None:
            self._fetch_thread.submit(fetch)
        try:
            max_bytes = _KERNEL_DISPATCH_BYTES if store.has_kernels else _DISPATCH_BYTES
            arrivals = store.dispatch_once(max_bytes, each=self._is_awaited)
        except StoreError as error:
            log.error("dispatch failed, it is tried again: %s", error)
            asyncio.get_running_loop().call_later(1, self._plan_dispatch)
            return
        if arrivals:
            self._pulls.wake(arrivals)
            self._pops.wake(arrivals)
            if any(arrival.topic in _WAITING_TOPICS for arrival in arrivals):
                self._delay_due.set()
        if store.dispatched_to < store.confirmed_to and (arrivals or store.is_dispatch_inline):
            self._plan_dispatch(soon=True)  # gathered more than a step takes

    def _load_kernels(self) -> None:
        """Fetch the machine code for dispatch: only a broker with much to do pays for it, in memory above all."""
        self._kernels_wanted = True
        loading = self._disk_thread.submit(self.state.store.load_kernels)
        loading.add_done_callback(_log_failure)

    def hand_over_dispatch(self) -> None:
        """Let an engine outside dispatch from now on, and follow it."""
        self.state.store.hand_over_dispatch()

    def take_back_dispatch(self) -> bool:
        """Dispatch here from now on; False while an engine outside still finishes: then ask again."""
        is_back = self.state.store.take_back_dispatch()
        self._plan_dispatch()
        return is_back

    def _follow_step(self) -> None:
        """See how far an engine outside is."""
        if not self.state.store.is_dispatch_inline:
            self._plan_dispatch()

    def _orphan_step(self) -> None:
        store = self.state.store
        if not store.is_dispatch_inline and store.is_dispatch_orphaned and store.dispatched_to < store.confirmed_to:
            behind = store.confirmed_to - store.dispatched_to
            log.warning(
                "nobody dispatches, and consumers miss the last %d bytes: start `orbitlog pipeline dispatch %s`",
                behind,
                self.root,
            )

    # Loops

    def _start_loops(self) -> None:
        settings, loops, state = self.state.settings, self._loops, self.state
        loops.every("flush", lambda: settings[keys.FLUSH_INTERVAL_MS], self._flush_step)
        loops.every("flush of queues", lambda: _PREPARE_MS, self._flush_derived_step)
        loops.every("retention", lambda: _SCAN_MS, self._retain_step)
        loops.every("next segment", lambda: _PREPARE_MS, self._prepare_step)
        loops.every("held pulls", lambda: _TICK_MS, lambda: self._pulls.tick(state.now_ms()))
        loops.every("popped messages", lambda: _POP_MS, lambda: self._pops.tick(state.now_ms()))
        loops.every("client scan", lambda: _SCAN_MS, lambda: self._clients.scan(state.now_ms()))
        loops.every("statistics", lambda: SAMPLE_MS, self._sample_step)
        loops.every("damage", lambda: _SCAN_MS, self._damage_step)
        loops.every("saving offsets", lambda: settings[keys.OFFSET_SAVE_INTERVAL_MS], self._saver.save_offsets)
        loops.every("saving delays", lambda: settings[keys.DELAY_SAVE_INTERVAL_MS], self._saver.save_delays)
        loops.whenever("saving tables", self._saver.wanted, self._saver.save_tables)
        loops.every("registration", lambda: settings[keys.REGISTER_INTERVAL_MS], self._registration.register)
        loops.every("registration with who came back", lambda: _AGAIN_MS, self._registration.register_again)
        loops.whenever("registration of changes", self._registration.changed, self._registration.announce)
        loops.every(
            "transaction check", lambda: settings[keys.TRANSACTION_CHECK_INTERVAL_MS], self._check_transactions_step
        )
        loops.run("delayed delivery", self._delay_turn)
        if settings[keys.DISPATCH_ENGINE] != "inline":
            loops.every("following dispatch", lambda: _FOLLOW_MS, self._follow_step)
            loops.every("looking for who dispatches", lambda: _SCAN_MS, self._orphan_step)

    def _topics_changed(self) -> None:
        self._saver.soon()
        self._registration.changed.set()
        if self._flushes is not None:
            # Who is told that a message is on the disk may count on its topic, too.
            self._flushes.hold(self._saver.begin_tables())

    async def _flush_step(self) -> None:
        store, settings, now_ms = self.state.store, self.state.settings, self.state.now_ms()
        rule = FlushRule(
            settings[keys.FLUSH_INTERVAL_MS], settings[keys.FLUSH_LEAST_PAGES], settings[keys.FLUSH_THOROUGH_MS]
        )
        since_ms = now_ms - self._last_flush_ms
        if rule.is_due(written_to=store.written_to, flushed_to=store.flushed_to, since_flush_ms=since_ms):
            await asyncio.get_running_loop().run_in_executor(self._disk_thread, store.flush_log)
            self._last_flush_ms = self.state.now_ms()

    async def _flush_derived_step(self) -> None:
        store, now_ms = self.state.store, self.state.now_ms()
        dispatched_to = store.dispatched_to
        due = now_ms - self._last_derived_ms >= self.state.settings[keys.QUEUE_FLUSH_INTERVAL_MS]
        if dispatched_to == self._derived_to or not (due or dispatched_to - self._derived_to >= _DERIVED_BYTES):
            return
        async with self._derived_lock:
            await asyncio.get_running_loop().run_in_executor(self._disk_thread, store.flush_derived)
        self._derived_to, self._last_derived_ms = dispatched_to, self.state.now_ms()

    async def _retain_step(self) -> None:
        async with self._derived_lock:
            deleted = self.state.store.retain_once()
        for segment in deleted.segments:
            log.info("deleted: %s", segment.reason)

    def _damage_step(self) -> None:
        """Tell of damage that was met since the last look, at opening or by a reader."""
        damage = self.state.store.damage
        for each in damage[self._damage_told :]:
            log.error(
                "%d bytes of the log at %d cannot be read: %s", each.size_bytes, each.physical_offset, each.reason
            )
        self._damage_told = len(damage)

    def _prepare_step(self) -> None:
        self.state.store.prepare_once()

    def _sample_step(self) -> None:
        now_ms = self.state.now_ms()
        self.state.statistics.sample(now_ms, time.localtime(now_ms / 1000).tm_yday)

    def _check_transactions_step(self) -> None:
        self._transaction_check.check_once(self.state.now_ms())

    async def _delay_turn(self) -> None:
        """Deliver what is due, then sleep until the next is, or until another message is put aside."""
        self._delay_due.clear()
        now_ms = self.state.now_ms()
        times = [self._delayed.deliver_due(now_ms), self._timed.step(now_ms)]
        wait_ms = min([_DELAY_LOOK_MS, *(max(each - now_ms, 0) for each in times if each is not None)])
        try:
            # Not `wait_for`: in 3.11 it loses a cancellation that meets the event, and the broker would never stop.
            async with asyncio.timeout(wait_ms / 1000):
                await self._delay_due.wait()
        except TimeoutError:
            return


def _log_failure(loading: Future[None]) -> None:
    error = loading.exception()
    if error is not None:
        log.warning("the kernels for dispatch cannot be loaded, it goes on without them: %s", error)
