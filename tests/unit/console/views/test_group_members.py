"""Subscriptions of members that differ."""

from __future__ import annotations

from orbitlog.console.views.group_members import different_subscriptions


def test_members_that_subscribe_differently_are_named() -> None:
    same = {"a": {"T": "*", "%RETRY%g": "*"}, "b": {"T": "*", "%RETRY%g": "*"}}
    assert different_subscriptions(same) == []
    assert different_subscriptions({"a": {"T": "new"}, "b": {"T": "*"}, "c": {"T": "*"}}) == [
        "T: b, c reads *; a reads new"
    ]
    assert different_subscriptions({"a": {"T": "*", "U": "*"}, "b": {"T": "*"}}) == [
        "U: b does not subscribe to it; a reads *"
    ]
