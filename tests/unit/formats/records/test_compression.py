from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest

from orbitlog.errors import BadField, LimitExceeded
from orbitlog.formats.records import compression, flags
from orbitlog.formats.records.compression import compress_body, inflate_body
from orbitlog.formats.records.flags import CompressionType

KINDS = list(CompressionType)
PATTERN = bytes((number * number >> 3) % 26 + 97 for number in range(5000))
MEBIBYTE = 1024 * 1024


@pytest.fixture(autouse=True, params=["package lz4", "without it"])
def lz4_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with both readers of LZ4."""
    if request.param == "without it":
        monkeypatch.setattr(compression, "_lz4_library", lambda: None)
    else:
        pytest.importorskip("lz4.frame")


def flagged(kind: CompressionType) -> int:
    return flags.with_compression(0, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"x", PATTERN, bytes(100_000)], ids=["empty", "one", "pattern", "zeros"])
def test_round_trip(kind: CompressionType, body: bytes) -> None:
    assert inflate_body(compress_body(body, kind), flagged(kind)) == body


def test_a_body_not_marked_is_returned_as_it_is() -> None:
    for sys_flag in (0, 0x700, 0x400, ~flags.COMPRESSED):
        assert inflate_body(b"as it is", sys_flag) == b"as it is"


# Made by Java 17's DeflaterOutputStream
@pytest.mark.skipif("ng" in zlib.ZLIB_RUNTIME_VERSION, reason="zlib-ng compresses to other bytes")
@pytest.mark.parametrize(
    ("body", "level", "raw"),
    [
        (b"x" * 5000, 5, "785eedc13101000000c2a0da8b6f0a3fa00000000080b70114162848"),
        (b"", 5, "785e030000000001"),
        (b"", 1, "7801030000000001"),
        (b"", 9, "78da030000000001"),
        (PATTERN[:9], 5, "785e4b4c4c4c4a4e494dcf040011520382"),
        (
            PATTERN[:100],
            5,
            "785e0dc2010a00210804c0b79ac5b244699491bfbf6346448ad606f6e1fba6a2dbc94a0bc18cc295b0074f6e1d8fa72d35993fd3d50edfd0"
            "cd743c432e96989030d63cd6a179b78f4eb4fa014bf72a40",
        ),
        (
            PATTERN,
            5,
            "785eedcd810dc4200c04c15a8d41d60981414084bbff4f1db9dd02464492e662a86dac27d4aaefc8f023d64fc20cf36b23b0b45dec32d5a5"
            "ff779d65e3365d8861d72d26d2e926c791637b358d678d5661256b92373a74e8d0a143870e1d3a74e8d0a143870e1d3a743eebfc0028c038b1",
        ),
        (
            PATTERN,
            1,
            "7801ed580b0a0521083cab59c81065512d79fbf7f61c3b7a0041747e22923417436d633da1567d47861fb17e1266985f1b81a5ed6297a92e"
            "fddfaeb36cdca60b31ecbac5443adde438726cafa6f1acd12aac644df216e7706fbc03fe0ff180384a5e209f521f50575127525fd32fd067"
            "d137d26f333f60eef2d91ce90728c038b1",
        ),
    ],
)
def test_zlib_gives_java_s_bytes(body: bytes, level: int, raw: str) -> None:
    assert level != 5 or compress_body(body, CompressionType.ZLIB).hex() == raw, "5 is what clients use"
    for kind in (CompressionType.ZLIB, CompressionType.UNSPECIFIED):
        assert compress_body(body, kind, level).hex() == raw
        assert inflate_body(bytes.fromhex(raw), flagged(kind)) == body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"x", PATTERN], ids=["empty", "one", "pattern"])
def test_no_truncation_is_taken_for_a_body(kind: CompressionType, body: bytes) -> None:
    whole = compress_body(body, kind)
    for size in range(len(whole)):
        with pytest.raises(BadField) as caught:
            inflate_body(whole[:size], flagged(kind))
        assert caught.value.field == "compressed body"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", [b"\0", b"junk", b"\xff" * 40, b"{}" * 500])
def test_what_was_never_compressed(kind: CompressionType, junk: bytes) -> None:
    with pytest.raises(BadField) as caught:
        inflate_body(junk, flagged(kind))
    assert caught.value.field == "compressed body"


def test_zlib_data_is_no_lz4_and_no_zstd() -> None:
    for kind in KINDS:
        for other in KINDS:
            if {kind, other} <= {CompressionType.ZLIB, CompressionType.UNSPECIFIED} or kind is other:
                continue
            with pytest.raises(BadField):
                inflate_body(compress_body(PATTERN, kind), flagged(other))


@pytest.mark.parametrize("code", [4, 5, 6, 7])
def test_an_unknown_compression(code: int) -> None:
    with pytest.raises(BadField, match="names no known compression"):
        inflate_body(b"", code << 8 | flags.COMPRESSED)


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_exact(kind: CompressionType) -> None:
    packed = compress_body(PATTERN, kind)
    assert inflate_body(packed, flagged(kind), limit=5000) == PATTERN
    for limit in (4999, 1, 0):
        with pytest.raises(LimitExceeded) as caught:
            inflate_body(packed, flagged(kind), limit=limit)
        assert (caught.value.field, caught.value.limit) == ("inflated body", limit)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_costs_neither_memory_nor_its_size(kind: CompressionType) -> None:
    bomb = compress_body(bytes(64 * MEBIBYTE), kind, level=1)
    assert len(bomb) < MEBIBYTE
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            inflate_body(bomb, flagged(kind), limit=1000)
        assert tracemalloc.get_traced_memory()[1] < 40 * MEBIBYTE
    finally:
        tracemalloc.stop()


def zstd_bomb(blocks: int) -> bytes:
    """A frame of blocks that repeat one byte 128 Ki times: the most that zstd can promise in four bytes."""
    header = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x58"  # no size stated, window of 2 MiB
    block = lambda last: struct.pack("<I", 0x20000 << 3 | 1 << 1 | last)[:3] + b"x"  # noqa: E731
    return header + block(0) * (blocks - 1) + block(1)


def test_the_worst_zstd_bomb() -> None:
    assert inflate_body(zstd_bomb(2), flagged(CompressionType.ZSTD)) == b"x" * 2**18
    worst = zstd_bomb(100_000)  # 12 GiB
    with pytest.raises(LimitExceeded):
        inflate_body(worst, flagged(CompressionType.ZSTD), limit=1000)


@pytest.mark.parametrize(("window_log", "accepted"), [(10, True), (27, True), (28, False), (31, False), (41, False)])
def test_a_zstd_window_has_a_limit_of_128_mib(window_log: int, accepted: bool) -> None:
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes((window_log - 10 << 3,)) + b"\x01\x00\x00"
    if accepted:
        assert inflate_body(frame, flagged(CompressionType.ZSTD)) == b""
    else:
        with pytest.raises(BadField, match="is not zstd data"):
            inflate_body(frame, flagged(CompressionType.ZSTD))


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD])
def test_nothing_follows_a_frame(kind: CompressionType) -> None:
    packed = compress_body(b"x", kind)
    for tail in (b"y", packed, b"y" * 5000):
        with pytest.raises(BadField):
            inflate_body(packed + tail, flagged(kind))


@pytest.mark.parametrize("start", [b"\x50\x2a\x4d\x18\x04\0\0\0abcd", b"\x04\x22\x4d\x18\x61\x40\0\0\0\0\0"])
def test_skippable_frames_and_dictionaries_are_refused(start: bytes) -> None:
    with pytest.raises(BadField, match="is not an LZ4 frame"):
        inflate_body(start, flagged(CompressionType.LZ4))
