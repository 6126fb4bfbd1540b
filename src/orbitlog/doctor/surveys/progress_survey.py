"""Progress survey: positions and times of delivery that the log contradicts, in `timercheck` and Orbitlog's own files.

A position past the end of a queue, or a time in the future, skips pending messages. A repair sets positions back
between the bounds of their queues; if the delivered messages are unknown, all count as not delivered.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from orbitlog.doctor.surveys.timer_survey import timer_checkpoint
from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE, TimerCheckpoint
from orbitlog.formats.tables.config_files import ConfigValue, config_codec
from orbitlog.formats.tables.pop_progress import POP_PROGRESS, PoppedQueueProgress, PopProgress
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS, TimerProgress
from orbitlog.jobs.rebuild.rebuild_plan import QueueEnds
from orbitlog.jobs.store_use import SHARED_USE, StoreUse
from orbitlog.storefiles.config_reading import is_readable, read_config
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.store_files import StoreFiles

# Clocks differ, and an idle broker notes later times than its last message: only a time well past both is invalid.
_AHEAD_MS_MAX = 24 * 3600 * 1000
Ends = Mapping[tuple[str, int], QueueEnds]


def progress_findings(store: StoreFiles, ends: Ends, last_ms: int, use: StoreUse = SHARED_USE) -> Iterator[Finding]:
    """Yield findings, none while a broker runs; `last_ms` is when the last message was stored."""
    if use.is_in_use(store):
        return
    latest_ms = latest_possible_ms(last_ms)
    checkpoint = timer_checkpoint(store)
    if checkpoint is not None:
        path = str(store.root / tree.CONFIG / TIMER_CHECKPOINT_FILE)
        if not 0 <= checkpoint.last_read_time_ms <= latest_ms or checkpoint.last_log_flush_position < 0:
            yield Finding(FindingKind.TIMER, path, f"records delivery up to {checkpoint.last_read_time_ms} ms")
        for reason in wrong_timer_offsets(checkpoint, ends):
            yield Finding(FindingKind.OFFSET, path, reason, topic=names.TIMER_TOPIC, queue_id=0)
    for name, repaired, reason in repaired_files(store, ends, latest_ms):
        if repaired is not None:
            yield Finding(FindingKind.OFFSET, str(store.root / tree.CONFIG / name), reason)


def latest_possible_ms(last_ms: int) -> int:
    """Return the latest time that may be noted as delivered; `last_ms` is when the last message was stored."""
    return max(last_ms, int(time.time() * 1000)) + _AHEAD_MS_MAX


def wrong_timer_offsets(checkpoint: TimerCheckpoint, ends: Ends) -> Iterator[str]:
    bounds = ends.get((names.TIMER_TOPIC, 0))
    for name in ("last_queue_offset", "master_queue_offset"):
        said = getattr(checkpoint, name)
        if said < 0 or (bounds is not None and said > bounds.next_offset):
            end = "" if bounds is None else f", the timer topic ends at {bounds.next_offset}"
            yield f"{name} is {said}{end}"


def repaired_files(store: StoreFiles, ends: Ends, latest_ms: int) -> Iterator[tuple[str, ConfigValue | None, str]]:
    timers = _read(store, TIMER_PROGRESS.name)
    if isinstance(timers, TimerProgress):
        yield TIMER_PROGRESS.name, *_repaired_timers(timers, ends, latest_ms)
    pops = _read(store, POP_PROGRESS.name)
    if isinstance(pops, PopProgress):
        kept = tuple(each for each in pops.queues if _can_be(each, ends))
        reason = f"{len(pops.queues) - len(kept)} queues have invalid POP positions"
        yield POP_PROGRESS.name, PopProgress(kept) if len(kept) < len(pops.queues) else None, reason


def _repaired_timers(said: TimerProgress, ends: Ends, latest_ms: int) -> tuple[TimerProgress | None, str]:
    bounds = ends.get((names.TIMER_TOPIC, 0))
    places = (said.queue_offset, said.first_pending)
    if not 0 <= said.done_to_ms <= latest_ms:
        return replace(said, done_to_ms=0, queue_offset=0, first_pending=0), (
            f"records delivery up to {said.done_to_ms} ms"
        )
    if min(places) < 0 or (bounds is not None and max(places) > bounds.next_offset):
        # The messages themselves have their due times, and `done_to_ms` separates the delivered ones.
        end = bounds.next_offset if bounds is not None else 0
        made = replace(said, queue_offset=max(min(said.queue_offset, end), 0), first_pending=0)
        return made, f"records that all before {max(places)} was read, the timer topic ends at {end}"
    return None, ""


def _can_be(said: PoppedQueueProgress, ends: Ends) -> bool:
    bounds = ends.get((said.topic, said.queue_id))
    end = bounds.next_offset if bounds is not None else said.next_to_pop
    return 0 <= said.committed <= said.next_to_pop <= end and said.queue_id >= 0


def _read(store: StoreFiles, name: str) -> ConfigValue | None:
    path = store.root / tree.CONFIG / name
    return config_codec(name).decode(read_config(path)) if is_readable(path) else None
