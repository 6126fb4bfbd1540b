"""Condition pages: the active conditions of a server, as metrics and as rows of `/healthz`.

Reasons are only in the log: they may contain text of clients, and these pages have no access control.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from orbitlog.observe.conditions import Conditions
from orbitlog.observe.metric import Family, Row
from orbitlog.observe.metric_table import CONDITION, CONDITION_BEGAN


def condition_families(conditions: Conditions) -> Iterator[Family]:
    """Yield the active conditions, and how often each kind has begun."""
    shown = dict.fromkeys(CONDITION.text(name, subject) for name, subject, _ in _shown(conditions))
    yield Family(CONDITION, [Row(labels, 1) for labels in shown])
    yield Family(CONDITION_BEGAN, [Row(CONDITION_BEGAN.text(name), count) for name, count in conditions.began.items()])


def condition_rows(conditions: Conditions) -> list[dict[str, str]]:
    """Return the active conditions, the longest first."""
    return [
        {
            "condition": name,
            "subject": subject,
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since_s)),
        }
        for name, subject, since_s in _shown(conditions)
    ]


def _shown(conditions: Conditions) -> Iterator[tuple[str, str, float]]:
    for condition, subject, since_s in conditions:
        yield condition.name, subject if condition.shows_subject else "", since_s
