from __future__ import annotations

from dataclasses import astuple, fields

import pytest

from orbitlog.errors import BadField
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, COMPATS, RULES, Compat, compat_named
from orbitlog.formats.derived.checkpoint import CHECKPOINT


def test_they_are_found_by_name() -> None:
    assert compat_named("4.9") is COMPAT_4_9
    assert compat_named("5.5") is COMPAT_5_5
    assert list(COMPATS) == ["4.9", "5.5"]


@pytest.mark.parametrize("name", ["", "4.8", "5", "5.5.0"])
def test_unknown_name_error_lists_the_known_ones(name: str) -> None:
    with pytest.raises(BadField, match=r"use one of 4\.9, 5\.5") as caught:
        compat_named(name)
    assert caught.value.field == "compat"


def test_every_rule_is_described_and_distinguishes_the_versions() -> None:
    assert list(RULES) == [field.name for field in fields(Compat)][1:]
    assert all(old != new for old, new in zip(astuple(COMPAT_4_9), astuple(COMPAT_5_5), strict=True))


@pytest.mark.parametrize("compat", COMPATS.values(), ids=COMPATS)
def test_checkpoint_fields_are_a_prefix_of_the_layout(compat: Compat) -> None:
    names = tuple(field.name for field in CHECKPOINT.fields)
    assert compat.checkpoint_fields == names[: len(compat.checkpoint_fields)]
