"""Pages of messages."""

from __future__ import annotations

from orbitlog.console.views.message_view import _more


def test_next_page_of_messages_loses_none_and_ends() -> None:
    assert _more([], None, None, from_start=False) == {}
    assert _more([5, 9], None, None, from_start=False) == {"until": "10"}
    assert _more([9], None, 10, from_start=False) == {"until": "9"}
    assert _more([5, 9], None, None, from_start=True) == {"since": "5"}
    assert _more([5], 5, None, from_start=True) == {"since": "6"}
