"""Names of everything in a store directory, made and parsed in one place.

Segments, queue files and timer log files are named after the first byte they hold, in 20 digits; index files after
the local time of their making, in 17. Only names: nothing here touches a disk.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import PurePath

from orbitlog.errors import BadField
from orbitlog.formats.java import INT_MAX, INT_MIN, LONG_MAX
from orbitlog.formats.names import check_stored_topic

COMMITLOG = "commitlog"
CONSUMEQUEUE = "consumequeue"
CONSUMEQUEUE_EXT = "consumequeue_ext"
BATCH_CONSUMEQUEUE = "batchconsumequeue"
INDEX = "index"
CONFIG = "config"
TIMER_LOG = "timerlog"
TIMER_WHEEL = "timerwheel"
CHECKPOINT = "checkpoint"
BROKER_IDENTITY = "brokerIdentity"
BROKER_IDENTITY_APPLIED = "brokerIdentity-temp"
ABORT = "abort"
LOCK = "lock"
LOCK_CONTENT = b"lock"
BACKUP_SUFFIX = ".bak"
DLEDGER_PREFIX = "dledger-"
DLEDGER_DATA = "data"
DLEDGER_INDEX = "index"
DOCTOR = ".orbitlog-doctor"

SEGMENT_BYTES_DEFAULT = 1024 * 1024 * 1024

_OFFSET_NAME = re.compile(r"[0-9]{20}")
_INDEX_NAME = re.compile(r"[0-9]{17}")
_QUEUE_ID = re.compile(r"0|-?[1-9][0-9]{0,9}")


def offset_file_name(base: int) -> str:
    """Name the file whose first byte is number `base` of its log."""
    if not 0 <= base <= LONG_MAX:
        raise BadField(f"{base} is not a valid start of a file", field="file name")
    return f"{base:020d}"


def parse_offset_file_name(name: str) -> int | None:
    """Return the position of the file's first byte, or None if the name is of another kind."""
    if not _OFFSET_NAME.fullmatch(name):
        return None
    base = int(name)
    return base if base <= LONG_MAX else None


def index_file_name(made_at: datetime) -> str:
    """Name an index file after its (local) creation time."""
    return f"{made_at:%Y%m%d%H%M%S}{made_at.microsecond // 1000:03d}"


def index_file_time(first_message_ms: int, previous: datetime) -> datetime:
    """Return the time to name an index file after: that of its first message, in local time as Java has it.

    Names must ascend: the time is later than that of the `previous` file (`datetime.min` before the first one).
    """
    return max(datetime.fromtimestamp(first_message_ms / 1000), previous + timedelta(milliseconds=1))


def parse_index_file_name(name: str) -> datetime | None:
    """Return the creation time of an index file, in its creator's local time; None if the name is of another kind."""
    if not _INDEX_NAME.fullmatch(name):
        return None
    try:
        return datetime.strptime(name + "000", "%Y%m%d%H%M%S%f")
    except ValueError:
        return None


def queue_directory(topic: str, queue_id: int, *, kind: str = CONSUMEQUEUE) -> PurePath:
    """Return a queue's directory below the store's root; raise `BadField` for a topic that would leave it."""
    return PurePath(kind, check_stored_topic(topic), str(queue_id))


def parse_queue_id(name: str) -> int | None:
    """Return the queue id of a directory's name; brokers before 4.9.2 also created negative ones."""
    if not _QUEUE_ID.fullmatch(name):
        return None
    queue_id = int(name)
    return queue_id if INT_MIN <= queue_id <= INT_MAX else None


def encode_abort(process_id: int | None) -> bytes:
    """Return the content of the abort file: empty in 4.x, the decimal process id in 5.x."""
    return b"" if process_id is None else str(process_id).encode("ascii")
