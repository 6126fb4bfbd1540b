"""Stores for the tests of the pipeline: made logs on disk, and what a walk in plain Python derives from them."""

from __future__ import annotations

import shutil
from pathlib import Path

from orbitlog.formats.compat import COMPAT_5_5, Compat
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import assign_fields, encode_message, make_message
from orbitlog.formats.records.message_scan import encode_blank
from orbitlog.settings.store_settings import StoreSettings, load_settings
from tests.support.logs import Log

SEGMENT_BYTES, QUEUE_FILE_BYTES, LAYOUT = 4096, 100, IndexLayout(7, 13)
Derived = tuple[dict[str, bytes], list[bytes]]


def settings(compat: Compat = COMPAT_5_5, *more: str) -> StoreSettings:
    return load_settings(
        None,
        [
            f"mappedFileSizeCommitLog={SEGMENT_BYTES}",
            f"mappedFileSizeConsumeQueue={QUEUE_FILE_BYTES}",
            f"maxHashSlotNum={LAYOUT.slot_count}",
            f"maxIndexNum={LAYOUT.entry_count}",
            f"compat={compat.name}",
            *more,
        ],
    )


def write_log(root: Path, log: Log) -> Path:
    (root / "commitlog").mkdir(parents=True)
    for base, content in log.segments:
        (root / "commitlog" / f"{base:020d}").write_bytes(content)
    return root


def expected_files(log: Log, compat: Compat = COMPAT_5_5) -> Derived:
    derived = DerivedFiles(DeriveRules(compat), queue_file_bytes=QUEUE_FILE_BYTES, index_layout=LAYOUT)
    derived.add(log.messages)
    queues = {
        f"{topic}/{queue_id}/{base:020d}": bytes(content)
        for (topic, queue_id), files in derived.queues.items()
        for base, content in files.items()
    }
    return queues, [bytes(content) for content in derived.index_files]


def files_below(root: Path) -> Derived:
    """Read the queue files, and the contents of the index files in the order of their names."""
    queues = {
        path.relative_to(root / "consumequeue").as_posix(): path.read_bytes()
        for path in (root / "consumequeue").rglob("*")
        if path.is_file()
    }
    return queues, [path.read_bytes() for path in sorted((root / "index").iterdir())]


def forged_log() -> Log:
    """A log whose bodies contain whole records with their own offsets, across several splits."""
    messages, data = [], b""
    head_bytes = len(encode_message(make_message("T", b""))) - len("T") - 3
    for number in range(4):
        body = b""
        while len(body) < 700:
            forged = bytearray(encode_message(make_message("Forged", b"x" * 20, properties={"KEYS": "forged"})))
            place = len(data) + head_bytes + len(body)
            assign_fields(forged, 0, queue_offset=0, physical_offset=place, store_timestamp_ms=5)
            body += bytes(forged)
        message = make_message("T", body, properties={"KEYS": f"k{number}"}, store_timestamp_ms=1_700_000_000_000)
        messages.append(message._replace(queue_offset=number, physical_offset=len(data)))
        data += encode_message(messages[-1])
    return Log([(0, (data + encode_blank(SEGMENT_BYTES - len(data))).ljust(SEGMENT_BYTES, b"\0"))], messages)


def copy_store(store: Path, to: Path) -> Path:
    shutil.copytree(store, to)
    return to
