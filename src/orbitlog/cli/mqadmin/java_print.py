"""Java formatting: values and lines as Java's `printf` writes them, for scripts that parse columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from orbitlog.formats.java import string_hash
from orbitlog.formats.message_queue import MessageQueue

T = TypeVar("T")

_FIRST_REGULAR = 194
_V5_0_0 = 413
_HIGHER = 612
_PERMISSION_LETTERS = ((4, "R"), (2, "W"), (1, "X"))


def java_text(value: object) -> str:
    """Return the result of Java's `String.valueOf`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{java_text(key)}={java_text(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(java_text, value)) + "]"
    return str(value)


def printf(template: str, *values: object) -> str:
    """Format like `String.format`; numbers stay numbers for %d and %f, other values become text."""
    ready = tuple(
        value if isinstance(value, int | float) and not isinstance(value, bool) else java_text(value)
        for value in values
    )
    return template % ready


def front(text: str | None, size: int) -> str | None:
    """Return at most `size` characters, like `UtilAll.frontStringAtLeast`."""
    return None if text is None else text[:size]


def human_time(timestamp_ms: int) -> str:
    """Return a time like `UtilAll.timeMillisToHumanString2`: 2026-01-31 12:00:00,000."""
    local = datetime.fromtimestamp(timestamp_ms // 1000)
    return f"{local:%Y-%m-%d %H:%M:%S},{timestamp_ms % 1000:03d}"


def second_time(timestamp_ms: int) -> str:
    """Return a time like `UtilAll.formatDate`, in seconds."""
    return f"{datetime.fromtimestamp(timestamp_ms // 1000):%Y-%m-%d %H:%M:%S}"


def parse_time_ms(text: str) -> int:
    """Parse milliseconds since 1970, or 2026-01-31#12:00:00:000."""
    if text.lstrip("+-").isdecimal():
        return int(text)
    local = datetime.strptime(text, "%Y-%m-%d#%H:%M:%S:%f")
    # Java's last field is milliseconds, Python's a fraction: `:5` is 5 ms for Java and 500 ms for Python.
    return int(local.replace(microsecond=0).timestamp() * 1000) + int(text.rpartition(":")[2])


def version_text(ordinal: int) -> str:
    """Return the name of a version like `MQVersion.getVersionDesc`; since 3.9.1 a release has two ordinals."""
    if not _FIRST_REGULAR <= ordinal < _HIGHER:
        return "HIGHER_VERSION" if ordinal >= _HIGHER else "V3"
    is_snapshot = (ordinal - _V5_0_0) % 2
    release = 500 + (ordinal - _V5_0_0 + is_snapshot) // 2
    return f"V{release // 100}_{release // 10 % 10}_{release % 10}" + ("_SNAPSHOT" if is_snapshot else "")


def permission_text(permission: int) -> str:
    """Return a permission like `PermName.perm2String`: RW-."""
    return "".join(letter if permission & bit else "-" for bit, letter in _PERMISSION_LETTERS)


def in_hash_order(names: Iterable[str], capacity: int = 16) -> list[str]:
    """Return texts in the iteration order of Java's `HashMap` and `HashSet`: by bucket, then by insertion."""
    return _by_bucket(list(names), string_hash, capacity)


def queues_in_hash_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in the iteration order of Java's `HashSet`, in which the tool prints them."""
    return _by_bucket(list(queues), _queue_hash, 16)


def _queue_hash(queue: MessageQueue) -> int:
    """Return Java's `MessageQueue.hashCode`."""
    value = 31 + string_hash(queue.broker_name)
    return (value * 31 + queue.queue_id) * 31 + string_hash(queue.topic)


def _by_bucket(keys: list[T], hash_of: Callable[[T], int], capacity: int) -> list[T]:
    while len(keys) > capacity * 3 // 4:
        capacity *= 2

    def bucket(key: T) -> int:
        value = hash_of(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & (capacity - 1)

    return sorted(keys, key=bucket)
