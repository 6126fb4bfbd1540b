"""Timing and recording, shared by all benchmarks."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROUNDS = 5
_NAME_WIDTH = 52


@dataclass(frozen=True)
class Figure:
    """One measured row: work done in the best of several rounds, with what it was work on."""

    group: str
    name: str
    seconds: float
    messages: int
    size_bytes: int

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def gigabytes_per_second(self) -> float:
        return self.size_bytes / self.seconds / 1e9


@dataclass(frozen=True)
class Reading:
    """One measured value other than a speed, with its upper limit if there is one."""

    group: str
    name: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def is_met(self) -> bool:
        return self.limit is None or self.value < self.limit

    def __str__(self) -> str:
        told = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"
        if self.limit is None:
            return f"{told} {self.unit}"
        return f"{told} {self.unit} (wanted: under {self.limit:g}{'' if self.is_met else '; MISSED'})"


def best_of(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the seconds of the fastest round: the least disturbed one."""
    return min(seconds_of(work) for _ in range(rounds))


def median_of(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the seconds of the median round: for work of the disk, whose fastest round is not typical."""
    return statistics.median(seconds_of(work) for _ in range(rounds))


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the middle one and the one that 99 of 100 stay under."""
    cut = statistics.quantiles(values, n=100)
    return cut[49], cut[98]


@dataclass
class Report:
    """Figures and readings of one run, printed as they come and written as JSON at the end."""

    figures: list[Figure] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    _groups: list[str] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        if self._begin(figure.group):
            print(f"  {'':{_NAME_WIDTH}} {'GB/s':>8} {'M msg/s':>9}   x baseline")
        self.figures.append(figure)
        ratios = "  ".join(f"{ratio:.2f} ({name})" for name, ratio in self.ratios(figure).items())
        speed = f"{figure.gigabytes_per_second:8.2f} {figure.messages_per_second / 1e6:9.3f}"
        print(f"  {figure.name:{_NAME_WIDTH}} {speed}   {ratios}", flush=True)

    def read(self, reading: Reading) -> None:
        self._begin(reading.group)
        self.readings.append(reading)
        print(f"  {reading.name:{_NAME_WIDTH}} {reading}", flush=True)

    def _begin(self, group: str) -> bool:
        """Print the head of a group that was not there before; True if it is the first time."""
        if group in self._groups:
            return False
        self._groups.append(group)
        print(f"\n{group}")
        return True

    def ratios(self, figure: Figure) -> dict[str, float]:
        """Compare with the baselines of the same group: how many times as fast."""
        return {
            base.name.removeprefix("baseline: "): figure.messages_per_second / base.messages_per_second
            for base in self.figures
            if base.group == figure.group and base.name.startswith("baseline: ")
        }

    def save(self, path: Path) -> None:
        """Write what was measured; groups that the file has and this run did not measure stay as they are."""
        kept = json.loads(path.read_text()).get("groups", []) if path.exists() else []
        measured = {group: self._recorded(group) for group in self._groups}
        names = [group["group"] for group in kept]
        groups = [measured.get(group["group"], group) for group in kept]
        groups += [recorded for group, recorded in measured.items() if group not in names]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"groups": groups}, indent=1) + "\n")

    def _recorded(self, group: str) -> dict[str, Any]:
        figures = [
            {
                "name": figure.name,
                "seconds": round(figure.seconds, 6),
                "messages": figure.messages,
                "size_bytes": figure.size_bytes,
                "gigabytesPerSecond": round(figure.gigabytes_per_second, 3),
                "messagesPerSecond": round(figure.messages_per_second),
                "ratios": {name: round(ratio, 3) for name, ratio in self.ratios(figure).items()},
            }
            for figure in self.figures
            if figure.group == group
        ]
        readings = [
            {key: value for key, value in asdict(reading).items() if key != "group"} | {"text": str(reading)}
            for reading in self.readings
            if reading.group == group
        ]
        return {"group": group, **circumstances(), "figures": figures, "readings": readings}


def cpu_seconds(pid: int | str) -> float:
    """Return the CPU time of a process, in user and system mode."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def circumstances() -> dict[str, object]:
    """Say on what, with what and when."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "system": platform.system(),
        "processor": processor,
        "cores": os.cpu_count(),
    }
