"""Offsets in force: chooses `lmqConsumerOffset.json` with `enableLmq=true`, else `consumerOffset.json`.

A Java broker reads the one that its setting names, and ignores the other. So after a change of the setting, or a line
lost from `broker.conf`, every group starts over. Orbitlog therefore compares both:

- The other table was saved earlier: it is obsolete and ignored.
- The other table was saved later, and has offsets that the one in force lacks or that are ahead: the broker refuses to
  start. Exception: with `enableLmq=true` and no `lmqConsumerOffset.json` yet, the offsets of `consumerOffset.json` are
  taken over; the setting was switched on deliberately, and from then on one table has all of them.

The later table is the one with the higher data version (5.x), or the clearly later modification time.
"""

from __future__ import annotations

import logging

from orbitlog.broker.tables.committed_offsets import CommittedOffsets, LightOffsets
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.broker.tables.topics import NowMs
from orbitlog.errors import StoreError
from orbitlog.formats.tables.offset_tables import (
    CONSUMER_OFFSET,
    LMQ_CONSUMER_OFFSET,
    ConsumerOffsets,
    LmqConsumerOffsets,
    TopicGroup,
)

log = logging.getLogger(__name__)

# Modification times of files copied one after the other, without their original times, differ by less than this.
_COPIED_WITHIN_MS = 60_000


def load_offsets(directory: ConfigDirectory, now_ms: NowMs, *, has_light_queues: bool) -> CommittedOffsets:
    """Return the committed offsets of a store that passed `check_offsets`."""
    if not has_light_queues:
        return CommittedOffsets(now_ms, directory.load(CONSUMER_OFFSET))
    light = directory.load(LMQ_CONSUMER_OFFSET)
    ordinary = directory.load(CONSUMER_OFFSET) if light is None else None
    if ordinary is None:
        return LightOffsets(now_ms, light)
    log.warning(
        "enableLmq=true and %s does not exist: the offsets of %s are taken over. A Java broker would not: with it every"
        " group starts over",
        LMQ_CONSUMER_OFFSET.name,
        CONSUMER_OFFSET.name,
    )
    taken = LightOffsets(now_ms, ordinary)
    taken.is_changed = True
    return taken


def check_offsets(directory: ConfigDirectory, *, has_light_queues: bool) -> None:
    """Raise a `StoreError` if the table that is not in force was saved later and has offsets that are ahead."""
    light = directory.load(LMQ_CONSUMER_OFFSET)
    if light is None:
        return
    ordinary = directory.load(CONSUMER_OFFSET)
    if has_light_queues:
        _check(directory, light, ordinary, (LMQ_CONSUMER_OFFSET.name, CONSUMER_OFFSET.name), "true")
    else:
        _check(directory, ordinary, light, (CONSUMER_OFFSET.name, LMQ_CONSUMER_OFFSET.name), "false")


def _check(
    directory: ConfigDirectory,
    in_force: ConsumerOffsets | None,
    other: ConsumerOffsets | None,
    file_names: tuple[str, str],
    setting: str,
) -> None:
    name, other_name = file_names
    if other is None or (in_force is not None and _is_later(directory, in_force, other, file_names)):
        return
    ahead = offsets_ahead(in_force or ConsumerOffsets(), other)
    if not ahead:
        return
    key, queue_id = ahead[0]
    opposite = "false" if setting == "true" else "true"
    raise StoreError(
        f"enableLmq={setting}, but {other_name} was saved after {name} and {len(ahead)} of its offsets are ahead, the"
        f" first of {key} queue {queue_id}: these groups would receive consumed messages a second time. Set"
        f" enableLmq={opposite}; or, if that file is obsolete, move {directory.path / other_name} out of the way"
    )


def _is_later(
    directory: ConfigDirectory, in_force: ConsumerOffsets, other: ConsumerOffsets, file_names: tuple[str, str]
) -> bool:
    """Return whether the table in force was saved after the other one."""
    if in_force.data_version.timestamp_ms > other.data_version.timestamp_ms:
        return True
    times_ms = [directory.modified_ms(name) for name in file_names]
    return None not in times_ms and (times_ms[0] or 0) > (times_ms[1] or 0) + _COPIED_WITHIN_MS


def offsets_ahead(in_force: ConsumerOffsets, other: ConsumerOffsets) -> list[tuple[TopicGroup, int]]:
    """Return the queues of `other` whose offset is missing or smaller in the table in force."""
    offsets, other_offsets = _all_offsets(in_force), _all_offsets(other)
    return [queue for queue, queue_offset in other_offsets.items() if queue_offset > offsets.get(queue, 0)]


def _all_offsets(table: ConsumerOffsets) -> dict[tuple[TopicGroup, int], int]:
    offsets = {(key, queue_id): offset for key, queues in table.offsets.items() for queue_id, offset in queues.items()}
    if isinstance(table, LmqConsumerOffsets):
        offsets |= {(key, 0): offset for key, offset in table.lmq_offsets.items()}
    return offsets
