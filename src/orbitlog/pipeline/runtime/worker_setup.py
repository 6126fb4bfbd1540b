"""Worker setup: compiles kernels before the first task, and keeps loaded modules out of garbage collection."""

from __future__ import annotations

import gc
from contextlib import suppress

_MARK = "pipeline-warm"
# Collecting fewer objects than these takes less than two milliseconds.
_UNFROZEN_OBJECTS_MAX = 20_000
_is_set_up = False


def compile_kernels() -> None:
    """Run every kernel that jobs use once, unless that was done since the kernels changed.

    Otherwise all worker processes would compile them at the same time, for half a minute.
    """
    from orbitlog.kernels.jit import cache_directory

    mark = cache_directory() / _MARK
    if mark.exists():
        return
    _run_kernels()
    with suppress(OSError):  # numba's cache is not writable either, so there is nothing to record
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def set_up_worker() -> None:
    """Set up a worker process; call first in every task.

    PySpark runs `gc.collect()` after every task. With numba loaded that takes 60 ms, several times as long as a small
    task, so long-lived objects are frozen.
    """
    global _is_set_up  # noqa: PLW0603 (one flag a process)
    if _is_set_up:
        freeze_loaded_objects()
        return
    _is_set_up = True
    import pyarrow as pa

    import orbitlog.kernels.arrow_batches
    import orbitlog.kernels.derivation
    import orbitlog.kernels.splits  # noqa: F401 (loaded before the freeze)

    # Spark starts one worker per core: more threads in each would compete for the same cores.
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    gc.collect()
    gc.freeze()


def freeze_loaded_objects() -> None:
    """Freeze objects that survived the last collection; call first in code that PySpark repeats in one process.

    Most of numba is loaded by the first kernel call, after the first task has started. Objects that exist when a task
    starts survived the collection after the previous task, so nothing is frozen that should be freed.
    """
    if len(gc.get_objects(generation=2)) > _UNFROZEN_OBJECTS_MAX:
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
    from orbitlog.kernels.property_faults import find_zeroed
    from orbitlog.kernels.queue_sort import UnitSorter
    from orbitlog.kernels.queue_table import QueueTable
    from orbitlog.kernels.record_walk import walk_messages
    from orbitlog.kernels.splits import walk_in_splits
    from orbitlog.kernels.tally import Tally
    from orbitlog.pipeline.sink.row_encoding import run_kernels

    run_kernels()
    properties = {"UNIQ_KEY": "0" * 32, "KEYS": "a b", "TAGS": "tag"}
    record = encode_message(make_message("Topic", b"body", properties=properties))
    segment = record + encode_blank(100).ljust(100, b"\0")
    walk_messages(segment, base_physical_offset=0)
    read_columns(segment, base_physical_offset=0)
    walk_in_splits(segment, 64, base_physical_offset=0)
    find_zeroed(segment, 0, len(record), base_physical_offset=0)
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
    positions, sizes = np.zeros(1, np.int64), np.full(1, len(record), np.int32)
    list(ListedDecoder().decode_listed(segment, positions, sizes, base_physical_offset=0))
    list(Tally().count(segment, 0, len(segment), base_physical_offset=0))
