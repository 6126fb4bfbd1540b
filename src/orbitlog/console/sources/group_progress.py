"""Progress of consumer groups between samples: messages committed a second, and how long none was committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from orbitlog.console.sources.cluster_sample import ClusterSample

SNAPSHOTS_MAX = 4
STEP_MS = 4_500
_RATE_AGE_MAX_MS = 120_000


class GroupProgress:
    """Sums of committed offsets by group of the last samples; Java's consumers commit every five seconds."""

    def __init__(self) -> None:
        self._snapshots: deque[tuple[int, dict[str, int]]] = deque(maxlen=SNAPSHOTS_MAX)
        self._changed_ms: dict[str, int] = {}

    def add(self, sample: ClusterSample) -> None:
        """Compare a sample with the previous ones; samples that follow at once are left out."""
        last = self._snapshots[-1] if self._snapshots else None
        if last is not None and sample.as_of_ms - last[0] < STEP_MS:
            return
        if any(broker.offsets.problem is not None for broker in sample.masters):
            return  # without one broker the sum would be too small
        before: Mapping[str, int] = last[1] if last is not None else {}
        sums = _sums(sample)
        for group, committed in sums.items():
            if before.get(group) == committed:
                sums[group] = before[group]  # one object for all snapshots
            else:
                self._changed_ms[group] = sample.as_of_ms
        for group in before.keys() - sums.keys():
            self._changed_ms.pop(group, None)
        self._snapshots.append((sample.as_of_ms, sums))

    def rate(self, group: str) -> float | None:
        """Return the messages that a group commits a second; None before the second snapshot."""
        known = [(at_ms, sums[group]) for at_ms, sums in self._snapshots if group in sums]
        if len(known) < 2:
            return None
        (started_ms, first), (ended_ms, last) = known[0], known[-1]
        if ended_ms - started_ms > _RATE_AGE_MAX_MS:
            return None  # no page was open in between
        return max(0.0, (last - first) * 1000 / (ended_ms - started_ms))

    def quiet_ms(self, group: str) -> int:
        """Return for how long a group is known to have committed nothing: 0 when it was first seen."""
        changed_ms = self._changed_ms.get(group)
        if changed_ms is None or not self._snapshots:
            return 0
        return self._snapshots[-1][0] - changed_ms


def _sums(sample: ClusterSample) -> dict[str, int]:
    sums: dict[str, int] = {}
    for broker in sample.masters:
        for group, topics in broker.offsets_of_groups.items():
            sums[group] = sums.get(group, 0) + sum(sum(offsets.values()) for _, offsets in topics)
    return sums
