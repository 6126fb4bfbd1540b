"""Frame start: the two lengths in front of every header, packed and unpacked here only.

    total u32 | mark u32 (serialization u8, header length u24)      total counts everything but itself

The serialization of JSON is 0, so that the mark of a JSON frame is the length of its header.
"""

from __future__ import annotations

import struct

TOTAL_BYTES = 4
_START = struct.Struct(">II")
FRAME_START_BYTES = _START.size

# The bound methods of the struct: hot loops call them without a Python function in between.
pack_frame_start = _START.pack
unpack_frame_start = _START.unpack_from


def json_frame(header: bytes) -> bytes:
    """Return a whole frame with a JSON header and no body."""
    size = len(header)
    return pack_frame_start(TOTAL_BYTES + size, size) + header
