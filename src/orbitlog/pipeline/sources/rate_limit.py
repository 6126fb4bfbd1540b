"""Rate limits: divides the limit of a micro-batch among queues in proportion to their backlogs, starving none.

Prorates as Spark's Kafka source does for `maxOffsetsPerTrigger`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from orbitlog.pipeline.sources.topic_offsets import Offsets, QueueKey

SizesFrom = Callable[[QueueKey, int, int, int], list[int]]
"""Takes queue, first offset, end offset and a limit in bytes; returns record sizes until the limit is passed."""


def limit_offsets(start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], offsets_max: int) -> Offsets:
    """Return an end about `offsets_max` messages after `start`; every queue with a backlog gets at least one."""
    backlog = {key: stop - start.get(key, stop) for key, stop in end.items()}
    total = sum(max(count, 0) for count in backlog.values())
    if total <= offsets_max:
        return dict(end)
    result: Offsets = {}
    for key, stop in end.items():
        share = offsets_max * max(backlog[key], 0) / total
        step = math.ceil(share) if share < 1 else math.floor(share)
        result[key] = min(start.get(key, stop) + step, stop) if backlog[key] > 0 else stop
    return result


def limit_bytes(
    start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], bytes_max: int, sizes_from: SizesFrom
) -> Offsets:
    """Return an end at most about `bytes_max` bytes of records after `start`, and at least one message after it."""
    sizes = {
        key: sizes_from(key, start[key], stop, bytes_max) for key, stop in end.items() if start.get(key, stop) < stop
    }
    if sum(map(sum, sizes.values())) <= bytes_max:
        return dict(end)
    # A queue counts for at most the limit: `sizes_from` stops there, so the rest of its backlog is unknown.
    total = sum(min(sum(queue_sizes), bytes_max) for queue_sizes in sizes.values())
    result = dict(end)
    for key, queue_sizes in sizes.items():
        share = bytes_max * min(sum(queue_sizes), bytes_max) / total
        taken, used = 0, 0
        for size_bytes in queue_sizes:
            if taken and used + size_bytes > share:
                break
            taken, used = taken + 1, used + size_bytes
        result[key] = start[key] + taken
    return result


def limit_by_mean_sizes(
    start: Mapping[QueueKey, int], end: Mapping[QueueKey, int], bytes_max: int, mean_sizes: Mapping[QueueKey, int]
) -> Offsets:
    """Return an end about `bytes_max` bytes after `start`, given the mean record size of each queue.

    Queues without a mean size keep their end; every other queue with a backlog gets at least one message.
    """
    backlog = {key: (end[key] - start.get(key, end[key])) * size for key, size in mean_sizes.items()}
    total = sum(max(size_bytes, 0) for size_bytes in backlog.values())
    result = dict(end)
    if total <= bytes_max:
        return result
    for key, size_bytes in backlog.items():
        if size_bytes > 0:
            share = bytes_max * size_bytes // total
            result[key] = min(start[key] + max(share // mean_sizes[key], 1), end[key])
    return result
