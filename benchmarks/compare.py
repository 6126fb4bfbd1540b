"""`make compare`: Orbitlog's broker beside Apache RocketMQ's, under the same official client, in one run.

python -m benchmarks.compare [--quick] [--rounds N] [--row WORD]... [--only NAME] [--out FILE]

Rounds alternate between the brokers; each row is the median of its rounds. Warm-up is a round that is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.broker_pairs import VERSION, Broker, Load, client_of, start_apache, start_orbitlog
from benchmarks.measure import circumstances

STARTERS: dict[str, Callable[[Path, Sequence[str]], Broker]] = {"apache": start_apache, "orbitlog": start_orbitlog}
TOPIC = "Compare"


@dataclass(frozen=True)
class Row:
    """One line of the comparison: a job for the client, and what to take from its answer."""

    name: str
    job: str
    value: str = "rate"  # or p50, p99, p999 in milliseconds
    settings: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return "msg/s" if self.value == "rate" else "ms"

    @property
    def more_is_better(self) -> bool:
        return self.value == "rate"


def rows(scale: float) -> list[Row]:
    def count(messages: int) -> int:
        return max(640, int(messages * scale) // 32 * 32)

    found = [
        Row("sync send, 1 thread, 128 B: p50", f"sync {TOPIC} 1 128 {count(20_000)}", "p50"),
        Row("sync send, 1 thread, 128 B: p99", f"sync {TOPIC} 1 128 {count(20_000)}", "p99"),
    ]
    for size, told in ((128, "128 B"), (1024, "1 KB")):
        found += [
            Row(
                f"sync send, {threads} thread{'s' * (threads > 1)}, {told}",
                f"sync {TOPIC} {threads} {size} {count(messages)}",
            )
            for threads, messages in ((1, 20_000), (16, 120_000), (64, 160_000))
        ]
        found += [
            Row(f"async send, 1,000 in flight, {told}", f"async {TOPIC} 1000 {size} {count(300_000)}"),
            Row(f"batches of 32, 8 threads, {told}", f"batch {TOPIC} 8 {size} {count(640_000)} 32"),
            Row(f"one-way, 4 threads, {told}", f"oneway {TOPIC} 4 {size} {count(200_000)}"),
        ]
    found += [
        Row("sync send to 1,000 topics x 4 queues, 16 threads", f"sync Many* 16 128 {count(100_000)}"),
        Row("backlog consumed", f"consume {TOPIC} {count(600_000)}"),
        Row("end to end at 1,000 msg/s: p50", f"latency Latency 1000 128 {max(2, int(10 * scale))}", "p50"),
        Row("end to end at 1,000 msg/s: p99", f"latency Latency 1000 128 {max(2, int(10 * scale))}", "p99"),
        Row("end to end at 10,000 msg/s: p99", f"latency Latency 10000 128 {max(2, int(8 * scale))}", "p99"),
        Row("query by key: p50", f"query {TOPIC} key {count(1_000)}", "p50"),
    ]
    found += [
        Row(
            f"sync send with sync flush, {threads} thread{'s' * (threads > 1)}, 128 B",
            f"sync {TOPIC} {threads} 128 {count(messages)}",
            settings=("flushDiskType=SYNC_FLUSH",),
        )
        for threads, messages in ((1, 3_000), (16, 20_000), (64, 40_000))
    ]
    return found


@dataclass
class Side:
    """One broker with its client and what was measured of it."""

    broker: Broker
    load: Load
    values: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)


def measure(side: Side, row: Row, *, is_counted: bool) -> None:
    before = side.broker.cpu_seconds()
    answer = side.load.run(row.job)
    spent = side.broker.cpu_seconds() - before
    if answer["failed"]:
        raise RuntimeError(f"{side.broker.name}: {answer['failed']:.0f} failed in {row.name}")
    if is_counted:
        value = answer["messages"] / answer["seconds"] if row.value == "rate" else answer[row.value]
        side.values.setdefault(row.name, []).append(value)
        side.cpu.setdefault(row.name, []).append(spent / answer["messages"] * 1e6)


def compare(wanted: list[Row], names: Sequence[str], rounds: int, topics: int, directory: Path) -> dict[str, Any]:
    """Measure rows of one setting; brokers live through all of them, side by side, one working at a time."""
    with ExitStack() as stack:
        sides = []
        for name in names:
            home = directory / name
            broker = STARTERS[name](home, wanted[0].settings)
            stack.callback(broker.stop)
            idle_mb = broker.resident_mb()
            load = stack.enter_context(client_of(broker, home))
            load.run(f"topics {TOPIC} 1 8")
            load.run("topics Latency 1 8")
            if any("Many*" in row.job for row in wanted):
                load.run(f"topics Many {topics} 4")
            side = Side(broker, load)
            side.values["start to first acknowledged send"] = [broker.start_seconds]
            side.values["idle memory, name server and broker"] = [idle_mb]
            sides.append(side)
        for row in wanted:
            for round_number in range(rounds + 1):
                for side in sides if round_number % 2 else sides[::-1]:
                    measure(side, row, is_counted=round_number > 0)
            print(told(row.name, row.unit, row.more_is_better, sides), flush=True)
        return {side.broker.name: {"values": side.values, "cpu": side.cpu} for side in sides}


def told(name: str, unit: str, more_is_better: bool, sides: Sequence[Side]) -> str:
    parts = [f"  {name:52}"]
    medians = {side.broker.name: statistics.median(side.values[name]) for side in sides}
    for side in sides:
        cpu = statistics.median(side.cpu[name]) if name in side.cpu else 0
        parts.append(f"{side.broker.name} {medians[side.broker.name]:>10,.2f} {unit} ({cpu:5.1f} CPU s/M)")
    if len(medians) == 2:
        ratio = medians["orbitlog"] / medians["apache"]
        parts.append(f"{ratio if more_is_better else 1 / ratio:6.2f}x")
    return "  ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make compare ARGS=…", description="Both brokers, side by side.")
    parser.add_argument("--quick", action="store_true", help="few messages: shows that it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each row (default 3)")
    parser.add_argument("--row", action="append", default=[], help="only rows whose name has this in it")
    parser.add_argument("--only", choices=sorted(STARTERS), help="only this broker")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/compare.json"), help="JSON to write")
    arguments = parser.parse_args()
    wanted = [
        row
        for row in rows(0.02 if arguments.quick else 1.0)
        if not arguments.row or any(word in row.name for word in arguments.row)
    ]
    names = [arguments.only] if arguments.only else ["apache", "orbitlog"]
    topics = 1000
    results: dict[str, dict[str, Any]] = {name: {"values": {}, "cpu": {}} for name in names}
    print(", ".join(f"{name} {value}" for name, value in circumstances().items()))
    for settings in dict.fromkeys(row.settings for row in wanted):
        group = [row for row in wanted if row.settings == settings]
        with tempfile.TemporaryDirectory(prefix="orbitlog-compare-") as directory:
            found = compare(group, names, arguments.rounds, topics, Path(directory))
        for name, measured in found.items():
            for kind, values in measured.items():
                for row_name, numbers in values.items():
                    results[name][kind].setdefault(row_name, []).extend(numbers)
    record = {"apacheVersion": VERSION, "rounds": arguments.rounds, **circumstances(), "brokers": results}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    for name in names:
        for row_name, unit in (
            ("start to first acknowledged send", "s"),
            ("idle memory, name server and broker", "MB"),
        ):
            print(f"  {row_name:52}  {name} {statistics.median(results[name]['values'][row_name]):,.2f} {unit}")


if __name__ == "__main__":
    main()
