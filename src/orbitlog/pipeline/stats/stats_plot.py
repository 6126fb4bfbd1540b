"""Statistics plot: messages by hour, largest topics, body sizes and largest consumer lags in one image."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.stats.log_stats import busiest
from orbitlog.pipeline.stats.stats_job import StoreStatistics

_TOPICS_SHOWN = 8
_BARS_MAX = 12
_NAME_CHARACTERS_MAX = 28


class PlotUnavailable(OrbitlogError):
    """matplotlib is not installed."""


def plot_statistics(statistics: StoreStatistics, path: Path) -> None:
    """Write the plot; the suffix of `path` selects the format (png, svg, pdf)."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotUnavailable("plots need the package matplotlib: pip install 'orbitlog[plot]'") from error
    # A Figure without pyplot: no window, and no global state.
    figure = Figure(figsize=(14, 9), layout="constrained")
    FigureCanvasAgg(figure)
    (hours, topics), (sizes, lag) = figure.subplots(2, 2)
    _draw_hours(hours, statistics)
    _draw_bars(topics, "stored bytes by topic", _sums(statistics.tables["topics"], "topic", "storedBytes"))
    _draw_sizes(sizes, statistics)
    _draw_bars(lag, "lag by group and topic", _lag(statistics))
    figure.suptitle(f"{statistics.log.messages:,} messages, {statistics.log.log_bytes:,} bytes of log")
    figure.savefig(path, dpi=110)


def _draw_hours(axes: Any, statistics: StoreStatistics) -> None:
    rows = statistics.tables["hours"]
    shown = [row["topic"] for row in busiest(statistics.tables["topics"], _TOPICS_SHOWN)]
    instants = sorted({row["hour"] for row in rows})
    bottom = dict.fromkeys(instants, 0)
    width = 1 / 24 * 0.9
    for topic in [*dict.fromkeys(shown), None]:
        counts = dict.fromkeys(instants, 0)
        for row in rows:
            if row["topic"] == topic or (topic is None and row["topic"] not in shown):
                counts[row["hour"]] += row["messages"]
        if any(counts.values()):
            times = [datetime.fromtimestamp(instant / 1000, UTC) for instant in instants]
            label = "all others" if topic is None else _short(topic)
            axes.bar(times, counts.values(), width=width, bottom=list(bottom.values()), label=label, align="edge")
            bottom = {instant: bottom[instant] + counts[instant] for instant in instants}
    axes.set_title("messages stored in each hour (UTC)")
    axes.tick_params(axis="x", rotation=30)
    if rows:
        axes.legend(fontsize="small")


def _draw_sizes(axes: Any, statistics: StoreStatistics) -> None:
    rows = busiest(statistics.tables["topics"], _BARS_MAX)[::-1]
    positions = range(len(rows))
    axes.barh(positions, [row["bodyP99"] for row in rows], color="0.8", label="99th percentile")
    axes.barh(positions, [row["bodyP50"] for row in rows], height=0.5, label="median")
    axes.set_yticks(positions, [_short(row["topic"]) for row in rows])
    axes.set_xscale("symlog", linthresh=1)
    axes.set_title("body size (bytes)")
    if rows:
        axes.legend(fontsize="small")


def _draw_bars(axes: Any, title: str, values: dict[str, int]) -> None:
    largest = sorted(values.items(), key=lambda item: item[1])[-_BARS_MAX:]
    axes.barh(range(len(largest)), [value for _, value in largest])
    axes.set_yticks(range(len(largest)), [_short(name) for name, _ in largest])
    axes.set_title(title if largest else f"{title}: none")


def _sums(rows: list[dict[str, Any]], name: str, value: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows:
        sums[row[name]] = sums.get(row[name], 0) + row[value]
    return sums


def _lag(statistics: StoreStatistics) -> dict[str, int]:
    rows = [{**row, "name": f"{row['group']} {row['topic']}"} for row in statistics.tables["lag"]]
    return {name: lag for name, lag in _sums(rows, "name", "lag").items() if lag}


def _short(name: str) -> str:
    # matplotlib reads a dollar sign as the start of a formula.
    text = name if len(name) <= _NAME_CHARACTERS_MAX else name[: _NAME_CHARACTERS_MAX - 1] + "…"
    return text.replace("$", r"\$")
