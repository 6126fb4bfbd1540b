"""How a store behaves: what decides its bytes, and what decides when they reach the disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.dispatch_marks import INLINE
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.storefiles.store_paths import StorePaths

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PropertyCrc:
    """What the settings ask for: without `append`, the store continues as its log ends."""

    append: bool | None = None
    verify: bool = False


@dataclass(frozen=True, slots=True)
class LightQueueConfig:
    """Whether light queues (LMQ) are enabled: both settings must be on for messages to enter them."""

    lmq: bool = False
    multi_dispatch: bool = False
    queues_max: int = 20_000


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Frozen: a store is opened with it and keeps it."""

    # What it does.
    geometry: StoreGeometry = field(default_factory=StoreGeometry)
    rules: DeriveRules = field(default_factory=DeriveRules)
    sync_flush: bool = False
    sync_flush_timeout_ms: int = 5_000
    message_bytes_max: int = 4 * _MIB
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    property_crc: PropertyCrc = field(default_factory=PropertyCrc)
    light_queues: LightQueueConfig = field(default_factory=LightQueueConfig)
    dispatch_engine: str = INLINE
    """Who derives queues and index: `inline`, the broker itself, or `spark`, a process outside that takes the lease."""

    is_replica: bool = False
    """The log is a copy of a master's: the store takes no messages of its own."""

    is_group_member: bool = False
    """The store belongs to a replica group: readers and dispatch end at the offset that the group has confirmed."""

    is_controlled: bool = False
    """The replica group is one of Apache's controller, whose members have files of Java's in their stores."""

    paths: StorePaths | None = None
    """Where the CommitLog is; None if it is below the root."""

    # How fast it does it.
    segment_allocate_bytes: int = 32 * _MIB

    def paths_of(self, root: Path) -> StorePaths:
        """Return the paths of the store at `root`."""
        return self.paths or StorePaths.below(root)
