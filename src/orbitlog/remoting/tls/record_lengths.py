"""Lengths of TLS records in received bytes: how many there are, and how much of the last one is missing.

OpenSSL does not report what it keeps of an incomplete record; the memory budget counts it by the lengths in the record
heads.
"""

from __future__ import annotations

_HEAD_BYTES = 5
MANY_RECORDS = 500
_BYTES_MIN = 48


class RecordLengths:
    """Follows the records of one direction of a connection."""

    def __init__(self) -> None:
        self._head = b""  # an incomplete record head
        self._missing_bytes = 0  # of the record whose head is complete
        self.kept_bytes = 0
        """Bytes received of the last record, if it is incomplete."""

    def receive(self, data: bytes) -> bool:
        """Follow more bytes; return False if they are very many tiny records, which cost much and carry nothing.

        A record of 27 bytes can make this end derive new keys. The smallest request takes more than `_BYTES_MIN`.
        """
        size, position, count = len(data), self._missing_bytes, 0
        if position > size:
            self._missing_bytes -= size
            self.kept_bytes += size
            return True
        self.kept_bytes = 0
        while position < size:
            count += 1
            head = self._head + data[position : position + _HEAD_BYTES - len(self._head)]
            position += len(head) - len(self._head)
            if len(head) < _HEAD_BYTES:
                self._head, self._missing_bytes, self.kept_bytes = head, 0, len(head)
                return True
            self._head = b""
            length = head[3] << 8 | head[4]
            position += length
            if position > size:
                self.kept_bytes = length + _HEAD_BYTES - (position - size)
        self._missing_bytes = position - size
        return count < MANY_RECORDS or size >= count * _BYTES_MIN
