"""Inferred geometry: file sizes from the distance between file names, if most files have a wrong size.

The names of consecutive files differ by the size of a file. After a copy tool has truncated all files, or a script has
extended them, only the names show the right size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.settings import store_settings as settings_table
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles
from orbitlog.storefiles.store_inference import FILE_BYTES_MAX, infer_geometry

_STEPS_MIN = 2


def robust_geometry(store: StoreFiles, settings: StoreSettings) -> StoreGeometry:
    """Return the sizes from settings, else those from most file names, else those of the files."""
    geometry = infer_geometry(store, settings)
    if settings.given(settings_table.SEGMENT_BYTES) is None:
        geometry = replace(geometry, segment_bytes=_step_of_names([store.segments], geometry.segment_bytes))
    if settings.given(settings_table.QUEUE_FILE_BYTES) is None:
        size_bytes = _step_of_names(store.queues.values(), geometry.queue_file_bytes)
        if size_bytes % ENTRY_BYTES == 0:
            geometry = replace(geometry, queue_file_bytes=size_bytes)
    return geometry


def _step_of_names(groups: Collection[Sequence[OffsetFile]], size_bytes: int) -> int:
    """Return the distance that most files of the groups have to the one before, unless missing files explain it."""
    distances = (later.base - earlier.base for files in groups for earlier, later in pairwise(files))
    steps = Counter(distance for distance in distances if distance <= FILE_BYTES_MAX)
    if not steps:
        return size_bytes
    step, count = steps.most_common(1)[0]
    is_explained = step % size_bytes == 0 and len(steps) > 1
    is_common = count >= _STEPS_MIN and 2 * count > steps.total()
    return step if is_common and not is_explained else size_bytes
