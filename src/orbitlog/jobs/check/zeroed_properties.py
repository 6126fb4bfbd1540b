"""Zeroed properties: messages whose properties have a zeroed sector, which no checksum shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orbitlog.jobs.log_splits import WalkedSplit
from orbitlog.kernels.property_faults import find_zeroed
from orbitlog.kernels.splits import find_record
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import mapped_view


def zeroed_properties(walk: WalkedSplit) -> Iterator[Finding]:
    """Yield a finding for each message of a walked split that has a zeroed sector in its properties."""
    split = walk.split
    with mapped_view(Path(split.path)) as whole, whole[: split.segment_bytes] as view:
        position, stop = walk.first, min(walk.next_position, len(view))
        while position is not None and position < stop:
            position, zeros = find_zeroed(
                view, position, stop, base_physical_offset=split.base, log_format=split.log_format
            )
            if zeros is not None:
                start, count = zeros[0], zeros[1] - zeros[0]
                reason = f"properties with {count} zero bytes in a row"
                yield Finding(
                    FindingKind.PROPERTIES, split.path, reason, start, count, physical_offset=split.base + start
                )
            elif position < stop:
                # Damage: the walk of the split has a finding for it, and continued after it.
                position = find_record(
                    view, position + 1, stop, base_physical_offset=split.base, log_format=split.log_format
                )
