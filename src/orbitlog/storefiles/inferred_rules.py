"""Inferred rules: whether an index contains tag keys (5.4+), by sampling its entries; no version field records it.

Messages of the newest index file are looked up: the entries of the last ones have that key, or they do not. A given
`compat` setting overrides the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats.compat import Compat
from orbitlog.formats.derived.checkpoint import CHECKPOINT, decode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules, index_hashes
from orbitlog.formats.derived.index_layout import IndexLayout, decode_header, decode_index_entry
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.settings import store_settings as settings_table
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles
from orbitlog.storefiles.store_inference import infer_compat, infer_rules

_ENTRIES_SAMPLED = 400
_FILES_SAMPLED = 3
_VOTES_COUNTED = 5  # the last ones: an upgrade may have been recent
_PLACES = ("master_flushed_physical_offset", "confirm_physical_offset", "logics_physical_offset")


def sampled_rules(store: StoreFiles, settings: StoreSettings) -> DeriveRules:
    """Return the rules by which the store's files were derived."""
    rules = infer_rules(_without_noise(store), settings)
    if not rules.compat.indexes_tags or settings.given(settings_table.COMPAT) is not None:
        return rules
    without = replace(rules, compat=replace(rules.compat, indexes_tags=False))
    layout = robust_geometry(store, settings).index_layout
    for file in reversed(store.index_files[-_FILES_SAMPLED:]):
        votes: list[bool] = []
        for physical_offset, hashes in _sampled(file.path, layout):
            message = message_at(store, physical_offset)
            if message is None:
                continue
            with_tags, plain = (index_hashes(message, each.compat) for each in (rules, without))
            if with_tags != plain and hashes in (with_tags, plain):
                votes.append(hashes == with_tags)
        if votes:
            last = votes[-_VOTES_COUNTED:]
            return rules if 2 * sum(last) >= len(last) else without
    return rules


def sampled_compat(store: StoreFiles, settings: StoreSettings) -> Compat:
    """Return the compatibility level of the store's files."""
    return infer_compat(_without_noise(store), settings)


def _without_noise(store: StoreFiles) -> StoreFiles:
    """Return the store without an invalid checkpoint: noise in fields of 5.x does not show that 5.x wrote it."""
    if store.checkpoint is None or store.checkpoint.size_bytes < CHECKPOINT.size_bytes:
        return store
    with store.checkpoint.path.open("rb") as file:
        checkpoint = decode_checkpoint(file.read(CHECKPOINT.size_bytes))
    log_end = max((segment.base + segment.size_bytes for segment in store.segments), default=0)
    is_possible = all(0 <= getattr(checkpoint, name) <= log_end for name in _PLACES)
    return store if is_possible else replace(store, checkpoint=None)


def _sampled(path: Path, layout: IndexLayout) -> Iterator[tuple[int, list[int]]]:
    """Yield messages from the middle and the end of an index file, each with the hashes of its entries."""
    with mapped_view(path) as view:
        try:
            count = min(decode_header(view).key_count, layout.capacity)
            middle, end = max(count // 2 - _ENTRIES_SAMPLED // 2, 1), max(count - _ENTRIES_SAMPLED, 1)
            windows = [
                [decode_index_entry(view, layout.entry_position(number)) for number in numbers]
                for numbers in (range(middle, min(middle + _ENTRIES_SAMPLED, count) + 1), range(end, count + 1))
            ]
        except FormatError:
            return
    for entries in windows:
        groups = [
            (place, [entry.key_hash for entry in found])
            for place, found in groupby(entries, key=lambda entry: entry.physical_offset)
        ]
        yield from groups[1:-1]  # those at the ends may have more entries before or after


def message_at(store: StoreFiles, physical_offset: int) -> Message | None:
    """Return the message at a physical offset; None if the log has none there."""
    for segment in store.segments:
        if segment.base <= physical_offset < segment.base + segment.size_bytes:
            with mapped_view(segment.path) as view:
                found = read_at(view, physical_offset - segment.base)
            return found if isinstance(found, Message) and found.physical_offset == physical_offset else None
    return None
