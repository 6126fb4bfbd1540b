"""The small pieces of machine code: hashing, UTF-8, CRC, properties; each against Python's own."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitlog.formats import java
from orbitlog.formats.delay_levels import parse_level
from orbitlog.formats.derived.index_layout import key_hash
from orbitlog.formats.records import properties
from orbitlog.kernels import property_scan, text
from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import kernel

NAMES = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"INNER_MULTI_DISPATCH", b"TAGT", b"a", b"")


@kernel
def _hash(data):
    return text.java_hash(data.ctypes.data, np.int64(0), np.int64(data.shape[0]), np.int32(0))


@kernel
def _index_hash(data):
    return text.index_hash(text.java_hash(data.ctypes.data, np.int64(0), np.int64(data.shape[0]), np.int32(0)))


@kernel
def _is_utf8(data):
    return text.is_utf8(data.ctypes.data, np.int64(0), np.int64(data.shape[0]))


@kernel
def _known(data, readable_end):
    return property_scan.find_known(data.ctypes.data, np.int64(0), np.int64(data.shape[0]), np.int64(readable_end))


@kernel
def _level(data):
    return property_scan.parse_delay_level(data.ctypes.data, np.int64(0), np.int64(data.shape[0]))


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


# Bytes that begin, continue and break characters, close together.
tricky = st.lists(
    st.sampled_from(
        [
            b"a",
            b"abcdefgh",
            b"\xc3\xa9",
            b"\xe4\xb8\xad",
            b"\xf0\x9f\x98\x80",
            b"\x80",
            b"\xc3",
            b"\xe4\xb8",
            b"\xf0\x9f",
            b"\xc0\x80",
            b"\xe0\x80\x80",
            b"\xed\xa0\x80",
            b"\xf0\x80\x80\x80",
            b"\xf4\x90\x80\x80",
            b"\xff",
            b"\xf5",
            b"\x00",
        ]
    ),
    max_size=12,
).map(b"".join) | st.binary(max_size=40)


@given(tricky)
@settings(deadline=None, max_examples=400)
def test_hash_of_any_bytes_is_the_hash_of_their_java_string(data: bytes) -> None:
    assert _hash(array(data)) == java.string_hash(java.utf8_decode(data))
    assert _index_hash(array(data)) == key_hash(java.utf8_decode(data))


@given(tricky)
@settings(deadline=None, max_examples=400)
def test_utf8_is_judged_as_python_does(data: bytes) -> None:
    try:
        data.decode()
        well_formed = True
    except UnicodeDecodeError:
        well_formed = False
    assert _is_utf8(array(data)) == well_formed


def test_the_one_hash_that_has_no_absolute_value() -> None:
    assert _hash(array(b"polygenelubricants")) == -(2**31)
    assert _index_hash(array(b"polygenelubricants")) == 0


@pytest.mark.parametrize("portable", [True, False], ids=["tables", "best"])
def test_crc_is_zlibs(portable: bool) -> None:
    crc = pytest.importorskip("orbitlog.kernels.machine.machine_crc", reason="machine code")
    rng = np.random.default_rng(5)
    for length in [*range(400), 1023, 1024, 4096, 65_537]:
        data = rng.integers(0, 256, length, np.uint8)
        assert crc.crc32_of(data, portable) == zlib.crc32(data.tobytes()), length


property_bytes = st.lists(
    st.tuples(st.sampled_from(NAMES) | tricky, st.sampled_from([b"\x01", b"", b"\x01\x01"]), tricky).map(b"".join),
    max_size=8,
).map(b"\x02".join)


@given(property_bytes, st.booleans())
@settings(deadline=None, max_examples=400)
def test_known_properties_are_those_of_the_decoded_map(data: bytes, has_room_behind: bool) -> None:
    buffer = array(data + bytes(64) if has_room_behind else data)
    known = _known(buffer[: len(data)], len(buffer))
    expected = properties.decode_properties(data)
    for number, name in enumerate((properties.TAGS, properties.KEYS, properties.UNIQ_KEY, properties.DELAY)):
        start, end = known[2 * number], known[2 * number + 1]
        value = None if start < 0 else java.utf8_decode(data[start:end])
        assert value == expected.get(name), name
    assert known[8] == (properties.INNER_MULTI_DISPATCH in expected)


@pytest.mark.parametrize(
    "level", ["1", "18", "0", "-1", "+7", "+", "-", "x", "1x", "2147483647", "2147483648", "9" * 30, "٣"]
)
def test_delay_levels_are_read_as_formats_reads_them(level: str) -> None:
    expected = parse_level(level)
    # Anything that delays nothing is 0 to a kernel.
    assert _level(array(level.encode())) == max(expected or 0, 0)
