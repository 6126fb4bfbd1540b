"""Opening of a broker: opens its store, with recovery if needed, and loads the tables of its config directory."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from orbitlog.broker.pulling.group_filters import GroupFilters
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.broker_state import BrokerEvents, BrokerState
from orbitlog.broker.runtime.replication_settings import CONTROLLER_MODE
from orbitlog.broker.tables.config_directory import BROKER_TABLES, ConfigDirectory
from orbitlog.broker.tables.groups import Groups, LightGroups
from orbitlog.broker.tables.offsets_in_force import check_offsets, load_offsets
from orbitlog.broker.tables.statistics import Statistics
from orbitlog.broker.tables.table_limits import TableLimit
from orbitlog.broker.tables.topics import LightTopics, NowMs, Topics
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE
from orbitlog.formats.tables.group_config import CONSUMER_FILTER, SUBSCRIPTION_GROUP
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET
from orbitlog.formats.tables.topic_config import TOPICS
from orbitlog.settings import store_settings
from orbitlog.settings.limits import GROUPS as GROUP_LIMIT
from orbitlog.settings.limits import TOPICS as TOPIC_LIMIT
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.disk import Disk, RealDisk
from orbitlog.storefiles.found_config import find_config
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_contents import refuse_wrong_kinds
from orbitlog.storefiles.store_paths import StorePaths, ignored_paths

log = logging.getLogger(__name__)

# A broker's limit may change while it runs, a store's may not; a store's only has to fit a frame.
_MESSAGE_BYTES_MAX = 16 * 1024 * 1024


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class OpenStore(NamedTuple):
    """A store that a broker will serve, and the directory of the broker's tables."""

    store: MessageStore
    rules: DeriveRules
    directory: ConfigDirectory


def open_broker_store(
    settings: BrokerSettings,
    root: Path,
    *,
    now_ms: NowMs = clock_ms,
    progress: Progress | None = None,
    disk: Disk | None = None,
) -> OpenStore:
    """Open the store at `root`; create it if it does not exist. Any thread may call this, as it mostly waits for I/O.

    A `disk` other than the machine's must be empty.
    """
    disk = disk or RealDisk()
    refuse_wrong_kinds(root, disk)  # the tables below are read before the store is opened
    config = _store_config(settings, root, disk)
    for ignored in ignored_paths(root, settings.store):
        log.warning("%s", ignored.sentence)
    directory = ConfigDirectory(disk, root, config.rules.compat)
    for file in BROKER_TABLES:  # an unreadable one refuses the store before recovery changes it
        directory.check(file)
    check_offsets(directory, has_light_queues=settings.store.value(store_settings.LMQ))
    _check_tables(settings, config.paths_of(root), directory, disk)
    store = MessageStore.open(root, config, now_ms, disk, progress=progress, sleep=time.sleep)
    for notice in store.notices:
        log.warning("%s", notice)
    return OpenStore(store, config.rules, directory)


def _check_tables(settings: BrokerSettings, paths: StorePaths, directory: ConfigDirectory, disk: Disk) -> None:
    """Refuse a store with a log but without tables that it must have had."""
    if settings.is_slave or settings[CONTROLLER_MODE]:
        # It gets its tables from its master. One that a controller elects may lack the last of them: it must serve.
        return
    tables = (file.name for file in (TOPICS, SUBSCRIPTION_GROUP, CONSUMER_OFFSET, DELAY_OFFSET))
    is_complete = all(map(directory.has, (*tables, TIMER_CHECKPOINT_FILE)))
    if is_complete or not any(disk.list_directory(path) for path in paths.log_directories):
        return
    from orbitlog.broker.tables.missing_tables import refuse_missing_tables  # most stores are complete, or new

    for sentence in refuse_missing_tables(paths, disk):
        log.warning("%s", sentence)


def take_broker_state(
    settings: BrokerSettings, root: Path, opened: OpenStore, events: BrokerEvents, *, now_ms: NowMs = clock_ms
) -> BrokerState:
    """Load the tables of an opened store; close the store if that fails."""
    with ExitStack() as undo:
        undo.callback(opened.store.close)
        state = load_broker_state(
            settings, root, opened.store, opened.rules, opened.directory, events=events, now_ms=now_ms
        )
        undo.pop_all()
    return state


def load_broker_state(
    settings: BrokerSettings,
    root: Path,
    store: MessageStore,
    rules: DeriveRules,
    directory: ConfigDirectory,
    *,
    events: BrokerEvents,
    now_ms: NowMs = clock_ms,
) -> BrokerState:
    """Build the state that the handlers of a broker share, from an open store and the tables of its directory."""
    has_light_queues = settings.store.value(store_settings.LMQ)
    topics = (LightTopics if has_light_queues else Topics)(now_ms, events.topics_changed, directory.load(TOPICS))
    topics.create_system_topics(settings)
    state = BrokerState(
        root=root,
        settings=settings,
        store=store,
        compat=rules.compat,
        delay_levels=rules.delay_levels,
        topics=topics,
        groups=(LightGroups if has_light_queues else Groups)(
            now_ms, events.save_soon, directory.load(SUBSCRIPTION_GROUP)
        ),
        offsets=load_offsets(directory, now_ms, has_light_queues=has_light_queues),
        filters=GroupFilters(now_ms, directory.load(CONSUMER_FILTER)),
        now_ms=now_ms,
        statistics=Statistics(now_ms()),
        message_appended=events.message_appended,
        events=events,
    )
    state.filters.limits = state.offsets.limits = state.limits
    state.topics.admit = TableLimit(state.limits, TOPIC_LIMIT, "topics").admit
    state.groups.admit = TableLimit(state.limits, GROUP_LIMIT, "groups").admit
    return state


def _store_config(settings: BrokerSettings, root: Path, disk: Disk) -> StoreConfig:
    """Return the store's configuration: an operator's settings first, then what its files contain, then defaults."""
    disk.make_directory(root)
    return replace(
        find_config(root, settings.store, disk),
        sync_flush=settings.flushes_before_answer,
        sync_flush_timeout_ms=settings[keys.FLUSH_TIMEOUT_MS],
        message_bytes_max=_MESSAGE_BYTES_MAX,
        dispatch_engine=settings[keys.DISPATCH_ENGINE],
        is_replica=settings.is_slave,
        is_group_member=settings.is_group_member,
        is_controlled=settings[CONTROLLER_MODE],
    )
