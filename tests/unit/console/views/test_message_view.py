"""Pages of messages."""

from __future__ import annotations

from orbitlog.console.views.message_filter import SKIP_MAX, MessageQuery
from orbitlog.console.views.message_view import _more

NO_TIMES = (None, None)
PAGE = MessageQuery(limit=2)


def test_next_page_of_messages_loses_none_and_ends() -> None:
    assert _more([], NO_TIMES, [], PAGE, from_start=False) == {}
    assert _more([5, 9], NO_TIMES, [], PAGE, from_start=False) == {"until": "10"}
    assert _more([9], (None, 10), [], PAGE, from_start=False) == {"until": "9"}
    assert _more([5, 9], NO_TIMES, [], PAGE, from_start=True) == {"since": "5"}
    assert _more([5], (5, None), [], PAGE, from_start=True) == {"since": "6"}


def test_page_inside_of_a_millisecond_continues_after_what_was_shown() -> None:
    later = MessageQuery(limit=2, skip=4)
    assert _more([9], (None, 10), [9, 9], PAGE, from_start=False) == {"until": "10", "skip": "2"}
    assert _more([9], (None, 10), [9, 9], later, from_start=False) == {"until": "10", "skip": "6"}
    assert _more([5], (5, None), [5, 5], later, from_start=True) == {"since": "5", "skip": "6"}
    assert _more([5], (5, None), [5], later, from_start=True) == {"since": "6"}  # the last ones of it
    assert _more([5], NO_TIMES, [5, 5], PAGE, from_start=True) == {"since": "5"}
    full = MessageQuery(limit=2, skip=SKIP_MAX - 1)
    assert _more([5], (5, None), [5, 5], full, from_start=True) == {"since": "6"}
