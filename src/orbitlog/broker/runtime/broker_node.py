"""Broker: one store served over RocketMQ's protocol; wiring and life cycle of its parts. Mirrors `BrokerController`.

Threads: the event loop's thread runs handlers, dispatch and the loops; the disk thread flushes; the table saver, the
group commit and the dispatch scheduler have one thread each (`table_saver`, `group_commit`, `dispatch_scheduler`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.access.access_settings import INNER_CREDENTIALS
from orbitlog.broker.admin.admin_table import AdminNeeds, admin_table
from orbitlog.broker.admin.handle_clients import ClientHandlers
from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.delayed.delivery_loop import DeliveryLoop
from orbitlog.broker.delayed.timed_delivery import TimedDelivery
from orbitlog.broker.delayed.timer_handover import TimerHandOver
from orbitlog.broker.pop.pop_consumption import PopConsumption
from orbitlog.broker.pulling.handle_pull import PullHandler
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from orbitlog.broker.runtime.broker_access import guard_paths, load_access, publishing_check
from orbitlog.broker.runtime.broker_opening import OpenStore, clock_ms, open_broker_store, take_broker_state
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.broker_state import BrokerEvents, BrokerState
from orbitlog.broker.runtime.dispatch_scheduler import DispatchScheduler
from orbitlog.broker.runtime.listen_address import with_listen_address
from orbitlog.broker.runtime.listeners import Listeners
from orbitlog.broker.runtime.maintenance import Maintenance
from orbitlog.broker.runtime.master_role import MasterRole, replica_acks
from orbitlog.broker.runtime.registration import Registration
from orbitlog.broker.runtime.replication_settings import SLAVE_TIMEOUT_MS
from orbitlog.broker.runtime.request_router import HandlerSet, RequestRouter
from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.broker.sending.handle_send import SendHandler
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.tables.table_saver import TableSaver
from orbitlog.broker.tables.topics import NowMs
from orbitlog.broker.transactions.half_messages import HalfMessages
from orbitlog.broker.transactions.handle_transactions import TransactionHandler
from orbitlog.broker.transactions.transaction_check import TransactionCheck
from orbitlog.broker.transactions.transaction_ends import TransactionEnds
from orbitlog.errors import StoreError
from orbitlog.formats.tables.offset_tables import DELAY_OFFSET
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.observe.metrics_settings import DISABLE, EXPORTER, SLOW_REQUEST_MS, check_export
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Address, FastPath, Handler
from orbitlog.remoting.request_dispatch import LongRequests, without_administration
from orbitlog.settings.listen_exposure import AnonymousAccess
from orbitlog.settings.setting import SettingError
from orbitlog.settings.tls_settings import check_tls
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.storefiles.disk import Disk
from orbitlog.wire.command import Command

if TYPE_CHECKING:
    import ssl

    from orbitlog.access.access_control import AccessControl
    from orbitlog.access.account_quotas import AccountQuotas
    from orbitlog.broker.metrics.broker_meters import BrokerMeters
    from orbitlog.broker.replicas.broker_group import BrokerGroup
    from orbitlog.broker.runtime.condition_watch import ConditionWatch
    from orbitlog.broker.sending.flush_queue import ReplicaMark
    from orbitlog.broker.slave.slave_role import SlaveRole
    from orbitlog.observe.conditions import Conditions
    from orbitlog.remoting.tls.server_tls import ServerTls

log = logging.getLogger(__name__)

_HELD_PULLS_MS = 500
_POP_MS = 100
_RELOAD_ACCOUNTS_MS = 2_500  # a change is in force after two comparisons
_RELOAD_CERTIFICATES_MS = 5_000
_CLIENT_SCAN_MS = 10_000
_REGISTER_RETRY_MS = 1_000
_FIRST_SAVE_S = 1.0
_CONDITIONS_MS = 1_000


class Broker:
    """Serves one store. Use it from one event loop: `await start()`, `await stop()`.

    With a `group` the broker is a member of a replica group, in the role that the settings state. `conditions` are
    those of another server in this process, to which the broker adds its own.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        root: Path,
        *,
        now_ms: NowMs = clock_ms,
        progress: Progress | None = None,
        disk: Disk | None = None,
        opened: OpenStore | None = None,
        access: AccessControl | None = None,
        group: BrokerGroup | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        settings = _checked(settings, group)
        self._access = access or load_access(settings, root)
        tls, client_tls = _load_tls(settings)
        opened = opened or open_broker_store(settings, root, now_ms=now_ms, progress=progress, disk=disk)
        directory, save_wanted = opened.directory, asyncio.Event()
        events = BrokerEvents(self._message_appended, self._topics_changed, save_wanted.set, self._save_tables)
        self.state = state = take_broker_state(settings, root, opened, events, now_ms=now_ms)
        if conditions is not None:
            state.conditions = conditions
        self._disk_thread = ThreadPoolExecutor(1, "orbitlog-disk")
        self._client = group.client if group else RemotingClient(sign=_signer(self._access, settings), tls=client_tls)
        self._registration = Registration(state, self._client, lambda: self._master.port)
        writer = MessageWriter(state)
        meters = _make_meters(state, writer)
        flush_log = state.store.flush_log if meters is None else meters.timed_flush(state.store.flush_log)
        timer_files = TimerHandOver(root, disk, _timer_log_bytes(settings))
        self._delayed = DelayedDelivery(state, writer, directory.load(DELAY_OFFSET))
        self._timed = TimedDelivery(state, writer, directory.load(TIMER_PROGRESS), timer_files)
        deliveries = DeliveryLoop(self._delayed, self._timed, state.now_ms)
        self._pulls = PullHandler(state)
        self._pops = PopConsumption(state, writer, directory, self._client, self._timed.settled_to_ms)
        self._saver = TableSaver(
            state,
            directory,
            self._disk_thread,
            wanted=save_wanted,
            delayed=self._delayed,
            timed=self._timed,
            pops=self._pops,
        )
        self._maintenance = Maintenance(state, self._disk_thread, flush_log)
        self._scheduler = DispatchScheduler(state, self._pulls, self._pops, deliveries)
        acks = replica_acks(settings) if group is None else None
        self._flushes = _make_flush_queue(settings, self._after_flush, flush_log, group.acks if group else acks)
        replicated = self._flushes.send_durable if self._flushes else _nothing
        is_open = self._access is None
        self._master = group.make_port(state) if group else MasterRole(state, acks, replicated, admits_local=is_open)
        may_publish = publishing_check(self._access)
        halves = HalfMessages(state, writer)
        ends = TransactionEnds(halves)
        transactions = TransactionHandler(state, halves, ends, self._flushes, may_publish=may_publish)
        self._transaction_check = TransactionCheck(state, halves, transactions.can_ask, transactions.ask)
        self._sends = SendHandler(
            state, writer, halves, ends, self._flushes, quotas=_quotas(self._access), may_publish=may_publish
        )
        self._clients = ClientHandlers(state)
        self._slave = self._make_slave(group) if settings.is_slave else None
        handlers = HandlerSet(self._sends, transactions, self._pulls, self._clients, self._pops)
        table = {**handlers.table(state, writer, self._flushes), **admin_table(state, self._admin_needs())}
        table = self._restricted(table, group)
        router = RequestRouter(state.topics, self._scheduler, handlers, table, self._publish_topics)
        self._listeners = self._make_listeners(router.serve, meters, tls)
        self._loops = BackgroundLoops(state.conditions)

    def _restricted(self, table: dict[int, Handler], group: BrokerGroup | None) -> dict[int, Handler]:
        """Return the handlers as the role and the exposure of this broker restrict them.

        Requests about a replica group are added first, so that an exposed broker refuses those that administer as well.
        """
        settings = self.state.settings
        if group is not None:
            table = group.extended(table, is_master=self._slave is None)
        if self._slave is not None:
            from orbitlog.broker.slave.slave_requests import slave_table

            table = slave_table(table)
        if settings.is_exposed and self._access is None and settings[keys.ALLOW_ANONYMOUS] is not AnonymousAccess.ALL:
            table = without_administration(table, "broker", settings[keys.BIND_ADDRESS])
        return LongRequests(self.state.limits).table(table)

    def _make_listeners(self, handler: Handler, meters: BrokerMeters | None, tls: ServerTls | None) -> Listeners:
        """Return the listeners; they pass admitted requests only if access control is on, and measure with metrics."""
        state, fast_path = self.state, self._sends.fast_path
        paths: tuple[Handler, FastPath] = handler, fast_path
        if self._access is not None:
            self._access.create_first_users()
            audit_file = self._access.options.audit_file or state.root / "logs" / "access.log"
            self._access.start_audit(audit_file, state.now_ms)
            paths = guard_paths(self._access, state.store, handler, fast_path)
        if meters is None:
            return Listeners(state, *paths, is_guarded=self._access is not None, tls=tls)
        from orbitlog.broker.metrics.broker_meters import MeteredParts

        paths = meters.metered(*paths, waits=self._flushes is not None)
        listeners = Listeners(state, *paths, is_guarded=self._access is not None, tls=tls)
        consumption = (self._timed, self._pulls, self._pops)
        meters.observe(
            MeteredParts(*consumption, self._flushes, self._master, self._registration, self._access, self._slave),
            listeners,
        )
        listeners.meters = meters
        return listeners

    def _make_slave(self, group: BrokerGroup | None) -> SlaveRole:
        """Return the role of a slave; most brokers have none, so it is imported here."""
        from orbitlog.broker.slave.slave_role import SlaveRole
        from orbitlog.broker.slave.table_sync import CopiedTables, TableSync

        if self._access is None and self.state.settings[INNER_CREDENTIALS] is not None:
            log.warning(
                "this slave serves copied messages without credentials, although its master checks them; set"
                " authenticationEnabled=true or aclEnable=true here as well"
            )
        saver = self._saver
        copied = CopiedTables(
            self._delayed, self._pops.modes, saver.forget_topics, saver.save_file, saver.save_tables_and_offsets
        )
        tables = TableSync(self.state, self._client, copied)
        if group is not None:
            return group.make_slave(self.state, self._client, tables)
        slave = SlaveRole(self.state, self._client, tables)
        self._registration.answered = slave.found_master
        return slave

    # Life cycle

    async def start(self) -> None:
        """Listen, register with the name servers and start the loops; return when clients can connect."""
        loop = asyncio.get_running_loop()
        await self._listeners.start()
        self.state.listen_port = self._listeners.address[1]
        await self._master.start()
        # Saved a little later: a first send would wait for this save, and then for one with the topic that it creates.
        loop.call_later(_FIRST_SAVE_S, self._saver.wanted.set)
        self._scheduler.start(loop)
        await self._registration.announce()
        self._listeners.warn_of_exposure()
        self._maintenance.start(self._loops)
        self._start_loops()

    async def stop(self, *, for_role: bool = False) -> None:
        """Answer the requests taken so far, unregister, and close the store so that it needs no recovery.

        With `for_role` the store is opened in another role at once: the broker stays registered, and appends nothing.
        """
        self.state.is_stopping = True
        if not for_role:
            await self._registration.unregister()
        await self._loops.stop()
        self._pulls.answer_all()
        self._pops.answer_all()
        await self._listeners.stop()
        # After the listeners: their last requests may wait for a flush, or for a slave.
        if self._flushes is not None:
            await self._flushes.close()
        await self._master.stop()
        await self._registration.close()
        if not for_role:
            await self._client.close()
        if self._slave is None and not self._master.is_in_group:
            await self._hand_over()
        await self._saver.close()
        if self._access is not None:
            self._access.close()
        # Not in the loop's thread: a member of a replica group renews its lease meanwhile.
        await asyncio.to_thread(self._disk_thread.shutdown)
        self._scheduler.close()
        await asyncio.to_thread(self.state.store.close)

    async def _hand_over(self) -> None:
        """Write POP checkpoints and timer files for the next broker, after the log that they refer to is flushed."""
        try:
            self._pops.hand_over()
            await self._saver.flush_log()
            self._scheduler.dispatch_all()
            self._timed.take_all()
        except StoreError as error:
            log.error("could not write timer files for a Java broker: %s", error)
        else:
            self._timed.hand_over(self.state.now_ms())

    # Replica groups

    def confirmed(self, physical_offset: int) -> None:
        """Answer sends, and let readers read, up to the offset that the replica group has confirmed."""
        self.state.store.confirm(physical_offset)
        if self._flushes is not None:
            self._flushes.send_durable()
        self._scheduler.plan()

    def fence(self, reason: str) -> None:
        """Accept no messages from now on, and refuse the sends that wait; an empty reason accepts them again."""
        self.state.store.availability.fence(reason)
        if reason and self._flushes is not None:
            self._flushes.refuse_waiting(reason)

    def answer_durable(self) -> None:
        """Answer sends whose records are durable; after each turn of the loop in which a group's master appended."""
        if self._flushes is not None:
            self._flushes.send_durable()

    @property
    def client(self) -> RemotingClient:
        """Connections to name servers and other brokers."""
        return self._client

    @property
    def registration(self) -> Registration:
        """Registration with the name servers."""
        return self._registration

    @property
    def root(self) -> Path:
        """The store's directory."""
        return self.state.root

    @property
    def address(self) -> Address:
        """Host and port that the broker listens on; it must have been started."""
        return self._listeners.address

    @property
    def meters(self) -> BrokerMeters | None:
        """Metrics and the address of their port; None if they are off."""
        return self._listeners.meters

    @property
    def slave(self) -> SlaveRole | None:
        """The role of a broker that copies a master; None for a master."""
        return self._slave

    def hand_over_dispatch(self) -> None:
        """Let an engine in another process dispatch from now on, and follow it."""
        self._scheduler.hand_over()

    def take_back_dispatch(self) -> bool:
        """Dispatch in this process from now on. Return False while the other engine finishes: then retry."""
        return self._scheduler.take_back()

    # Wiring

    def _message_appended(self) -> None:
        if self._flushes is None or not self.state.settings.flushes_before_answer:
            self._scheduler.plan()
            self._master.appended()
        else:
            # Also if no response waits for the flush: a message that the broker itself delivered, committed or requeued
            # is dispatched only after it is flushed.
            self._flushes.flush_soon()

    def _after_flush(self) -> None:
        """Dispatch flushed records and send them to slaves."""
        self._scheduler.plan()
        self._master.appended()

    def _topics_changed(self) -> None:
        self._saver.wanted.set()
        self._registration.changed.set()
        if self._flushes is not None:
            # A send is acknowledged only after the topic that it created has been saved as well, and replicated.
            self._flushes.hold(self._saver.begin_tables())
            replicated = self._master.replicate_tables()
            if replicated is not None:
                self._flushes.hold(replicated)

    async def _save_tables(self) -> None:
        await self._saver.save_tables()

    async def _publish_topics(self) -> None:
        """Return when changed topics and groups are saved and registered with the name servers.

        Both start at once, so that the loops woken by the same change share the two calls.
        """
        saving = self._saver.begin_tables()
        await self._registration.announce()
        await asyncio.shield(saving)

    def _admin_needs(self) -> AdminNeeds:
        return AdminNeeds(
            publish_topics=self._publish_topics,
            save_groups=self._save_tables,
            forget_topics=self._saver.forget_topics,
            delete_expired=self._maintenance.delete_expired,
            wake_queue=self._pulls.wake_queue,
            delayed=self._delayed,
            access=self._access,
            master=self._master,
            timed=self._timed,
            slave=self._slave,
        )

    def _start_loops(self) -> None:
        state, settings, loops = self.state, self.state.settings, self._loops
        saver, registration = self._saver, self._registration
        loops.every("check of held pulls", lambda: _HELD_PULLS_MS, lambda: self._pulls.tick(state.now_ms()))
        loops.every("client scan", lambda: _CLIENT_SCAN_MS, lambda: self._clients.scan(state.now_ms()))
        loops.every("saving of offsets", lambda: settings[keys.OFFSET_SAVE_INTERVAL_MS], saver.save_offsets)
        loops.every("saving of delay offsets", lambda: settings[keys.DELAY_SAVE_INTERVAL_MS], saver.save_delays)
        loops.whenever("saving of tables", saver.wanted, saver.save_tables)
        loops.every("registration", lambda: settings[keys.REGISTER_INTERVAL_MS], registration.register)
        loops.every("registration after a lost connection", lambda: _REGISTER_RETRY_MS, registration.register_lost)
        loops.whenever("registration of changed topics", registration.changed, registration.announce)
        if self._access is not None:
            loops.every("reload of accounts", lambda: _RELOAD_ACCOUNTS_MS, self._reload_accounts)
        if self._listeners.tls is not None:
            loops.every("reload of certificates", lambda: _RELOAD_CERTIFICATES_MS, self._reload_certificates)
        if self._slave is None:
            self._start_deliveries()
        else:
            self._slave.start(loops)
        if settings[keys.DISPATCH_ENGINE] != "inline":
            self._scheduler.start_following(loops)
        loops.every("report of conditions", lambda: _CONDITIONS_MS, self._check_conditions)

    def _start_deliveries(self) -> None:
        """Start the loops that append messages, which only a master does."""
        state, settings, loops = self.state, self.state.settings, self._loops
        loops.every("check of POP requests", lambda: _POP_MS, lambda: self._pops.tick(state.now_ms()))
        loops.every("transaction check", lambda: settings[keys.TRANSACTION_CHECK_INTERVAL_MS], self._check_transactions)
        loops.run("delivery of scheduled messages", self._scheduler.deliveries.run_once)

    def _reload_accounts(self) -> None:
        if self._access is not None:
            self._access.check()

    def _reload_certificates(self) -> None:
        if self._listeners.tls is not None:
            self._listeners.tls.reload()

    @cached_property
    def _condition_watch(self) -> ConditionWatch:
        from orbitlog.broker.runtime.condition_watch import ConditionWatch  # a start does not wait for it

        tls, quotas = self._listeners.tls, _quotas(self._access)
        return ConditionWatch(self.state, master=self._master, slave=self._slave, tls=tls, quotas=quotas)

    def _check_conditions(self) -> None:
        self._condition_watch.check()

    def _check_transactions(self) -> None:
        self._transaction_check.check_once(self.state.now_ms())


def _checked(settings: BrokerSettings, group: BrokerGroup | None) -> BrokerSettings:
    """Return the settings with a listen address; raise a `SettingError` if they are those of a group's member alone."""
    check_export(settings.__getitem__)  # before the store is opened: a refused start leaves it as it is
    if group is None and settings.is_group_member:
        raise SettingError(
            "replicaCoordinator and enableControllerMode are for `orbitlog broker`: another server would serve the"
            " store without an election"
        )
    return with_listen_address(settings)


def make_client(settings: BrokerSettings, root: Path) -> RemotingClient:
    """Return connections to name servers and brokers that outlive a broker: those of a member of a replica group."""
    return RemotingClient(sign=_signer(load_access(settings, root), settings), tls=_load_tls(settings)[1])


def _signer(access: AccessControl | None, settings: BrokerSettings) -> Callable[[Command], None] | None:
    """Return the call that signs requests to name servers and other brokers, if credentials are set.

    They may check requests although this broker does not.
    """
    credentials = settings[INNER_CREDENTIALS] if access is None else access.inner_credentials
    return None if credentials is None else credentials.sign


def _quotas(access: AccessControl | None) -> AccountQuotas | None:
    return None if access is None else access.quotas


def _make_flush_queue(
    settings: BrokerSettings, flushed: Callable[[], None], flush: Callable[[], int], acks: ReplicaMark | None
) -> FlushQueue | None:
    """Return the queue of responses that wait for a flush, for slaves or for both; None if none waits."""
    flushes = settings.flushes_before_answer
    if not flushes and acks is None:
        return None
    # Read at each request: an operator may change the timeout while the broker runs.
    timeout_ms = partial(settings.__getitem__, keys.FLUSH_TIMEOUT_MS if acks is None else SLAVE_TIMEOUT_MS)
    slow_ms = settings[SLOW_REQUEST_MS]
    return FlushQueue(flush if flushes else None, flushed, timeout_ms, acks, slow_ms / 1000 if slow_ms else math.inf)


def _make_meters(state: BrokerState, writer: MessageWriter) -> BrokerMeters | None:
    """Return the meters of a broker with metrics, and let them count what it stores; None without metrics."""
    if state.settings[EXPORTER] == DISABLE:
        return None
    from orbitlog.broker.metrics.broker_meters import BrokerMeters  # which most brokers do not need

    return BrokerMeters(state, writer)


def _nothing() -> None:
    pass


def _load_tls(settings: BrokerSettings) -> tuple[ServerTls | None, ssl.SSLContext | None]:
    """Return TLS of the ports and of connections to other servers, each None if it is off."""
    options = check_tls(settings.texts)
    if options is None:
        return None, None
    from orbitlog.remoting.tls.tls_loading import load_client_tls, load_server_tls

    return load_server_tls(options), load_client_tls(options)


def _timer_log_bytes(settings: BrokerSettings) -> int | None:
    """Return the size of a timer log file if it is set; None infers it from the files."""
    return settings[keys.TIMER_LOG_BYTES] if keys.TIMER_LOG_BYTES.key in settings.texts else None
