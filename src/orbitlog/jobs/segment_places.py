"""Segment places: findings about gaps, overlaps and wrong sizes of segments, from names and sizes alone."""

from __future__ import annotations

from orbitlog.formats.compat import COMPAT_4_9
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.storefiles.damage import DamageList
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.store_files import StoreFiles


def is_removed_when_empty(store: StoreFiles, rules: DeriveRules) -> bool:
    """Return whether the next broker deletes a last file without bytes: a killed 5.x leaves one, 4.9 refuses it."""
    return store.abort is not None and rules.compat.name != COMPAT_4_9.name


def segment_findings(store: StoreFiles, segment_bytes: int, *, last_may_be_empty: bool = False) -> list[Finding]:
    """Return findings for gaps between segments, overlaps, and files that are empty or too long."""
    damage = DamageList("physical offset")
    expected_base = store.segments[0].base if store.segments else 0
    for segment in store.segments:
        damage.note_place(segment, expected_base)
        damage.resume(segment.base)
        expected_base = segment.base + segment_bytes
        if segment.size_bytes == 0 and segment is store.segments[-1] and last_may_be_empty:
            continue
        if segment.size_bytes == 0:
            reason = f"the file ends without a segment end; the file has only 0 of {segment_bytes} bytes"
            damage.note(segment, 0, segment_bytes, reason)
        elif segment.size_bytes > segment_bytes:
            reason = f"the file has {segment.size_bytes} bytes, a segment has {segment_bytes}"
            damage.note(segment, segment_bytes, segment.size_bytes, reason)
    return [Finding.of_damage(found, FindingKind.SEGMENT) for found in damage.ranges]
