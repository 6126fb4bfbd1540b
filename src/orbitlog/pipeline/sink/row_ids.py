"""Row ids: message ids that follow from the content of a row, so that a repeated row is recognised at the broker.

The id of a row is a hash of the write, the epoch, the partition, the content, and the number of equal rows before it in
the partition. It does not depend on the order of rows, which Spark may change after a shuffle. Ids have the layout of
Java's `MessageClientIDSetter`: bytes 10 to 13 are a time within the month, which tools use to narrow a search. They are
0, the start of the month.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HASH_BYTES = 12
_BEFORE_TIME_BYTES = 10
_TIME = "00000000"
_ACCUMULATOR = 1 << 64


@dataclass(frozen=True, slots=True)
class WriteIdentity:
    """One partition of one epoch of one write."""

    write_id: str
    epoch: int
    partition: int

    @property
    def text(self) -> str:
        return f"{self.write_id}/{self.epoch}/{self.partition}"


class RowIds:
    """Ids of the rows of one partition, and a digest of all of them that does not depend on their order."""

    def __init__(self, identity: WriteIdentity) -> None:
        self._start = hashlib.blake2b(identity.text.encode(), digest_size=_HASH_BYTES)
        self._seen: set[bytes] = set()
        self._repeated: dict[bytes, int] = {}
        self.count = 0
        self._sum = 0

    def next(self, topic: str, fields: Mapping[str, Any]) -> str:
        """Return the id of the next row."""
        content = self._hash(*(_stable(name, fields[name]) for name in sorted(fields)), topic.encode())
        if content in self._seen:
            number = self._repeated[content] = self._repeated.get(content, 0) + 1
            raw = self._hash(content, b"%d" % number)
        else:
            self._seen.add(content)
            raw = content
        self.count += 1
        self._sum = (self._sum + int.from_bytes(raw[:8], "big")) % _ACCUMULATOR
        return f"{raw[:_BEFORE_TIME_BYTES].hex()}{_TIME}{raw[_BEFORE_TIME_BYTES:].hex()}".upper()

    @property
    def digest(self) -> str:
        """The same for the same rows in any order."""
        return f"{self.count}:{self._sum:016x}"

    def _hash(self, *parts: bytes) -> bytes:
        state = self._start.copy()
        for part in parts:
            state.update(b"%d:" % len(part))  # so that the end of one part cannot be the start of the next
            state.update(part)
        return state.digest()


def _stable(name: str, value: Any) -> bytes:
    """Return bytes that are the same for the same value in every process."""
    if isinstance(value, bytes):
        return value
    return repr((name, sorted(value) if name == "properties" and value else value)).encode(errors="surrogatepass")
