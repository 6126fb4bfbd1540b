"""Table sync: copies topics, groups, offsets and timer progress from the master. Mirrors `SlaveSynchronize`.

Tables are replaced, except committed offsets, which are merged as in Java. The table saver makes them durable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from orbitlog.broker.delayed.delayed_delivery import DelayedDelivery
from orbitlog.broker.pop.request_modes import RequestModes
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.slave.paged_tables import GROUP_PAGES, TOPIC_PAGES, Page, PageFields, T, fetch_pages
from orbitlog.errors import FormatError, RemotingError
from orbitlog.formats.derived.timer_checkpoint import (
    TIMER_CHECKPOINT_FILE,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
)
from orbitlog.formats.tables.group_config import GroupTable, RequestModeTable
from orbitlog.formats.tables.json_records import JsonRecord
from orbitlog.formats.tables.offset_tables import ConsumerOffsets, DelayOffsets
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.registration_body import TopicWrapper
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

log = logging.getLogger(__name__)

_SECONDS = 30.0
R = TypeVar("R", bound=JsonRecord)


@dataclass(frozen=True, slots=True)
class CopiedTables:
    """The tables of a slave besides those of its state, and calls of the broker that save them."""

    delayed: DelayedDelivery
    modes: RequestModes
    forget_topics: Callable[[Collection[str]], Awaitable[None]]
    """Removes deleted topics from the tables of POP and of static topics."""
    save_file: Callable[[str, bytes], Awaitable[None]]
    """Replaces a file of the config directory, durably."""
    save_all: Callable[[], Awaitable[None]]
    """Saves topics, groups, request modes and offsets, durably."""


class CopiedProgress(NamedTuple):
    """Progress of consumers and deliveries, as a master had it; None for what it does not state."""

    offsets: ConsumerOffsets | None
    delays: DelayOffsets | None
    timers: TimerCheckpoint | None


class TableSync:
    """Copies the tables of one master."""

    def __init__(self, state: BrokerState, client: RemotingClient, tables: CopiedTables) -> None:
        self._state = state
        self._client = client
        self._tables = tables
        self._timers: TimerCheckpoint | None = None
        self._missing: set[int] = set()

    async def copy_all(self, master: str) -> None:
        """Copy each table; raise `RemotingError` if the master does not respond or an answer is invalid."""
        await self.copy_definitions(master)
        await self.take_progress(await self.fetch_progress(master))

    async def copy_definitions(self, master: str) -> None:
        """Copy topics, groups and request modes; raise `RemotingError` as `copy_all`."""
        await self._copy_topics(master)
        await self._copy_groups(master)
        modes = await self._fetch(master, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestModeTable)
        if modes is not None:
            self._tables.modes.copy_from(modes)

    async def fetch_progress(self, master: str) -> CopiedProgress:
        """Return offsets and timer progress of the master; raise `RemotingError` as `copy_all`."""
        offsets = await self._fetch(master, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets)
        delays = await self._fetch(master, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets)
        return CopiedProgress(offsets, delays, await self._fetch_timers(master))

    async def take_progress(self, progress: CopiedProgress) -> None:
        """Make the progress that of this broker. Its log must have what the progress has passed over."""
        if progress.offsets is not None:
            self._state.offsets.copy_from(progress.offsets)
        if progress.delays is not None:
            self._tables.delayed.copy_from(progress.delays)
        if progress.timers is not None and progress.timers != self._timers:
            # This broker continues from it if it becomes a master.
            await self._tables.save_file(TIMER_CHECKPOINT_FILE, encode_timer_checkpoint(progress.timers))
            self._timers = progress.timers

    async def save_all(self) -> None:
        """Return when the copied tables are synced."""
        await self._tables.save_all()

    async def _copy_groups(self, master: str) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        pages = await self._fetch_pages(master, code, GROUP_PAGES, GroupTable, lambda page: len(page.groups))
        if not pages or pages[0].data_version == self._state.groups.data_version:
            return
        groups = {name: group for page in pages for name, group in page.groups.items()}
        forbidden = {name: bits for page in pages for name, bits in page.forbidden.items()}
        self._state.groups.copy_from(replace(pages[0], groups=groups, forbidden=forbidden))

    async def _copy_topics(self, master: str) -> None:
        code, state = RequestCode.GET_ALL_TOPIC_CONFIG, self._state
        pages = await self._fetch_pages(master, code, TOPIC_PAGES, TopicWrapper, lambda page: len(page.topics))
        if not pages or pages[0].data_version == state.topics.data_version:
            return
        topics = {name: topic for page in pages for name, topic in page.topics.items()}
        # A master may have no entry for a topic of the broker itself, such as that of half messages in 4.9.7.
        missing = state.topics.copy_from(replace(pages[0], topics=topics))
        deleted = {topic for topic in missing if not state.topics.is_system(topic, state.settings)}
        if deleted:
            # Else a topic that is created under the same name later would have queues with messages of the old one.
            state.store.delete_topics(deleted.__contains__)
            await self._tables.forget_topics(deleted)
            log.info("deleted %d topics that the master does not have", len(deleted))

    async def _fetch_timers(self, master: str) -> TimerCheckpoint | None:
        answer = await self._ask(master, RequestCode.GET_TIMER_CHECK_POINT)
        if answer is None or not answer.body:
            return None
        try:
            return decode_timer_checkpoint(answer.body)
        except FormatError as error:
            raise RemotingError(f"timer checkpoint of master {master}: {error}") from error

    async def _fetch(self, master: str, code: RequestCode, kind: type[R]) -> R | None:
        answer = await self._ask(master, code)
        return None if answer is None else _decoded(master, code, kind, answer.body)

    async def _fetch_pages(
        self, master: str, code: RequestCode, fields: PageFields, kind: type[T], row_count: Callable[[T], int]
    ) -> list[T]:
        """Return the pages of a table; none if the master refuses."""
        return await fetch_pages(
            lambda ext_fields: self._ask(master, code, ext_fields),
            fields,
            lambda body: _decoded(master, code, kind, body),
            row_count,
        )

    async def _ask(self, master: str, code: RequestCode, ext_fields: Mapping[str, str] | None = None) -> Page | None:
        """Return the answer; None if the master refuses, as older versions do for tables they lack."""
        answer = await self._client.invoke(master, Command(code, ext_fields=dict(ext_fields or {})), _SECONDS)
        if answer.code == ResponseCode.SUCCESS:
            self._missing.discard(code)
            return Page(answer.ext_fields, answer.body)
        if code not in self._missing:
            self._missing.add(code)
            level = logging.DEBUG if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED else logging.WARNING
            log.log(level, "master %s does not answer %s: %s (code %d)", master, code.name, answer.remark, answer.code)
        return None


def _decoded(master: str, code: RequestCode, kind: type[R], body: bytes) -> R:
    try:
        return decode_body(kind, body)
    except FormatError as error:
        raise RemotingError(f"answer of master {master} to {code.name}: {error}") from error
