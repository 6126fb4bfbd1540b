"""Store directories that Orbitlog does not support, as additions to a small ordinary store.

The names and sizes are those of real brokers; `tests/interop/test_unsupported_stores.py` makes the same
kinds with real brokers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from orbitlog.formats.compat import COMPAT_4_9
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.dledger import (
    ENTRY_HEADER_BYTES,
    FILE_END_BYTES,
    INDEX_FILE_BYTES_DEFAULT,
    DLedgerEntry,
    DLedgerIndexUnit,
    encode_entry_header,
    encode_file_end,
    encode_index_unit,
)
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.message_scan import encode_blank
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig

SEGMENT_BYTES = 4096
GEOMETRY = StoreGeometry(SEGMENT_BYTES, 200, index_layout=IndexLayout(10, 30))
CONFIG = StoreConfig(GEOMETRY)
STORED_MS = 1_794_740_000_000


def make_store(root: Path, count: int = 60, *, keys: int = 1) -> None:
    """Write an ordinary store of several segments and close it; it has tables as a Java broker leaves them."""
    with MessageStore.open(root, CONFIG, lambda: STORED_MS) as store:
        for number in range(count):
            names = " ".join([f"k{number}", *(f"k{number}-{more}" for more in range(1, keys))])
            store.append(make_message("T", b"x" * 100, queue_id=number % 2, properties={"KEYS": names}))
    put(root / "config/topics.json", b'{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{}}')
    put(root / "config/consumerOffset.json", b'{"offsetTable":{"T@g":{0:3,1:2}}}')


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def fingerprint(root: Path) -> dict[str, str]:
    """Return every name below a directory with what is there: a hash, a link's target, or `directory`."""
    found: dict[str, str] = {}
    for directory, directories, files in os.walk(root):
        for name in directories:
            found[os.path.relpath(Path(directory, name), root)] = "directory"
        for name in files:
            path = Path(directory, name)
            content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
            found[os.path.relpath(path, root)] = hashlib.sha256(content).hexdigest()
    return found


def _rocksdb(directory: Path) -> None:
    put(directory / "CURRENT", b"MANIFEST-000005\n")
    put(directory / "MANIFEST-000005", bytes(200))
    put(directory / "000009.sst", b"table")


def _topic(root: Path, attribute: str) -> None:
    key, value = attribute.split("=")
    table = f'{{"topicConfigTable":{{"Odd":{{"topicName":"Odd","attributes":{{"{key}":"{value}"}}}}}}}}'
    put(root / "config/topics.json", table.encode())


def _static_topic(root: Path, item: str) -> None:
    own = "" if "bname" in item else ',"bname":"broker-a"'
    mapping = f'{{"topic":"Odd","bname":"broker-a","totalQueues":1,"hostedQueues":{{0:[{{{item}{own}}}]}}}}'
    put(root / "config/topicQueueMapping.json", f'{{"topicQueueMappingInfoMap":{{"Odd":{mapping}}}}}'.encode())


def _pure_dledger(root: Path) -> None:
    """A store that was never anything else has no commitlog/ at all."""
    shutil.rmtree(root)
    make_dledger_store(root)


def _converted(root: Path) -> None:
    make_dledger_log(root, 12, first_base=_close_log(root), next_offsets={"T": 30})


def _dledger_segments(root: Path) -> None:
    """Data files in the place of segments, as after `storePathCommitLog` was set to their directory."""
    shutil.rmtree(root / "commitlog")
    make_dledger_log(root, 60)
    (root / "dledger-n0/data").rename(root / "commitlog")
    shutil.rmtree(root / "dledger-n0")


def _several_members(root: Path) -> None:
    _pure_dledger(root)
    shutil.copytree(root / "dledger-n0", root / "dledger-n1")


def move_dledger_data(root: Path) -> Path:
    """Move the data files out of the store, as `storePathDLedgerCommitLog` places them; return their directory."""
    place = root.with_name(f"{root.name}.elsewhere")
    (root / "dledger-n0/data").rename(place)
    return place


def _dledger_elsewhere(root: Path) -> None:
    _converted(root)
    move_dledger_data(root)


def _close_log(root: Path) -> int:
    """End the last segment as a broker does that continues in DLedger mode; return its end."""
    last = max((root / "commitlog").iterdir())
    data = last.read_bytes().rstrip(b"\0")
    last.write_bytes((data + encode_blank(SEGMENT_BYTES - len(data))).ljust(SEGMENT_BYTES, b"\0"))
    return int(last.name) + SEGMENT_BYTES


def make_dledger_log(
    root: Path,
    count: int,
    *,
    first_base: int = 0,
    next_offsets: dict[str, int] | None = None,
    committed_index: int | None = None,
) -> None:
    """Write `dledger-n0` with data, index and checkpoint; messages alternate between two queues of topic T."""
    first = (next_offsets or {}).get("T", 0)
    data, base, units = b"", first_base, b""
    for number in range(count):
        message = make_message(
            "T",
            b"x" * 100,
            queue_id=number % 2,
            queue_offset=first + number // 2,
            store_timestamp_ms=STORED_MS,
            properties={"KEYS": f"d{number}"},
            physical_offset=base + len(data) + ENTRY_HEADER_BYTES,
        )
        size = ENTRY_HEADER_BYTES + len(encode_message(message))
        if len(data) + size + FILE_END_BYTES > SEGMENT_BYTES:
            put(root / f"dledger-n0/data/{base:020d}", data + encode_file_end(SEGMENT_BYTES - len(data)))
            data, base = b"", base + SEGMENT_BYTES
            message = message._replace(physical_offset=base + ENTRY_HEADER_BYTES)
        entry = DLedgerEntry(number, 1, base + len(data), size - ENTRY_HEADER_BYTES)
        units += encode_index_unit(DLedgerIndexUnit(number, 1, entry.physical_offset, size))
        data += encode_entry_header(entry) + encode_message(message)
    put(root / f"dledger-n0/data/{base:020d}", data.ljust(SEGMENT_BYTES, b"\0"))
    put(root / "dledger-n0/index/00000000000000000000", units)
    os.truncate(root / "dledger-n0/index/00000000000000000000", INDEX_FILE_BYTES_DEFAULT)  # a hole, as Apache's has
    committed = count - 1 if committed_index is None else committed_index
    put(root / "dledger-n0/checkpoint", f"committedIndex={committed}\nendIndex={count - 1}\n".encode())


def make_dledger_store(root: Path, count: int = 60, *, committed_index: int | None = None) -> None:
    """Write a store that DLedger replicates, with the queues and the index that its log gives."""
    make_dledger_log(root, count, committed_index=committed_index)
    settings = StoreSettings(
        {"mappedFileSizeConsumeQueue": "200", "maxHashSlotNum": "10", "maxIndexNum": "30", "compat": "4.9"}
    )
    out = root.with_name(f"{root.name}.derived")
    (made,) = rebuild_with(run_here, [root], out=out, settings=settings, split_bytes=4096)
    assert made.is_published, made.findings
    for name in ("consumequeue", "index", "checkpoint"):
        (out / name).rename(root / name)
    shutil.rmtree(out)
    table = TopicTable({"T": TopicConfig("T", read_queue_count=2, write_queue_count=2)})
    put(root / "config/topics.json", TOPICS.encode(table, COMPAT_4_9).encode())


def _rename_segment(root: Path) -> None:
    last = max((root / "commitlog").iterdir())
    last.rename(last.with_name(last.name + ".bak"))


def _directory_of_a_file(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def _file_of_a_directory(path: Path) -> None:
    shutil.rmtree(path)
    put(path, b"x")


def _newer_checkpoint(root: Path) -> None:
    raw = bytearray((root / "checkpoint").read_bytes())
    raw[48:56] = (7).to_bytes(8, "big")
    (root / "checkpoint").write_bytes(raw)


KINDS: dict[str, Callable[[Path], None]] = {
    "DLedger": _pure_dledger,
    "converted to DLedger": _converted,
    "several DLedger members": _several_members,
    "DLedger data elsewhere": _dledger_elsewhere,
    "DLedger data as segments": _dledger_segments,
    "RocksDB queues": lambda root: _rocksdb(root / "consumequeue"),
    "RocksDB topics": lambda root: _rocksdb(root / "config/topics"),
    "RocksDB groups": lambda root: _rocksdb(root / "config/subscriptionGroups"),
    "RocksDB offsets": lambda root: _rocksdb(root / "config/consumerOffsets"),
    "RocksDB tables of version 2": lambda root: _rocksdb(root / "config/rdb"),
    "RocksDB POP check points": lambda root: _rocksdb(root / "kvStore"),
    "RocksDB timers": lambda root: _rocksdb(root / "rocksdbstore"),
    "batch queues": lambda root: put(root / "batchconsumequeue/B/0/00000000000000000000", b"\1" * 46),
    "batch topic": lambda root: _topic(root, "queue.type=BatchCQ"),
    "batch topic with an escaped name": lambda root: _topic(root, r"queue\u002etype=BatchCQ"),
    "queue type of a newer version": lambda root: _topic(root, "queue.type=SparseCQ"),
    "compacted topic": lambda root: _topic(root, "cleanup.policy=COMPACTION"),
    "lite topic": lambda root: _topic(root, "message.type=LITE"),
    "static topic of another queue": lambda root: _static_topic(root, '"queueId":1'),
    "static topic with other offsets": lambda root: _static_topic(root, '"queueId":0,"logicOffset":1000'),
    "static topic of another broker": lambda root: _static_topic(root, '"queueId":0,"bname":"broker-b"'),
    "compacted messages": lambda root: put(root / "compaction/compactionLog/C/0/00000000000000000000", b"\1"),
    "tiered storage": lambda root: put(root / "config/tieredStoreMetadata.json", b"{}"),
    "tiered storage in a backup": lambda root: put(root / "config/tieredStoreMetadata.json.bak", b"{}"),
    "controller epochs in a backup": lambda root: put(root / "epochFileCheckpoint.bak", b"1\n0-0\n"),
    "controller epochs": lambda root: put(root / "epochFileCheckpoint", b"1\n0-0\n"),
    "controller identity": lambda root: put(root / "brokerIdentity", b"brokerId=1"),
    "unknown directory": lambda root: put(root / "streams/a/data", b"\1"),
    "unknown log": lambda root: put(root / "journal/0/00000000000000000000", b"\1"),
    "renamed segment": _rename_segment,
    "segment in a directory of its own": lambda root: put(root / "commitlog/old/00000000000000000000", b"\1"),
    "newer checkpoint": _newer_checkpoint,
    "directory named abort": lambda root: (root / "abort").mkdir(),
    "directory named lock": lambda root: _directory_of_a_file(root / "lock"),
    "directory named checkpoint": lambda root: _directory_of_a_file(root / "checkpoint"),
    "file named config": lambda root: _file_of_a_directory(root / "config"),
    "file named consumequeue": lambda root: _file_of_a_directory(root / "consumequeue"),
    "file named index": lambda root: _file_of_a_directory(root / "index"),
    "file named timerlog": lambda root: put(root / "timerlog", b"x"),
}
# Readable, but not writable; derived files are rebuilt into another directory.
DLEDGER_KINDS = frozenset(("DLedger", "converted to DLedger"))
REBUILDABLE_KINDS = frozenset(
    (
        "unknown directory",
        "unknown log",
        "newer checkpoint",
        *(kind for kind in KINDS if kind.startswith(("lite", "static", "directory named", "file named"))),
    )
)
REPAIRABLE_KINDS = REBUILDABLE_KINDS | {"renamed segment", "segment in a directory of its own"}

# What brokers and file systems leave beside a store that Orbitlog serves.
HARMLESS: dict[str, Callable[[Path], None]] = {
    "RocksDB that Java creates at every start": lambda root: [
        put(root / "rocksdbstore/CURRENT", b"MANIFEST-000005\n"),
        put(root / "rocksdbstore/000004.log", b""),
    ],
    "empty POP database": lambda root: put(root / "kvStore/000004.log", b""),
    "compaction without a topic": lambda root: put(root / "compaction/position-checkpoint", b'{"queueOffsetMap":{}}'),
    "empty DLedger directory": lambda root: (root / "dledger-n0/data").mkdir(parents=True),
    "lost+found": lambda root: put(root / "lost+found/#12", b"x"),
    "hidden directory": lambda root: put(root / ".snapshot/one", b"x"),
    "state of dispatch by Spark": lambda root: put(root / "orbitlog.pipeline/0/checkpoint", b"x"),
    "logs": lambda root: put(root / "logs/broker.log", b"x"),
    "file beside": lambda root: put(root / "nohup.out", b"x"),
    "abort.bak": lambda root: put(root / "abort.bak", b""),
    "batch directory without a queue": lambda root: (root / "batchconsumequeue").mkdir(),
    "topic named CURRENT": lambda root: (root / "consumequeue/CURRENT/0").mkdir(parents=True),
    "ordinary attributes": lambda root: _topic(root, "cleanup.policy=DELETE"),
    "message type": lambda root: _topic(root, "message.type=FIFO"),
    "static topic": lambda root: _static_topic(root, '"queueId":0'),
}
