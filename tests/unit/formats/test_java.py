"""Vectors printed by Java 17."""

from __future__ import annotations

import pytest

from orbitlog.formats import java

# text, text.hashCode(), text.getBytes(UTF_8)
STRINGS = [
    ("", 0, ""),
    ("\0", 0, "00"),
    ("a", 97, "61"),
    ("*", 42, "2a"),
    ("TagA", 2598919, "54616741"),
    ("Aa", 2112, "4161"),
    ("BB", 2112, "4242"),
    ("Siblings", 231609873, "5369626c696e6773"),
    ("Teheran", 231609873, "5465686572616e"),
    ("é", 233, "c3a9"),
    ("e\u0301", 3900, "65cc81"),
    ("中文", 646394, "e4b8ade69687"),
    ("\N{GRINNING FACE}", 1772899, "f09f9880"),
    ("\ud83d", 55357, "3f"),
    ("\ude00", 56832, "3f"),
    ("\ud83d" + "\ude00", 1772899, "f09f9880"),
    ("\ude00\ud83d", 1817149, "3f3f"),
    ("a\ud83d" + "\ud83d" + "\ude00", 57860703, "613ff09f9880"),
    ("\ufffd", 65533, "efbfbd"),
    ("TopicTest#KEY1", -1656969516, "546f70696354657374234b455931"),
    ("k4996292yz", 2**31 - 1, "6b34393936323932797a"),
    ("polygenelubricants", -(2**31), "706f6c7967656e656c7562726963616e7473"),
    (
        "0123456789abcdef0123456789abcdef",
        -1783317168,
        "3031323334353637383961626364656630313233343536373839616263646566",
    ),
]


@pytest.mark.parametrize(("text", "hashed", "_utf8"), STRINGS)
def test_string_hash(text: str, hashed: int, _utf8: str) -> None:
    assert java.string_hash(text) == hashed


@pytest.mark.parametrize(("text", "_hashed", "utf8"), STRINGS)
def test_utf8_encode(text: str, _hashed: int, utf8: str) -> None:
    assert java.utf8_encode(text).hex() == utf8


# new String(bytes, UTF_8): how many U+FFFD a malformed sequence becomes
MALFORMED = [
    ("80", "\ufffd"),
    ("bf80", "\ufffd\ufffd"),
    ("c0", "\ufffd"),
    ("c080", "\ufffd\ufffd"),
    ("c1bf", "\ufffd\ufffd"),
    ("c2", "\ufffd"),
    ("c241", "\ufffdA"),
    ("dfbf", "\u07ff"),
    ("e0", "\ufffd"),
    ("e080", "\ufffd\ufffd"),
    ("e08080", "\ufffd\ufffd\ufffd"),
    ("e0a0", "\ufffd"),
    ("e0a041", "\ufffdA"),
    ("e0a080", "\u0800"),
    ("e18041", "\ufffdA"),
    ("ed9fbf", "\ud7ff"),
    ("eda0", "\ufffd"),
    ("eda041", "\ufffdA"),
    ("eda080", "\ufffd"),
    ("edbfbf", "\ufffd"),
    ("eda080edb080", "\ufffd\ufffd"),
    ("41eda08042", "A\ufffdB"),
    ("eeed80", "\ufffd\ufffd"),
    ("ee8080", "\ue000"),
    ("f0", "\ufffd"),
    ("f08080", "\ufffd\ufffd\ufffd"),
    ("f0808080", "\ufffd\ufffd\ufffd\ufffd"),
    ("f090", "\ufffd"),
    ("f09080", "\ufffd"),
    ("f0908041", "\ufffdA"),
    ("f0908080", "\U00010000"),
    ("f48fbfbf", "\U0010ffff"),
    ("f4908080", "\ufffd\ufffd\ufffd\ufffd"),
    ("f5808080", "\ufffd\ufffd\ufffd\ufffd"),
    ("ff", "\ufffd"),
]


@pytest.mark.parametrize(("raw", "text"), MALFORMED)
def test_utf8_decode_replaces_as_java_does(raw: str, text: str) -> None:
    data = bytes.fromhex(raw)
    assert java.utf8_decode(data) == text
    assert java.utf8_decode(bytearray(data)) == text
    assert java.utf8_decode(memoryview(data)) == text


def test_utf16_length_counts_surrogates() -> None:
    texts = ("", "a", "中", "\uffff", "\U00010000", "\N{GRINNING FACE}", "\ud83d")
    assert [java.utf16_length(text) for text in texts] == [0, 1, 1, 1, 2, 2, 1]


@pytest.mark.parametrize(
    ("text", "separator", "parts"),
    [
        ("", " ", [""]),
        (" ", " ", []),
        ("  ", " ", []),
        ("a", " ", ["a"]),
        ("a b", " ", ["a", "b"]),
        ("a  b ", " ", ["a", "", "b"]),
        (" a", " ", ["", "a"]),
        (" a  ", " ", ["", "a"]),
        (",", ",", []),
        ("a,,b,,", ",", ["a", "", "b"]),
        (",a", ",", ["", "a"]),
    ],
)
def test_split(text: str, separator: str, parts: list[str]) -> None:
    assert java.split(text, separator) == parts


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (-1, 20, 0), (0, -5, 0), (2**62, 3, 2**62 // 3)],
)
def test_divide_truncates(dividend: int, divisor: int, quotient: int) -> None:
    assert java.divide(dividend, divisor) == quotient


def test_widths_wrap() -> None:
    assert [java.to_int(value) for value in (2**31, -(2**31) - 1, 2**32, 2**31 - 1)] == [
        java.INT_MIN,
        java.INT_MAX,
        0,
        java.INT_MAX,
    ]
    assert [java.to_long(value) for value in (2**63, -(2**63) - 1, 2**64)] == [java.LONG_MIN, java.LONG_MAX, 0]


def test_the_lowest_int_has_no_absolute_value() -> None:
    assert [java.abs_or_zero(value) for value in (java.INT_MIN, java.INT_MIN + 1, -5, 5)] == [0, java.INT_MAX, 5, 5]


def _equal_hashes(count: int) -> list[str]:
    texts = [""]
    for _ in range(4):
        texts = [text + part for text in texts for part in ("Aa", "BB")]
    return texts[:count]


def _numbered(count: int) -> list[str]:
    return [f"k{number * 7919}" for number in range(count)]


OTHER_KEYS = "TAGS KEYS q WAIT CLUSTER UNIQ_KEY DELAY a1 b2 z9"

# Iteration order of `new HashMap<>(capacity)` after putting the keys in this order
HASH_MAPS = [
    (16, "UNIQ_KEY WAIT TAGS CLUSTER", "UNIQ_KEY CLUSTER WAIT TAGS"),
    (128, "UNIQ_KEY WAIT TAGS CLUSTER", "UNIQ_KEY CLUSTER TAGS WAIT"),
    (16, "q a 1 A Q 0 p P", "0 p P q a 1 A Q"),
    (
        16,
        " ".join(_numbered(12)),
        "k31676 k23757 k55433 k71271 k79190 k0 k87109 k47514 k7919 k15838 k39595 k63352",
    ),
    (
        16,
        " ".join(_numbered(13)),
        "k23757 k79190 k0 k47514 k7919 k15838 k63352 k31676 k55433 k71271 k87109 k95028 k39595",
    ),
    (16, " ".join(_numbered(7)), "k31676 k23757 k0 k47514 k7919 k15838 k39595"),
    (17, " ".join(_numbered(7)), "k23757 k0 k47514 k7919 k15838 k31676 k39595"),
    (10, " ".join(_numbered(5)), "k31676 k23757 k0 k7919 k15838"),
    (1, " ".join(_numbered(2)), "k7919 k0"),
    (3, " ".join(_numbered(3)), "k7919 k0 k15838"),
    # The ninth key in one bucket doubles a small table.
    (16, " ".join([*_equal_hashes(10), "TAGS", "KEYS", "q"]), " ".join([*_equal_hashes(10), "KEYS", "q", "TAGS"])),
    (
        32,
        " ".join([*_equal_hashes(8), OTHER_KEYS]),
        " ".join([*_equal_hashes(8), "a1 b2 q KEYS CLUSTER UNIQ_KEY WAIT DELAY TAGS z9"]),
    ),
    (
        32,
        " ".join([*_equal_hashes(9), OTHER_KEYS]),
        " ".join([*_equal_hashes(9), "b2 KEYS CLUSTER UNIQ_KEY WAIT a1 q DELAY TAGS z9"]),
    ),
]


@pytest.mark.parametrize(("capacity", "inserted", "iterated"), HASH_MAPS)
def test_hash_map_order(capacity: int, inserted: str, iterated: str) -> None:
    assert java.hash_map_order(inserted.split(), capacity=capacity) == iterated.split()


def test_a_crowded_bucket_does_not_double_a_table_of_64() -> None:
    """Java makes a tree of it, whose own order is not followed here; the other keys stay where they are."""
    equal = _equal_hashes(10)
    ordered = java.hash_map_order([*equal, *OTHER_KEYS.split()], capacity=64)
    assert [key for key in ordered if key not in equal] == "b2 KEYS CLUSTER UNIQ_KEY WAIT a1 q DELAY TAGS z9".split()


def test_the_standard_capacity_is_16() -> None:
    assert java.hash_map_order(_numbered(7)) == java.hash_map_order(_numbered(7), capacity=16)


def test_a_key_put_twice_keeps_its_place() -> None:
    equal = _equal_hashes(3)
    assert java.hash_map_order([*equal, equal[0]]) == equal
