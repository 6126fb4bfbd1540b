"""LZ4 frames in plain Python: Java's bytes, the frames of the package `lz4`, and everything that is not a frame."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.formats.records.lz4_frames import MAGIC, BadFrame, decode_frame, encode_frame, xxh32
from tests.support.work_counters import steps_of

PATTERN = bytes((number * number >> 3) % 26 + 97 for number in range(5000))
MEBIBYTE = 1024 * 1024
LIMIT = 64 * MEBIBYTE
# Sizes around the boundaries of literals, matches and blocks.
SIZES = (0, 1, 4, 5, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 100, 269, 270, 271, 65_535, 65_536, 65_537, 300_000)


def bodies(size: int) -> list[bytes]:
    chance = random.Random(size)
    words = [chance.randbytes(chance.randint(1, 9)) for _ in range(50)]
    return [chance.randbytes(size), bytes(size), b"".join(chance.choices(words, k=size))[:size], PATTERN[:size]]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32_gives_published_values(data: bytes, expected: int) -> None:
    assert xxh32(data) == xxh32(bytearray(data)) == expected


# Made by lz4-java 1.8.0's LZ4FrameOutputStream, as Java clients use it
@pytest.mark.parametrize(
    ("body", "frame"),
    [
        (b"", "04224d1860707300000000"),
        (b"x" * 5000, "04224d186070731e0000001f780100ffffffffffffffffffffffffffffffffffffff8250787878787800000000"),
        (
            PATTERN[:100],
            "04224d18607073640000806161616263646567696b6d7073767963676b6f747964696f7561676e7562697179676f786770796973636d7869746571636f616e616e616f6371657469786d637369797067786f6779716962756e6761756f696479746f6b6763797673706d6b6967656400000000",
        ),
    ],
)
def test_frames_of_java_are_read(body: bytes, frame: str) -> None:
    assert decode_frame(bytes.fromhex(frame), LIMIT) == body


@pytest.mark.parametrize("size", SIZES)
def test_round_trip(size: int) -> None:
    for body in bodies(size):
        frame = encode_frame(body)
        assert decode_frame(frame, LIMIT) == body
        assert len(frame) <= len(body) + 15 + 4 * (len(body) // 2**22 + 1) + 4


def test_written_blocks_are_independent_and_no_larger_than_stated() -> None:
    """LZ4FrameInputStream of Java reads no others, and allocates the stated size."""
    for size, code in ((0, 4), (2**16, 4), (2**16 + 1, 5), (2**20, 6), (2**20 + 1, 7), (2**22 + 1, 7)):
        frame = encode_frame(bytes(size))
        assert (frame[4], frame[5] >> 4) == (0x68, code)
        assert decode_frame(frame, LIMIT) == bytes(size)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block_linked": False},
        {"block_checksum": True, "content_checksum": True},
        {"store_size": False, "block_size": 7},
        {"compression_level": 9, "content_checksum": True},
    ],
)
def test_frames_of_the_package_lz4_are_read(options: dict[str, object]) -> None:
    library = pytest.importorskip("lz4.frame")
    for size in SIZES:
        for body in bodies(size):
            assert decode_frame(library.compress(body, **options), LIMIT) == body


@pytest.mark.parametrize("size", SIZES)
def test_package_lz4_reads_what_is_written(size: int) -> None:
    library = pytest.importorskip("lz4.frame")
    for body in bodies(size):
        assert library.decompress(encode_frame(body)) == body


def library_result(data: bytes) -> bytes | None:
    import lz4.frame

    inflater = lz4.frame.LZ4FrameDecompressor()
    try:
        content = inflater.decompress(data, max_length=LIMIT + 1)
    except (RuntimeError, EOFError):
        return None
    return content if inflater.eof and not inflater.unused_data else None


def plain_result(data: bytes) -> bytes | str:
    """Return the content of a frame, or the reason why it is invalid."""
    try:
        return decode_frame(data, LIMIT)
    except BadFrame as error:
        return str(error)


def test_changed_frames_give_the_same_as_the_package_lz4() -> None:
    """What the library reads is read with the same content, except matches of distance 0, which the format forbids.

    Without checksums it refuses more: it has additional rules for the ends of blocks.
    """
    library = pytest.importorskip("lz4.frame")
    chance = random.Random(20261119)
    agreed = 0
    for checked in (False, True):
        for body in (PATTERN[:300], bytes(2000), b"one two three one two three " * 9):
            whole = library.compress(body, block_checksum=checked, content_checksum=checked)
            for _ in range(700):
                changed = bytearray(whole)
                for _ in range(chance.randint(1, 3)):
                    changed[chance.randrange(7, len(changed))] = chance.choice((0, 1, 255, chance.randrange(256)))
                expected = library_result(bytes(changed))
                if expected is not None:
                    content = plain_result(bytes(changed))
                    agreed += content == expected
                    assert content in (expected, "a match has the distance 0")
                elif checked:
                    assert isinstance(plain_result(bytes(changed)), str)
    assert agreed > 100


def test_each_truncation_and_each_longer_text_is_refused() -> None:
    for body in (b"", b"x", PATTERN):
        frame = encode_frame(body)
        for size in range(len(frame)):
            with pytest.raises(BadFrame):
                decode_frame(frame[:size], LIMIT)
        for tail in (b"\0", frame):
            with pytest.raises(BadFrame, match="other bytes follow"):
                decode_frame(frame + tail, LIMIT)


def test_flipped_bits_of_a_frame_with_checksums_are_found() -> None:
    library = pytest.importorskip("lz4.frame")
    whole = library.compress(PATTERN[:200], block_checksum=True, content_checksum=True)
    for position in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(BadFrame):
            decode_frame(bytes(changed), LIMIT)


def frame_of(*blocks: bytes, flg: int = 0x60) -> bytes:
    """Return a frame with compressed blocks as they are given; raw ones begin with their size."""
    descriptor = bytes((flg, 0x40))
    head = MAGIC + descriptor + bytes((xxh32(descriptor) >> 8 & 0xFF,))
    return head + b"".join(struct.pack("<I", len(block)) + block for block in blocks) + bytes(4)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (b"", "ends too early"),
        (b"\x10", "exceed"),
        (b"\xf0\xff\xff", "too early"),
        (b"\x10a\x00\x00\x00", "distance 0"),
        (b"\x10a\x02\x00\x00", "begins before"),
        (b"\x10a\x01", "too early"),
        (b"\x10a\x01\x00", "too early"),
        (b"\x1fa\x01\x00" + b"\xff" * 300 + b"\x00\x00", "exceeds its maximum"),
    ],
)
def test_invalid_blocks_are_refused(block: bytes, problem: str) -> None:
    data = frame_of(block) if block else MAGIC + b"\x60\x40" + bytes((xxh32(b"\x60\x40") >> 8 & 0xFF,))
    with pytest.raises(BadFrame, match=problem):
        decode_frame(data, LIMIT)


def test_match_into_an_earlier_block_needs_linked_blocks() -> None:
    blocks = (b"\x80abcdefgh", b"\x04\x08\x00\x00")
    assert decode_frame(frame_of(*blocks, flg=0x40), LIMIT) == b"abcdefghabcdefgh"
    with pytest.raises(BadFrame, match="begins before"):
        decode_frame(frame_of(*blocks), LIMIT)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x50\x2a\x4d\x18\x04\0\0\0abcd", "magic"),
        (b"\x02\x21\x4c\x18" + bytes(20), "magic"),
        (MAGIC + b"\x61\x40\0\0\0\0\0", "dictionary"),
        (MAGIC + b"\x20\x40\0\0\0\0\0", "version"),
        (MAGIC + b"\x62\x40\0\0\0\0\0", "version"),
        (MAGIC + b"\x60\x30\0\0\0\0\0", "block size"),
        (MAGIC + b"\x60\x41\0\0\0\0\0", "block size"),
        (MAGIC + b"\x60\x40\0\0\0\0\0", "checksum of the header"),
        (frame_of(bytes(65_537)), "a block of 65537 bytes exceeds 65536"),
    ],
)
def test_other_headers_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(BadFrame, match=problem):
        decode_frame(data, LIMIT)


def test_stated_size_must_be_that_of_the_content() -> None:
    frame = bytearray(encode_frame(PATTERN))
    frame[6:14] = struct.pack("<Q", 4999)
    frame[14] = xxh32(bytes(frame[4:14])) >> 8 & 0xFF
    with pytest.raises(BadFrame, match="its header states 4999 bytes, the content has 5000"):
        decode_frame(bytes(frame), LIMIT)


def test_bomb_stops_one_block_after_the_limit() -> None:
    bomb = encode_frame(bytes(64 * MEBIBYTE))
    assert len(bomb) < MEBIBYTE
    tracemalloc.start()
    try:
        assert 1000 < len(decode_frame(bomb, 1000)) <= 1000 + 2**22
        assert tracemalloc.get_traced_memory()[1] < 20 * MEBIBYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("block", [b"\x14a\x01\x00", b"\x00\x01\x00", b"\x1fa\x01\x00\xff\xff\xff\x00"])
def test_steps_grow_at_most_with_the_frame(block: bytes) -> None:
    data = frame_of(b"\x10a\x01\x00" + block * (8000 // len(block)) + b"\x50abcde", flg=0x64)
    assert steps_of(lambda: plain_result(data)) < 3000 + 20 * len(data)


@given(st.binary(max_size=60), st.sampled_from((0x40, 0x60, 0x64, 0x68, 0x70)))
def test_arbitrary_blocks_are_read_or_refused(block: bytes, flg: int) -> None:
    assert len(plain_result(frame_of(block, flg=flg))) <= 2**16


@given(st.lists(st.sampled_from((b"a", b"bc", b"abcabc", b"\0" * 40, b"xyz1234567890")), max_size=60))
def test_round_trip_of_repetitions(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    assert decode_frame(encode_frame(body), LIMIT) == body
