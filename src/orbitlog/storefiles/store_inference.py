"""Store inference: file sizes of a store, and the versions that wrote it, from its files.

A setting that was given wins. Sizes are part of the format (a broker refuses to start on a file of another size),
so the files themselves are the best witness; of several sizes the most common one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.checkpoint import CHECKPOINT, decode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout, infer_layout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.names import LMQ_PREFIX
from orbitlog.formats.records.log_format import scan_log
from orbitlog.formats.records.message import Message
from orbitlog.settings import store_settings as settings_table
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.storefiles.confined.regular_files import WHOLE_FILE_BYTES_MAX
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile, SizedFile, StoreFiles

FILE_BYTES_MAX = INT_MAX
"""Largest size of segments and queue files: Java's settings of sizes are ints."""
_RECORDS_SAMPLED = 200
_INDEX_FILES_SAMPLED = 20
_ENTRIES_OF_5X = frozenset(("abort.bak", "brokerIdentity", "compaction", "epochFileCheckpoint", "rocksdbstore"))
_CONFIG_FILES_OF_5X = frozenset(
    (
        "consumerOrderInfo.json",
        "messageRequestMode.json",
        "timercheck",
        "timermetrics",
        "topicQueueMapping.json",
        "transactionMetrics",
    )
)
_TEXT_OF_5X = {"topics.json": (b'"attributes"', b'"stateVersion"'), "consumerOffset.json": (b'"dataVersion"',)}


def infer_geometry(store: StoreFiles, settings: StoreSettings) -> StoreGeometry:
    """Return the sizes that were given, else those of the files, else Java's defaults."""
    queue_files = [file for files in store.queues.values() for file in files]
    ext_files = [file for files in store.ext_queues.values() for file in files]
    return StoreGeometry(
        segment_bytes=infer_segment_bytes(store.segments, settings),
        queue_file_bytes=infer_queue_file_bytes(queue_files, settings),
        ext_queue_file_bytes=settings.given(settings_table.EXT_QUEUE_FILE_BYTES)
        or common_size(ext_files)
        or settings_table.EXT_QUEUE_FILE_BYTES_DEFAULT,
        index_layout=infer_index_layout(store.index_files, settings) or IndexLayout(),
    )


def infer_segment_bytes(segments: Sequence[OffsetFile], settings: StoreSettings) -> int:
    given = settings.given(settings_table.SEGMENT_BYTES)
    return given or common_size(segments) or settings_table.SEGMENT_BYTES.default


def infer_queue_file_bytes(files: Sequence[OffsetFile], settings: StoreSettings) -> int:
    """Return a size that holds whole units; a queue file of any other size was cut."""
    given = settings.given(settings_table.QUEUE_FILE_BYTES)
    whole = [file for file in files if file.size_bytes % ENTRY_BYTES == 0]
    return given or common_size(whole) or settings_table.QUEUE_FILE_BYTES.default


def common_size(files: Sequence[OffsetFile]) -> int | None:
    """Return the size that most files have; of equally common ones that which their names confirm, else the larger.

    A size that no broker can be set to does not count: a sparse file of a terabyte takes no room in an archive.
    """
    sizes = Counter(file.size_bytes for file in files if 0 < file.size_bytes <= FILE_BYTES_MAX)
    if not sizes:
        return None
    steps = {later.base - earlier.base for earlier, later in pairwise(files)}
    return max(sizes, key=lambda size: (sizes[size], size in steps, size))


def infer_index_layout(files: Sequence[SizedFile], settings: StoreSettings) -> IndexLayout | None:
    """Return slot and entry counts from settings or files; None if neither has them."""
    if settings.index_layout is not None:
        return settings.index_layout
    sizes = Counter(file.size_bytes for file in files)
    # A file that was cut short can look like one of another layout: ask those of the most common size first.
    candidates = sorted(files, key=lambda file: -sizes[file.size_bytes])
    for file in candidates[:_INDEX_FILES_SAMPLED]:
        with mapped_view(file.path) as view:
            try:
                layout = infer_layout(view)
            except FormatError:
                continue
        if layout is not None:
            return layout
    return None


def infer_compat(store: StoreFiles, settings: StoreSettings) -> Compat:
    """Return what was given, else 5.5 where anything of 5.x is seen or nothing was written yet, else 4.9."""
    given = settings.given(settings_table.COMPAT)
    if given is not None:
        return given
    return COMPAT_5_5 if store.is_empty or next(signs_of_5x(store), None) else COMPAT_4_9


def infer_rules(store: StoreFiles, settings: StoreSettings) -> DeriveRules:
    """Return everything besides the log that decides the derived files."""
    return DeriveRules(
        compat=infer_compat(store, settings),
        delay_levels=settings.value(settings_table.DELAY_LEVELS),
        # A setting that was lost must not empty queues that are there.
        multi_dispatch=settings.value(settings_table.MULTI_DISPATCH) or has_light_queues(store),
    )


def has_light_queues(store: StoreFiles) -> bool:
    """Return whether messages were dispatched to light queues (`enableLmq` and `enableMultiDispatch`)."""
    return any(topic.startswith(LMQ_PREFIX) for topic, _ in store.queues)


def signs_of_5x(store: StoreFiles) -> Iterator[str]:
    """Yield what only a broker of 5.x can have left, the cheapest to see first."""
    if store.timer_wheel or store.timer_log:
        yield "timer files"
    if store.batch_queues:
        yield tree.BATCH_CONSUMEQUEUE
    yield from (path.name for path in store.unread if path.name in _ENTRIES_OF_5X)
    for file in store.config_files:
        if file.path.name in _CONFIG_FILES_OF_5X:
            yield file.path.name
        yield from _signs_in_text(file.path)
    if store.checkpoint is not None and _has_5x_fields(store.checkpoint.path):
        yield tree.CHECKPOINT
    for segment in {store.segments[0], store.segments[-1]} if store.segments else ():
        if _has_v2_record(segment):
            yield "V2 records"


def _signs_in_text(path: Path) -> Iterator[str]:
    marks = _TEXT_OF_5X.get(path.name, ())
    if marks:
        with mapped_view(path) as view:
            content = bytes(view[: min(written_until(path), WHOLE_FILE_BYTES_MAX)])
        yield from (f"{path.name} with {mark.decode()}" for mark in marks if mark in content)


def _has_5x_fields(path: Path) -> bool:
    with mapped_view(path) as view:
        if len(view) < CHECKPOINT.size_bytes:
            return False
        checkpoint = decode_checkpoint(view)
    return any(getattr(checkpoint, name) for name in COMPAT_5_5.checkpoint_fields[len(COMPAT_4_9.checkpoint_fields) :])


def _has_v2_record(segment: OffsetFile) -> bool:
    with mapped_view(segment.path) as view:
        records = islice(scan_log(view, 0, segment.log_format, base_physical_offset=segment.base), _RECORDS_SAMPLED)
        return any(isinstance(record, Message) and record.version == 2 for record in records)
