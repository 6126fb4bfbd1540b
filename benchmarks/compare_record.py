"""Results of `make compare`: values by row and broker, as printed lines, as JSON, and as a line of history."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.broker_pairs import VERSION
from benchmarks.compare_rows import Row
from benchmarks.measure import circumstances

OURS, THEIRS = "orbitlog", "apache"


@dataclass
class Record:
    """Values of both brokers, in the order of rows."""

    rounds: int
    warm_up: tuple[str, ...] = ()
    command: str = "make compare"
    rows: dict[str, Row] = field(default_factory=dict)
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    cpu: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    client_cpu: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, row: Row, broker: str, value: float, cpu_seconds_per_million: float = 0.0) -> None:
        self.rows[row.name] = row
        self.values.setdefault((row.name, broker), []).append(value)
        if cpu_seconds_per_million and row.value == "rate":
            self.cpu.setdefault((row.name, broker), []).append(cpu_seconds_per_million)

    def add_client(self, row: Row, broker: str, cpu_seconds_per_million: float) -> None:
        """Note the CPU time of the client in one round of a row."""
        self.client_cpu.setdefault((row.name, broker), []).append(cpu_seconds_per_million)

    def leave_out(self, rows: Sequence[Row], reason: str) -> None:
        """Drop the values of these rows, because their job failed."""
        for row in rows:
            self.left_out[row.name] = reason
            self.rows.pop(row.name, None)

    def ratio(self, name: str) -> float | None:
        """Return the ratio of Orbitlog to Apache's broker, more is better; None if one of them was not measured."""
        ours, theirs = self.values.get((name, OURS)), self.values.get((name, THEIRS))
        if not ours or not theirs or not statistics.median(ours):
            return None
        return self.rows[name].ratio(statistics.median(theirs), statistics.median(ours))

    def line(self, name: str) -> str:
        """Return the line that is printed for a row."""
        row, parts = self.rows[name], [f"  {name:58}"]
        for broker in (THEIRS, OURS):
            if values := self.values.get((name, broker)):
                parts.append(f"{broker} {statistics.median(values):>10,.2f} {row.unit}")
            if spent := self.cpu.get((name, broker)):
                clients = statistics.median(self.client_cpu.get((name, broker), [0.0]))
                parts.append(f"(CPU s/M: broker {statistics.median(spent):.1f}, client {clients:.1f})")
        ratio = self.ratio(name)
        if ratio is not None:
            wanted = (
                "" if row.target is None else f" (target {row.target:g}{'' if ratio >= row.target else ', MISSED'})"
            )
            parts.append(f"{ratio:6.2f}x{wanted}")
        return "  ".join(parts)

    def save(self, path: Path, *, earlier: Mapping[str, Any] | None = None) -> None:
        """Write the rows, and those of an `earlier` record that this run has not measured, with their origin."""
        rows = [self._row(row) for row in self.rows.values()]
        rows += _kept(earlier or {}, self.rows)
        path.parent.mkdir(parents=True, exist_ok=True)
        record: dict[str, Any] = {"apacheVersion": VERSION, "command": self.command, "rounds": self.rounds}
        record["warmUp"] = self.warm_up
        record |= {**circumstances(), "rows": rows}
        if self.left_out:
            record["leftOut"] = self.left_out
        path.write_text(json.dumps(record, indent=1) + "\n")

    def _row(self, row: Row) -> dict[str, Any]:
        values = {broker: self.values.get((row.name, broker), []) for broker in (THEIRS, OURS)}
        cpu, client_cpu = (
            {broker: spent[row.name, broker] for broker in (THEIRS, OURS) if (row.name, broker) in spent}
            for spent in (self.cpu, self.client_cpu)
        )
        found: dict[str, Any] = {"name": row.name, "unit": row.unit, "target": row.target, "values": values}
        found |= {"cpuSecondsPerMillion": cpu} if cpu else {}
        found |= {"clientCpuSecondsPerMillion": client_cpu} if client_cpu else {}
        return found | {"ratio": self.ratio(row.name)}

    def remember(self, path: Path) -> None:
        """Append the ratios of this run to the history."""
        ratios = {name: round(ratio, 3) for name in self.rows if (ratio := self.ratio(name)) is not None}
        now = circumstances()
        line = {"when": now["when"], "commit": now["commit"], "cores": now["cores"], "ratios": ratios}
        line["warmUp"] = bool(self.warm_up)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _kept(earlier: Mapping[str, Any], measured: Mapping[str, Row]) -> list[dict[str, Any]]:
    """Return the rows of an earlier record that were not measured now, each with time and commit of its run."""
    origin = {name: earlier[name] for name in ("when", "commit") if name in earlier}
    return [{**origin, **row} for row in earlier.get("rows", ()) if row["name"] not in measured]
