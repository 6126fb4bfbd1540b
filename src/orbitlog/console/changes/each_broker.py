"""Masters that a change applies to, and the same change at each, with a result for every one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from orbitlog.console.changes.planned_change import ResultLine
from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import ConsoleError
from orbitlog.errors import OrbitlogError

T = TypeVar("T")


def chosen_masters(sample: ClusterSample, name: str) -> list[BrokerSample]:
    """Return all masters, or the one with this name; raise `ConsoleError` if one of them does not answer.

    A change that reaches only a part of the masters would leave them different.
    """
    chosen = [broker for broker in sample.masters if name in ("", broker.name)]
    if not chosen:
        raise ConsoleError(404, f"no master is named {name[:80]!r}" if name else "no master is registered")
    for broker in chosen:
        problem = next((reason for _, reason in broker.problems), None)
        if problem is not None:
            raise ConsoleError(502, f"broker {broker.name} ({broker.address}) does not answer: {problem}")
    return chosen


def masters_of(sample: ClusterSample, topic: str) -> list[BrokerSample]:
    """Return the masters that have a topic."""
    return [broker for broker in sample.masters if topic in (broker.topics.value or {})]


async def on_each(targets: Iterable[tuple[str, T]], change: Callable[[T], Awaitable[str]]) -> list[ResultLine]:
    """Apply a change to one target after the other; a failure is a line of the result, and the others are tried."""
    lines: list[ResultLine] = []
    for what, target in targets:
        try:
            lines.append(ResultLine(what=what, done=True, result=await change(target)))
        except OrbitlogError as error:
            lines.append(ResultLine(what=what, done=False, result=problem_sentence(error)))
    return lines
