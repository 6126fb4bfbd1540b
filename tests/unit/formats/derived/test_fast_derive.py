"""The fast derivation equals the plain one for any bytes of properties."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitlog.formats import names
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived import fast_derive as fast_derive_module
from orbitlog.formats.derived.derive import DeriveRules, index_hashes, queue_units
from orbitlog.formats.derived.fast_derive import FastDerive
from orbitlog.formats.java import ascii_hash, string_hash
from orbitlog.formats.records.message import Message, make_message

# Pieces that meet in every way: names, parts of names, separators, values of every kind.
PIECES = [b"KEYS", b"TAGS", b"UNIQ_KEY", b"EYS", b"X", b"\x01", b"\x02", b" ", b"a", b"key-7", "ü😀".encode(), b"\xff"]
PIECES += [b"k" * 31, b"k" * 33, b"K" * 100, b"\x02KEYS\x01", b"\x02TAGS\x01"]
raw_properties = st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join)


def plainly(message: Message, rules: DeriveRules) -> tuple[int, list[int]]:
    units = queue_units(message._replace(sys_flag=0), rules)
    return units[0].entry.tags_code, index_hashes(message, rules.compat)


@given(raw_properties, st.sampled_from([0, 4, 8, 12]), st.sampled_from([COMPAT_4_9, COMPAT_5_5]))
@example(b"KEYS\x01a\x02KEYS\x01\x02", 0, COMPAT_5_5)
@example(b"KEYS\x01a b  c\x02MYKEYS\x01z", 0, COMPAT_5_5)
@example(b"TAGS\x01\x01\x02", 0, COMPAT_5_5)
@example(b"TAGS\x01a", 12, COMPAT_5_5)
def test_the_same_code_and_hashes(raw: bytes, sys_flag: int, compat: Compat) -> None:
    rules = DeriveRules(compat)
    message = make_message("Tøpic", b"", properties=raw, sys_flag=sys_flag)
    assert FastDerive(rules).derive(message.topic, sys_flag, raw) == plainly(message, rules)


@given(st.text(max_size=80), st.text(alphabet=st.characters(codec="ascii"), max_size=100))
def test_hash_continues_from_the_text_before(before: str, text: str) -> None:
    assert ascii_hash(text.encode(), string_hash(before) & 0xFFFFFFFF) == string_hash(before + text) & 0xFFFFFFFF


def test_what_needs_all_rules_is_left_to_them() -> None:
    assert FastDerive(DeriveRules()).derive(names.SCHEDULE_TOPIC, 0, b"") is None
    light = b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"
    assert FastDerive(DeriveRules(multi_dispatch=True)).derive("T", 0, light) is None
    assert FastDerive(DeriveRules()).derive("T", 0, light) == (0, [])


def test_the_hash_that_has_no_absolute_value() -> None:
    # "T#" and this key make the one hash whose absolute value Java cannot give: the index has 0.
    before = string_hash("T#") & 0xFFFFFFFF
    wanted = (2**31 - before * 31**7) % 2**32
    digits = [90] * 7
    rest = (wanted - sum(digit * 31**place for place, digit in enumerate(digits))) % 2**32
    for place in range(6, -1, -1):
        step, rest = divmod(rest, 31**place)
        digits[place] += step
    assert max(digits) < 128
    key = bytes(reversed(digits)).decode()
    assert string_hash(f"T#{key}") == -(2**31)
    assert FastDerive(DeriveRules(COMPAT_4_9)).derive("T", 0, b"KEYS\x01" + key.encode()) == (0, [0])


def test_what_is_remembered_of_names_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_derive_module, "_TOPICS_MAX", 3)
    monkeypatch.setattr(fast_derive_module, "_TAGS_MAX", 3)
    quick, rules = FastDerive(DeriveRules()), DeriveRules()
    for number in range(10):
        message = make_message(f"T{number}", b"", properties={"TAGS": f"t{number}", "KEYS": "k"})
        assert quick.derive(message.topic, 0, message.properties_raw) == plainly(message, rules)
    assert len(quick._topics) <= 3
    assert len(quick._tags) <= 3
