"""Broker state: settings, store and tables that the handlers and loops of one broker share."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path

from orbitlog.broker.pulling.group_filters import GroupFilters
from orbitlog.broker.pulling.held_requests import HeldRequests
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.listen_address import advertised_addresses
from orbitlog.broker.tables.clients import Clients
from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.broker.tables.groups import Groups
from orbitlog.broker.tables.queue_locks import QueueLocks
from orbitlog.broker.tables.statistics import Statistics
from orbitlog.broker.tables.topics import NowMs, Topics
from orbitlog.formats.compat import Compat
from orbitlog.formats.delay_levels import DelayLevels
from orbitlog.formats.hosts import IPV6_HOST_BYTES, Host
from orbitlog.formats.records import flags
from orbitlog.observe.conditions import Conditions
from orbitlog.remoting.connection import Connection
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.queue_reader import ReadLimits

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class BrokerEvents:
    """Callbacks of the broker that its state and tables invoke; all of them in the thread of the event loop.

    They are called only after the broker is built: loading the tables changes them without an event.
    """

    message_appended: Callable[[], None]
    """Plans dispatch, and a flush if responses wait for one. Call it after every append."""
    topics_changed: Callable[[], None]
    """Saves the topic table and registers it with the name servers."""
    save_soon: Callable[[], None]
    """Saves topics, groups, filters and request modes in the background. Call it after one of them changed."""
    save_tables: Callable[[], Awaitable[None]]
    """Returns when these, as they are now, are synced."""


@dataclass
class BrokerState:
    """One broker's state. Used in the thread of the event loop only: its tables have no locks."""

    root: Path
    settings: BrokerSettings
    store: MessageStore
    compat: Compat
    delay_levels: DelayLevels
    topics: Topics
    groups: Groups
    offsets: CommittedOffsets
    filters: GroupFilters
    now_ms: NowMs
    statistics: Statistics
    message_appended: Callable[[], None]
    """See `BrokerEvents`; a field, not a method, because each send calls it."""
    events: BrokerEvents
    clients: Clients = field(default_factory=Clients)
    locks: QueueLocks = field(default_factory=QueueLocks)
    listen_port: int = 0
    is_stopping: bool = False
    conditions: Conditions = field(default_factory=Conditions)

    def __post_init__(self) -> None:
        self.limits = self.settings.limits()
        # Records hold an IP address: a host name is resolved once, as Java does.
        self.advertised_ips = advertised_addresses(self.settings)

    @cached_property
    def held_requests(self) -> HeldRequests:
        """Long polls, counted against their limits."""
        return HeldRequests(self.limits)

    @property
    def broker_name(self) -> str:
        return self.settings[keys.BROKER_NAME]

    @property
    def cluster_name(self) -> str:
        return self.settings[keys.CLUSTER_NAME]

    @property
    def read_limits(self) -> ReadLimits:
        settings = self.settings
        return ReadLimits(
            count_in_memory=settings[keys.COUNT_IN_MEMORY],
            bytes_in_memory=settings[keys.BYTES_IN_MEMORY],
            count_on_disk=settings[keys.COUNT_ON_DISK],
            bytes_on_disk=settings[keys.BYTES_ON_DISK],
            memory_bytes=self.memory_bytes,
        )

    @property
    def memory_bytes(self) -> int:
        """Bytes at the end of the log that are assumed to be in memory."""
        return _machine_memory_bytes() * self.settings[keys.MEMORY_PERCENT] // 100

    def address_for(self, connection: Connection) -> str:
        """Return the broker's address for this client: the one it connected to, unless `brokerIP1` is set."""
        ip = self.settings[keys.ADVERTISED_ADDRESS] or connection.local_address[0] or _LOOPBACK
        return f"[{ip}]:{self.listen_port}" if ":" in ip else f"{ip}:{self.listen_port}"

    def store_host_raw(self, connection: Connection | None) -> bytes:
        """Return the broker's address as records and message ids contain it."""
        dialled = connection.local_address[0] if connection is not None else ""
        ip = self.advertised_ips[0] if self.advertised_ips else dialled or _LOOPBACK
        return host_raw(ip, self.listen_port)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset of the next message; 0 if the queue does not exist."""
        queue = self.store.queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.store.queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store timestamp of a message; -1 if it does not exist."""
        queue = self.store.queue(topic, queue_id)
        entry = None if queue is None or queue_offset < 0 else queue.entry(queue_offset)
        message = None if entry is None else self.store.read_at(entry.physical_offset)
        return -1 if message is None else message.store_timestamp_ms

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a message exists and is recent enough to be in memory."""
        queue = self.store.queue(topic, queue_id)
        entry = None if queue is None else queue.entry(queue_offset)
        return entry is not None and self.store.written_to - entry.physical_offset <= self.memory_bytes


@lru_cache(maxsize=8192)
def host_raw(ip: str, port: int) -> bytes:
    """Return address and port as in records; IPv4 if possible, because old clients read nothing else."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        address = ipaddress.ip_address(_LOOPBACK)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return Host(address.packed, port).encode()


def host_bits(born_raw: bytes, store_raw: bytes) -> int:
    """Return the bits of sysFlag that record whether the two hosts of a record are IPv6."""
    bits = flags.BORN_HOST_IPV6 if len(born_raw) == IPV6_HOST_BYTES else 0
    return bits | (flags.STORE_HOST_IPV6 if len(store_raw) == IPV6_HOST_BYTES else 0)


@cache
def _machine_memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 8 * 1024**3
