"""Getting kernels and workers ready: compile once before the first task, and free workers from needless collecting."""

from __future__ import annotations

import gc
from contextlib import suppress

_MARK = "pipeline-warm"
# Fewer objects than these are looked through in two milliseconds.
_LOOKED_THROUGH_MAX = 20_000
_settled = False


def warm_kernels() -> None:
    """Run every kernel that jobs use once, unless this was done since the kernels changed.

    Each worker process would otherwise compile them for itself, at the same time and for half a minute.
    """
    from orbitlog.kernels.jit import cache_directory

    mark = cache_directory() / _MARK
    if mark.exists():
        return
    _run_kernels()
    with suppress(OSError):  # no cache can be written here: then there is nothing to remember either
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def settle_worker() -> None:
    """Call first in a task: keeps what has come to stay out of the collection that PySpark makes after every task.

    With numba loaded that collection takes 60 ms, several times as long as a small task.
    """
    global _settled  # noqa: PLW0603 (one flag a process)
    if _settled:
        freeze_what_stays()
        return
    _settled = True
    import pyarrow as pa

    import orbitlog.kernels.arrow_batches
    import orbitlog.kernels.derivation
    import orbitlog.kernels.splits  # noqa: F401 (loaded before the freeze)

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    gc.collect()
    gc.freeze()


def freeze_what_stays() -> None:
    """Call first in whatever PySpark asks a process of its own for again and again, as it does where reads are planned.

    Most of numba is loaded by the first call of a kernel, which is after the first task has begun. What is left when a
    task begins is what the collection behind the task before has found alive; so nothing is kept that should go.
    """
    if len(gc.get_objects(generation=2)) > _LOOKED_THROUGH_MAX:
        gc.freeze()


def _run_kernels() -> None:
    import numpy as np

    from orbitlog.formats.derived.derive import DeriveRules
    from orbitlog.formats.derived.index_layout import IndexHeader, IndexLayout
    from orbitlog.formats.records.message import encode_message, make_message
    from orbitlog.formats.records.message_scan import encode_blank
    from orbitlog.kernels.arrow_batches import ArrowDecoder
    from orbitlog.kernels.columns import read_columns
    from orbitlog.kernels.derivation import Derivation
    from orbitlog.kernels.dispatch import DispatchScan
    from orbitlog.kernels.index_stream import EntryStream, KeyColumns, equal_entries, right_links
    from orbitlog.kernels.listed_records import ListedDecoder
    from orbitlog.kernels.queue_sort import UnitSorter
    from orbitlog.kernels.queue_table import QueueTable
    from orbitlog.kernels.record_walk import walk_messages
    from orbitlog.kernels.splits import walk_in_splits
    from orbitlog.kernels.tally import Tally

    properties = {"UNIQ_KEY": "0" * 32, "KEYS": "a b", "TAGS": "tag"}
    record = encode_message(make_message("Topic", b"body", properties=properties))
    segment = record + encode_blank(100).ljust(100, b"\0")
    walk_messages(segment, base_physical_offset=0)
    read_columns(segment, base_physical_offset=0)
    walk_in_splits(segment, 64, base_physical_offset=0)
    list(ArrowDecoder().decode(segment, base_physical_offset=0))
    derivation = Derivation(DeriveRules(), queue_file_bytes=1000, index_layout=IndexLayout(10, 20))
    derivation.add(segment, base_physical_offset=0)
    sorter, stream = UnitSorter(), EntryStream(IndexLayout(10, 20), IndexHeader())
    for columns in DispatchScan(DeriveRules()).scan(segment, base_physical_offset=0):
        sorter.add(columns)
        keys = KeyColumns._make(getattr(columns, name) for name in KeyColumns._fields)
        entries, _, _ = stream.put(keys, 0, 0, 20)
        EntryStream(IndexLayout(10, 20), IndexHeader()).pass_over(keys, 0, 2)
        equal_entries(keys, 0, entries, 0, is_begin=True)
        right_links(entries, 1, np.zeros(10, np.int32))
    sorter.sort(1000)
    QueueTable(1).grow()
    places, sizes = np.zeros(1, np.int64), np.full(1, len(record), np.int32)
    list(ListedDecoder().decode_listed(segment, places, sizes, base_physical_offset=0))
    list(Tally().count(segment, 0, len(segment), base_physical_offset=0))
