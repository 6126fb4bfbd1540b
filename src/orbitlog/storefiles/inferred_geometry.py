"""How large the files of a store should be: names tell it where most files have lost their size.

Files that follow each other are as far apart as each is long. A copy tool that cuts all of them, or a script that lets
them grow, leaves that as the only witness.
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
from orbitlog.storefiles.store_inference import infer_geometry

_WITNESSES_MIN = 2


def told_geometry(store: StoreFiles, settings: StoreSettings) -> StoreGeometry:
    """Return the sizes that were given, else those that most names tell, else those of the files."""
    geometry = infer_geometry(store, settings)
    if settings.given(settings_table.SEGMENT_BYTES) is None:
        geometry = replace(geometry, segment_bytes=_told([store.segments], geometry.segment_bytes))
    if settings.given(settings_table.QUEUE_FILE_BYTES) is None:
        told = _told(store.queues.values(), geometry.queue_file_bytes)
        if told % ENTRY_BYTES == 0:
            geometry = replace(geometry, queue_file_bytes=told)
    return geometry


def _told(groups: Collection[Sequence[OffsetFile]], size_bytes: int) -> int:
    """Return the distance that most files of the groups have to the one before, unless missing files explain it."""
    steps = Counter(later.base - earlier.base for files in groups for earlier, later in pairwise(files))
    if not steps:
        return size_bytes
    step, count = steps.most_common(1)[0]
    is_explained = step % size_bytes == 0 and len(steps) > 1
    is_witnessed = count >= _WITNESSES_MIN and 2 * count > steps.total()
    return step if is_witnessed and not is_explained else size_bytes
