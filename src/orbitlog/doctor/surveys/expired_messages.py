"""Expired messages: queue units for messages before the start of the log, deleted with their segments or lost.

Brokers delete the oldest segments, and queue files all of whose units are for them; a file with a younger unit stays.
A first segment that went missing leaves the same log, but also queue files that retention would have deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from orbitlog.doctor.surveys.lost_messages import named_topics
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.names import LMQ_PREFIX
from orbitlog.jobs.check.store_check import StoreCheck
from orbitlog.jobs.split_derivation import UNIT
from orbitlog.kernels.arrays import np
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.store_files import StoreFiles


def retired_findings(store: StoreFiles, checked: StoreCheck) -> Iterator[Finding]:
    """Yield a finding with the number of messages before the first segment, by topic, that queues have units for."""
    log_start = store.segments[0].base if store.segments and checked.messages else 0
    if not log_start:
        return
    counts: Counter[str] = Counter()
    queues, useless_files = 0, 0
    for queue, files in store.queues.items():
        if queue[0].startswith(LMQ_PREFIX):
            continue  # its units point to records of other topics
        ends = checked.ends.get(queue)
        before = 0
        for file in files:
            if ends is not None and file.base >= ends.first * ENTRY_BYTES:
                break
            units = _units_before(file.path, log_start)
            before += units
            useless_files += units * ENTRY_BYTES == file.size_bytes and file is not files[-1]
        if before:
            counts[queue[0]] += before
            queues += 1
    if counts:
        total = counts.total()
        reason = f"the log starts here, and {total} messages of {queues} queues are before it: {named_topics(counts)}"
        if useless_files:
            reason += f"; {useless_files} queue files are for deleted messages only, and brokers delete such files"
        yield Finding(FindingKind.RETIRED, str(store.segments[0].path), reason, count=total, physical_offset=log_start)


def _units_before(path: Path, log_start: int) -> int:
    """Count the units of a queue file that point to messages before the log."""
    end = written_until(path)
    with mapped_view(path) as view:
        units = np.frombuffer(view, UNIT, min(end, len(view)) // ENTRY_BYTES)
        places, sizes = units["physical_offset"], units["size_bytes"]
        count = int(np.count_nonzero((sizes > 0) & (sizes < INT_MAX) & (places >= 0) & (places < log_start)))
        del units, places, sizes
    return count
