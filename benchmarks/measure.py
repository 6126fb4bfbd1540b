"""Timing and recording, shared by all benchmarks."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROUNDS = 5


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


def best_of(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the seconds of the fastest round: the least disturbed one."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


@dataclass
class Report:
    """Figures of one run, printed as they come and written as JSON at the end."""

    figures: list[Figure] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        if not self.figures or self.figures[-1].group != figure.group:
            print(f"\n{figure.group}")
            print(f"  {'':44} {'GB/s':>8} {'M msg/s':>9}   x baseline")
        self.figures.append(figure)
        ratios = "  ".join(f"{ratio:.2f} ({name})" for name, ratio in self.ratios(figure).items())
        speed = f"{figure.gigabytes_per_second:8.2f} {figure.messages_per_second / 1e6:9.3f}"
        print(f"  {figure.name:44} {speed}   {ratios}")

    def ratios(self, figure: Figure) -> dict[str, float]:
        """Compare with the baselines of the same group: how many times as fast."""
        return {
            base.name.removeprefix("baseline: "): base.seconds / figure.seconds
            for base in self.figures
            if base.group == figure.group and base.name.startswith("baseline: ")
        }

    def save(self, path: Path) -> None:
        rows = [
            asdict(figure)
            | {
                "gigabytesPerSecond": round(figure.gigabytes_per_second, 3),
                "messagesPerSecond": round(figure.messages_per_second),
                "ratios": {name: round(ratio, 3) for name, ratio in self.ratios(figure).items()},
            }
            for figure in self.figures
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**circumstances(), "figures": rows}, indent=1) + "\n")


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
