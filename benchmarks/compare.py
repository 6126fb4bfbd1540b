"""`make compare`: Orbitlog's broker beside Apache RocketMQ's, under the same official client, in one run.

python -m benchmarks.compare [--quick] [--scale X] [--full] [--rounds N] [--row WORD]... [--only-stores] [--only NAME]
    [--pinned] [--out FILE]

Rounds alternate between the brokers; each row is the median of its rounds. Every new client first runs the jobs of
`compare_rows.warm_up`, so that Java's compiler has settled in the client and in Apache's broker; the first round of
each row is not counted either. While one side is measured the other is stopped (SIGSTOP): Apache's broker works for
minutes after a row with a thousand topics or transactions, and would take a core from Orbitlog. A row whose client
fails is reported and left out, new clients run the next one, and the command ends with 1. The record is written after
each group of rows; a run of some rows (`--row`, `--only-stores`) keeps the other rows of the file.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.broker_pairs import Broker, JobFailed, Load, client_of, start_apache, start_orbitlog
from benchmarks.compare_record import Record
from benchmarks.compare_rows import APART, BACKLOG_TOPIC, MEMORY, START, TOPIC, Job, Row, jobs, warm_up
from benchmarks.compare_stores import compare_commands, compare_stores
from benchmarks.measure import circumstances

STARTERS: dict[str, Callable[[Path, Sequence[str]], Broker]] = {"apache": start_apache, "orbitlog": start_orbitlog}
RESULTS = Path("benchmarks/results")
QUICK = 0.02
_SETTLE_SECONDS = 0.3


@dataclass
class Side:
    """One broker with its client."""

    broker: Broker
    load: Load
    home: Path

    def send_signal(self, signal_number: int) -> None:
        """Stop or continue all of its processes."""
        for process in (*self.broker.processes, self.load.process):
            process.send_signal(signal_number)


@contextmanager
def alone(side: Side, sides: Sequence[Side]) -> Iterator[None]:
    """Stop the other side while this one is measured."""
    others = [each for each in sides if each is not side]
    for other in others:
        other.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for other in others:
            other.send_signal(signal.SIGCONT)
        if others:
            time.sleep(_SETTLE_SECONDS)  # for work that they had to defer


def measure(side: Side, job: Job, record: Record, *, is_counted: bool) -> None:
    before, client_before = side.broker.cpu_seconds(), side.load.cpu_seconds()
    answer = side.load.run(job.words)
    spent, client_spent = side.broker.cpu_seconds() - before, side.load.cpu_seconds() - client_before
    # A side that was stopped for two minutes finds its connections closed; its first, uncounted round reopens them.
    if not is_counted:
        return
    if answer["failed"]:
        raise JobFailed(f"{side.broker.name}: {answer['failed']:.0f} failed in {job.words}")
    cpu = spent / answer["messages"] * 1e6 if answer["messages"] else 0.0
    found = answer | {"cpu": cpu, "load": spent / answer["seconds"] * 100}
    if answer["messages"]:
        found["rate"] = answer["messages"] / answer["seconds"]
    for row in job.rows:
        record.add(row, side.broker.name, found[row.value], cpu)
        if cpu and row.value == "rate":
            record.add_client(row, side.broker.name, client_spent / answer["messages"] * 1e6)


def compare(
    wanted: list[Job], names: Sequence[str], rounds: int, directory: Path, record: Record, *, is_pinned: bool = False
) -> None:
    """Measure jobs of one setting; both brokers stay up for all of them, one running at a time.

    With `is_pinned` each broker has one core, and its client another.
    """
    with ExitStack() as stack:
        sides = []
        for name in names:
            home = directory / name
            broker = STARTERS[name](home, wanted[0].settings)
            stack.callback(broker.stop)
            for row, value in zip(APART, (broker.start_seconds, broker.resident_mb()), strict=True):
                record.add(row, name, value)
            load = stack.enter_context(client_of(broker, home))
            for topic in (TOPIC, BACKLOG_TOPIC, "Latency", "Held"):
                load.run(f"topics {topic} 1 8")
            if is_pinned:
                broker.pin(0)
                load.pin(1)
            sides.append(Side(broker, load, home))
        _warm_up(sides, record)
        for job in wanted:
            try:
                _take_turns(sides, job, rounds, record)
            except JobFailed as error:
                record.leave_out(job.rows, str(error))
                print(f"  {job.rows[0].name}: left out, {error}", flush=True)
                for side in sides:
                    side.load = stack.enter_context(client_of(side.broker, side.home))
                _warm_up(sides, record)


def _warm_up(sides: Sequence[Side], record: Record) -> None:
    """Run the warm-up jobs in the clients of all sides, one side at a time; nothing of it is recorded."""
    for side in sides:
        with alone(side, sides):
            for line in record.warm_up:
                side.load.run(line)


def _take_turns(sides: Sequence[Side], job: Job, rounds: int, record: Record) -> None:
    _prepare(sides, job.before)
    for round_number in range(rounds + 1):
        for side in sides if round_number % 2 else sides[::-1]:
            with alone(side, sides):
                measure(side, job, record, is_counted=round_number > 0)
    _prepare(sides, job.after)
    for row in job.rows:
        print(record.line(row.name), flush=True)


def _prepare(sides: Sequence[Side], lines: Sequence[str]) -> None:
    for side in sides:
        for line in lines:
            side.load.run(line)


def more_starts(names: Sequence[str], count: int, record: Record) -> None:
    """Start and stop both brokers a few more times: a single start varies too much."""
    for _ in range(count):
        for name in names:
            with tempfile.TemporaryDirectory(prefix="orbitlog-compare-") as directory:
                broker = STARTERS[name](Path(directory), ())
                record.add(APART[0], name, broker.start_seconds)
                broker.stop()


def main() -> None:
    arguments = parsed()
    scale = QUICK if arguments.quick else arguments.scale
    chosen = [] if arguments.only_stores else [job for job in jobs(scale) if _is_wanted(job.rows, arguments.row)]
    names = [arguments.only] if arguments.only else list(STARTERS)
    given = shlex.join(sys.argv[1:])
    command = f"make compare ARGS={shlex.quote(given)}" if given else "make compare"
    record = Record(arguments.rounds, warm_up(is_quick=arguments.quick), command)
    print(", ".join(f"{name} {value}" for name, value in circumstances().items()))
    earlier = _earlier(arguments.out) if arguments.row or arguments.only_stores else {}
    for settings in dict.fromkeys(job.settings for job in chosen):
        group = [job for job in chosen if job.settings == settings]
        with tempfile.TemporaryDirectory(prefix="orbitlog-compare-") as directory:
            compare(group, names, arguments.rounds, Path(directory), record, is_pinned=arguments.pinned)
        record.save(arguments.out, earlier=earlier)  # a later part may fail
    if (not arguments.row and not arguments.only) or arguments.only_stores:
        more_starts(names, 0 if arguments.quick else 2, record)
        compare_commands(record, rounds=1 if arguments.quick else 5)
        record.save(arguments.out, earlier=earlier)
        compare_stores(record, gigabytes=10.0 if arguments.full else 0.02 if arguments.quick else 1.0)
    for name in (START, MEMORY):
        if name in record.rows:
            print(record.line(name))
    record.save(arguments.out, earlier=earlier)
    is_partial = arguments.only or arguments.quick or arguments.pinned
    if arguments.out == RESULTS / "compare.json" and not is_partial:
        record.remember(RESULTS / "compare-history.jsonl")
        print("`make docs` writes these figures to docs/benchmarks.md and docs/benchmarks/comparison.md")
    if record.left_out:
        raise SystemExit(f"rows left out: {len(record.left_out)}")


def _earlier(path: Path) -> dict[str, Any]:
    """Return the record whose other rows stay: a run of some rows replaces only those."""
    return json.loads(path.read_text()) if path.exists() else {}


def _is_wanted(rows: Sequence[Row], words: Sequence[str]) -> bool:
    return not words or any(word in row.name for word in words for row in rows)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make compare ARGS=…", description="Both brokers, side by side.")
    parser.add_argument("--quick", action="store_true", help="few messages: a test of the benchmark, not a measurement")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the numbers of messages by this (default 1)")
    parser.add_argument("--full", action="store_true", help="stores of 10 GB instead of 1 GB")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each row (default 3)")
    parser.add_argument("--row", action="append", default=[], help="only rows whose name contains this")
    parser.add_argument("--only-stores", action="store_true", help="only starts, command line and stores")
    parser.add_argument("--only", choices=sorted(STARTERS), help="only this broker")
    parser.add_argument("--pinned", action="store_true", help="each broker on one core, its client on another")
    parser.add_argument("--out", type=Path, help="JSON to write (default benchmarks/results/compare.json)")
    arguments = parser.parse_args()
    if arguments.out is None:
        is_test = arguments.quick or arguments.pinned
        arguments.out = Path(tempfile.gettempdir(), "compare.json") if is_test else RESULTS / "compare.json"
    return arguments


if __name__ == "__main__":
    main()
