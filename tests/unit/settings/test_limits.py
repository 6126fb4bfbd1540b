"""Limits: values from settings, and counters."""

from __future__ import annotations

import pytest

from orbitlog.errors import RequestRefused
from orbitlog.settings.limits import HELD_REQUESTS, Limits


def test_limit_without_a_value_has_its_default() -> None:
    assert Limits()[HELD_REQUESTS] == HELD_REQUESTS.default
    assert Limits({HELD_REQUESTS.key: 7})[HELD_REQUESTS] == 7


def test_refusal_names_the_setting_and_is_counted() -> None:
    limits = Limits({HELD_REQUESTS.key: 7})
    limits.refuse_over(HELD_REQUESTS, 7)
    assert limits.reached[HELD_REQUESTS.key] == 0
    with pytest.raises(RequestRefused, match=r"8 exceeds the maximum of 7 \(heldRequestsMax\)"):
        limits.refuse_over(HELD_REQUESTS, 8)
    assert limits.reached[HELD_REQUESTS.key] == 1
