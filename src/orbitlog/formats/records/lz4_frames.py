"""LZ4 frames in plain Python: header, blocks and checksums, for installations without the package `lz4`.

`compression` reads bodies with that package if it is installed, which is faster; a test compares the two. The
compressor serves sample messages alone: it writes independent blocks, the only ones that Java's
`LZ4FrameInputStream` reads.
"""

from __future__ import annotations

import struct

MAGIC = b"\x04\x22\x4d\x18"
_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
# Bits of FLG, the first byte after the magic.
_VERSION, _VERSION_MASK = 0x40, 0xC0
_INDEPENDENT, _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM = 0x20, 0x10, 0x08, 0x04
_RESERVED_BIT, _DICTIONARY = 0x02, 0x01
_RAW_BLOCK = 0x80000000
_MATCH_MIN = 4
_DISTANCE_MAX = 0xFFFF
# The format ends a block with at least 5 literals, and the last match begins at least 12 bytes before the end.
_LAST_LITERALS, _MATCH_MARGIN = 5, 12
_TABLE_ENTRIES_MAX = 1 << 15  # some megabytes, however large the body is
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_WORD_MASK = 0xFFFFFFFF


class BadFrame(ValueError):
    """Bytes that are not one complete LZ4 frame."""


def check_start(data: bytes) -> None:
    """Raise `BadFrame` for a skippable frame, or one that needs a dictionary: Java refuses or ignores their content."""
    if data[:4] != MAGIC or len(data) < 7:
        raise BadFrame("no magic number")
    if data[4] & _DICTIONARY:
        raise BadFrame("it needs a dictionary")


def decode_frame(data: bytes, limit: int) -> bytes:
    """Return the content of one frame, or more than `limit` bytes of its beginning if it is longer.

    Raise `BadFrame` if the frame is invalid, incomplete or followed by other bytes.
    """
    try:
        return _decode_frame(data, limit)
    except (IndexError, struct.error):
        raise BadFrame("it ends too early") from None


def _decode_frame(data: bytes, limit: int) -> bytes:
    check_start(data)
    flg, block_bytes_max, content_size, position = _header(data)
    content = bytearray()
    while True:
        (size,) = struct.unpack_from("<I", data, position)
        position += 4
        if size == 0:
            break
        is_raw, size = bool(size & _RAW_BLOCK), size & ~_RAW_BLOCK
        if size > block_bytes_max:
            raise BadFrame(f"a block of {size} bytes exceeds {block_bytes_max}")
        block = data[position : position + size]
        position += size
        if len(block) < size:
            raise BadFrame("it ends too early")
        if flg & _BLOCK_CHECKSUM:
            _check(block, data, position, "block")
            position += 4
        if is_raw:
            content += block
        else:
            _decode_block(block, content, len(content) if flg & _INDEPENDENT else 0, len(content) + block_bytes_max)
        if len(content) > limit:
            return bytes(content)
    if content_size is not None and content_size != len(content):
        raise BadFrame(f"its header states {content_size} bytes, the content has {len(content)}")
    if flg & _CONTENT_CHECKSUM:
        _check(content, data, position, "content")
        position += 4
    if position != len(data):
        raise BadFrame("other bytes follow it")
    return bytes(content)


def _header(data: bytes) -> tuple[int, int, int | None, int]:
    """Return FLG, the maximum size of a block, the stated size of the content, and the position of the first block."""
    flg, bd = data[4], data[5]
    if flg & _VERSION_MASK != _VERSION or flg & _RESERVED_BIT or bd & 0x8F or bd >> 4 not in _BLOCK_BYTES:
        raise BadFrame("unknown version or block size")
    end = 14 if flg & _CONTENT_SIZE else 6
    if data[end] != xxh32(data[4:end]) >> 8 & 0xFF:
        raise BadFrame("wrong checksum of the header")
    content_size = struct.unpack_from("<Q", data, 6)[0] if flg & _CONTENT_SIZE else None
    return flg, _BLOCK_BYTES[bd >> 4], content_size, end + 1


def _check(content: bytes | bytearray, data: bytes, position: int, name: str) -> None:
    if struct.unpack_from("<I", data, position)[0] != xxh32(content):
        raise BadFrame(f"wrong checksum of the {name}")


def _decode_block(block: bytes, content: bytearray, floor: int, end_max: int) -> None:
    """Append a block's content, whose matches begin at `floor` or later; raise `IndexError` if it ends too early."""
    position, size = 0, len(block)
    while True:
        token = block[position]
        position += 1
        length = token >> 4
        if length == 15:
            position, length = _longer(block, position, length)
        if length:
            content += block[position : position + length]
            position += length
        if position >= size:
            if position > size or len(content) > end_max:
                raise BadFrame("literals exceed their block")
            return
        distance = block[position] | block[position + 1] << 8
        position += 2
        begin = len(content) - distance
        if begin < floor or not distance:
            raise BadFrame("a match begins before its block" if distance else "a match has the distance 0")
        length = (token & 15) + _MATCH_MIN
        if length == 15 + _MATCH_MIN:
            position, length = _longer(block, position, length)
        if len(content) + length > end_max:
            raise BadFrame("the content of a block exceeds its maximum")
        if distance >= length:
            content += content[begin : begin + length]
        else:  # the match repeats its own beginning
            content += (content[begin:] * (length // distance + 1))[:length]


def _longer(block: bytes, position: int, length: int) -> tuple[int, int]:
    """Add the bytes that continue a length, up to the first that is not 255; return the position after them."""
    while (more := block[position]) == 255:
        position += 1
        length += 255
    return position + 1, length + more


def encode_frame(content: bytes) -> bytes:
    """Return a frame with the content; a block that does not become smaller is stored as it is."""
    bd = next((code for code, size in _BLOCK_BYTES.items() if size >= len(content)), 7)
    descriptor = struct.pack("<BBQ", _VERSION | _INDEPENDENT | _CONTENT_SIZE, bd << 4, len(content))
    parts = [MAGIC, descriptor, bytes((xxh32(descriptor) >> 8 & 0xFF,))]
    for start in range(0, len(content), _BLOCK_BYTES[bd]):
        plain = content[start : start + _BLOCK_BYTES[bd]]
        packed = _encode_block(plain)
        if len(packed) < len(plain):
            parts += (struct.pack("<I", len(packed)), packed)
        else:
            parts += (struct.pack("<I", len(plain) | _RAW_BLOCK), plain)
    return b"".join((*parts, bytes(4)))


def _encode_block(plain: bytes) -> bytes:
    packed = bytearray()
    table: dict[bytes, int] = {}
    position = anchor = misses = 0
    last = len(plain) - _MATCH_MARGIN
    while position <= last:
        word = plain[position : position + _MATCH_MIN]
        match = table.get(word, -1)
        if len(table) >= _TABLE_ENTRIES_MAX:
            table.clear()
        table[word] = position
        if match < 0 or position - match > _DISTANCE_MAX:
            misses += 1
            position += 1 + (misses >> 6)  # ever larger steps through what does not repeat
            continue
        length = _match_length(plain, match, position)
        _append_sequence(packed, plain[anchor:position], position - match, length)
        position += length
        anchor, misses = position, 0
    _append_sequence(packed, plain[anchor:], 0, 0)
    return bytes(packed)


def _match_length(plain: bytes, match: int, position: int) -> int:
    end = len(plain) - _LAST_LITERALS
    length, step = _MATCH_MIN, 32
    while position + length < end:
        width = min(step, end - position - length)
        left = int.from_bytes(plain[match + length : match + length + width], "little")
        difference = left ^ int.from_bytes(plain[position + length : position + length + width], "little")
        if difference:
            return length + ((difference & -difference).bit_length() - 1) // 8
        length += width
        step = min(step * 2, 1 << 12)
    return length


def _append_sequence(packed: bytearray, literals: bytes, distance: int, length: int) -> None:
    """Append literals and the match after them; the last literals of a block have none."""
    extra = length - _MATCH_MIN if distance else 0
    packed.append(min(len(literals), 15) << 4 | min(extra, 15))
    _append_length(packed, len(literals))
    packed += literals
    if distance:
        packed += distance.to_bytes(2, "little")
        _append_length(packed, extra)


def _append_length(packed: bytearray, length: int) -> None:
    if length >= 15:
        packed += b"\xff" * ((length - 15) // 255)
        packed.append((length - 15) % 255)


def xxh32(data: bytes | bytearray) -> int:
    """Return the xxHash of 32 bits with seed 0."""
    p1, p2, p3, p4, p5 = _PRIMES
    stripes = len(data) // 16 * 16
    result = p5
    if stripes:
        a, b, c, d = p1 + p2 & _WORD_MASK, p2, 0, -p1 & _WORD_MASK
        for w, x, y, z in struct.iter_unpack("<4I", memoryview(data)[:stripes]):
            a = a + w * p2 & _WORD_MASK
            a = (a << 13 | a >> 19) * p1 & _WORD_MASK
            b = b + x * p2 & _WORD_MASK
            b = (b << 13 | b >> 19) * p1 & _WORD_MASK
            c = c + y * p2 & _WORD_MASK
            c = (c << 13 | c >> 19) * p1 & _WORD_MASK
            d = d + z * p2 & _WORD_MASK
            d = (d << 13 | d >> 19) * p1 & _WORD_MASK
        result = _rotated(a, 1) + _rotated(b, 7) + _rotated(c, 12) + _rotated(d, 18)
    result += len(data)
    words = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", memoryview(data)[stripes:words]):
        result = _rotated(result + word * p3 & _WORD_MASK, 17) * p4
    for byte in data[words:]:
        result = _rotated(result + byte * p5 & _WORD_MASK, 11) * p1
    result &= _WORD_MASK
    result = (result ^ result >> 15) * p2 & _WORD_MASK
    result = (result ^ result >> 13) * p3 & _WORD_MASK
    return result ^ result >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD_MASK
