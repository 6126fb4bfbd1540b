"""History of a cluster: rates and lag of the last hour, from memory."""

from __future__ import annotations

from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.views.answers import Answer


class HistorySample(Answer, kw_only=True):
    """Figures of one moment; None stands for an unknown one."""

    at: int
    in_per_second: float | None
    out_per_second: float | None
    lag: int | None


class LagRow(Answer, kw_only=True):
    """The lag of one group at each point; None before the group existed, or if it was unknown."""

    group: str
    lags: list[int | None]


class HistoryAnswer(Answer, kw_only=True):
    """The last hour, oldest point first; it begins when the console started."""

    points: list[HistorySample]
    groups: list[LagRow]
    since: int | None


_GROUPS_MAX = 40


async def show_history(source: ClusterSource) -> HistoryAnswer:
    await source.sample()
    points = source.history.points
    largest: dict[str, int] = {}
    for point in points:
        for group, lag in point.lags.items():
            largest[group] = max(lag, largest.get(group, 0))
    groups = sorted(largest, key=lambda group: (-largest[group], group))[:_GROUPS_MAX]
    return HistoryAnswer(
        points=[
            HistorySample(
                at=point.at_ms, in_per_second=point.in_per_second, out_per_second=point.out_per_second, lag=point.lag
            )
            for point in points
        ],
        groups=[LagRow(group=group, lags=[point.lags.get(group) for point in points]) for group in groups],
        since=points[0].at_ms if points else None,
    )
