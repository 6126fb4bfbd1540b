"""Observers: callbacks by which metrics see events outside the hot path; nothing is called unless metrics are on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orbitlog.wire.command import Command


def _ignore(*_: object) -> None:
    pass


@dataclass(slots=True)
class Observers:
    """Callbacks of one broker, all called in the thread of the event loop. `is_on` saves calls on busy paths."""

    is_on: bool = False
    transaction_ended: Callable[[str, bool, int], None] = _ignore
    """Topic, whether it was committed, and the born timestamp of its half message in milliseconds."""
    dead_letter: Callable[[str, str], None] = _ignore
    """Topic and group."""
    timer_loaded: Callable[[str, int], None] = _ignore
    """Topic, and the delay in milliseconds."""
    timer_left: Callable[[str, bool], None] = _ignore
    """Topic, and whether the message was delivered."""
    request_answered: Callable[[int, Command | bytes, float, bool, int], None] = _ignore
    """Request code, response, seconds since its arrival, whether it was a long poll, and the number of requests."""
    group_committed: Callable[[int], None] = _ignore
    """Number of requests that one flush lets go."""
