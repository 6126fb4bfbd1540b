"""`make bench`: run the benchmarks, print them, and record them as JSON.

python -m benchmarks [NAME ...] [--quick | --full] [--data DIR] [--out FILE]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import (
    bench_access,
    bench_cli,
    bench_client_soak,
    bench_console,
    bench_dispatch,
    bench_dledger,
    bench_doctor,
    bench_failover,
    bench_hot_path,
    bench_kernels,
    bench_lag,
    bench_many,
    bench_memory,
    bench_metrics,
    bench_pipeline,
    bench_query,
    bench_reads,
    bench_records,
    bench_replication,
    bench_sources,
    bench_startup,
    bench_store,
    bench_sync,
    bench_waiting,
    bench_wire,
)
from benchmarks.measure import Report, circumstances


@dataclass(frozen=True)
class Sizes:
    """How much each benchmark works on."""

    records: int = 200_000
    segment_bytes: int = 1 << 30
    appends: int = 200_000
    synced: int = 1_000
    lag_seconds: float = 10
    reads: int = 500_000
    queried: int = 2_000_000
    queue_topics: int = 1_250
    log_gigabytes: float = 1
    memory_millions: int = 1
    frames: int = 200_000
    sends: int = 20_000
    waiting: int = 100_000
    soak: int = 1_000_000
    many_topics: int = 100_000


QUICK = Sizes(2_000, 1 << 23, 2_000, 50, 0.5, 20_000, 20_000, 10, 0.05, 1, 2_000, 400, 500, 200_000, 2_000)
FULL = Sizes(lag_seconds=30, reads=1_000_000, queried=10_000_000, log_gigabytes=10, memory_millions=10, soak=10_000_000)


def _records(report: Report, sizes: Sizes, _: Path) -> None:
    for body_bytes in (200, 1024):
        bench_records.run(report, body_bytes=body_bytes, count=sizes.records)
    bench_records.run_bodies(report, count=sizes.records // 50)


def _kernels(report: Report, sizes: Sizes, directory: Path) -> None:
    for body_bytes in (200, 1024):
        bench_kernels.run(report, directory, body_bytes=body_bytes, segment_bytes=sizes.segment_bytes)


def _pipeline(report: Report, sizes: Sizes, directory: Path) -> None:
    for body_bytes in (200, 1024):
        bench_pipeline.run(report, directory, body_bytes=body_bytes, segment_bytes=sizes.segment_bytes)


def _doctor(report: Report, sizes: Sizes, directory: Path) -> None:
    for body_bytes in (200, 1024):
        bench_doctor.run(report, directory, body_bytes=body_bytes, segment_bytes=sizes.segment_bytes)


def _dledger(report: Report, sizes: Sizes, directory: Path) -> None:
    for body_bytes in (200, 1024):
        bench_dledger.run(report, directory, body_bytes=body_bytes, segment_bytes=sizes.segment_bytes)


def _sources(report: Report, sizes: Sizes, directory: Path) -> None:
    for body_bytes in (200, 1024):
        bench_sources.run(report, directory, body_bytes=body_bytes, segment_bytes=sizes.segment_bytes)


def _memory(report: Report, sizes: Sizes, _: Path) -> None:
    millions = sizes.memory_millions
    # A run that shows only that it runs takes steps of a few thousand; one million is ten steps.
    per_step = 2_000 if sizes is QUICK else 100_000 if millions == 1 else 1_000_000
    bench_memory.run(report, steps=10, per_step=per_step)


def _metrics(report: Report, sizes: Sizes, _: Path) -> None:
    is_quick = sizes is QUICK
    bench_metrics.run(report, seconds=0.2 if is_quick else 8.0)
    bench_metrics.run_many(report, topics=50 if is_quick else 10_000, groups=10 if is_quick else 100)


def _replication(report: Report, sizes: Sizes, _: Path) -> None:
    sends = sizes.sends * 6 // 5 // 64 * 64
    catch_up_bytes = (8 if sizes is QUICK else 512) << 20
    is_quick = sizes is QUICK
    bench_replication.run(
        report,
        sends=sends,
        probes=20 if is_quick else 150,
        catch_up_bytes=catch_up_bytes,
    )


BENCHMARKS: dict[str, Callable[[Report, Sizes, Path], None]] = {
    "commands": lambda report, sizes, _: bench_cli.run(report, rounds=2 if sizes is QUICK else 10),
    "records": _records,
    "kernels": _kernels,
    "store": lambda report, sizes, _: bench_store.run(report, count=sizes.appends),
    "sync": lambda report, sizes, _: bench_sync.run(report, count=sizes.synced),
    "lag": lambda report, sizes, _: bench_lag.run(report, seconds=sizes.lag_seconds),
    "reads": lambda report, sizes, _: bench_reads.run(report, count=sizes.reads),
    "query": lambda report, sizes, _: bench_query.run(report, count=sizes.queried),
    "queues": lambda report, sizes, _: bench_startup.run_queues(report, topics=sizes.queue_topics),
    "log": lambda report, sizes, _: bench_startup.run_log(report, gigabytes=sizes.log_gigabytes),
    "memory": _memory,
    "metrics": _metrics,
    "dispatch": lambda report, sizes, _: bench_dispatch.run(
        report, seconds=sizes.lag_seconds, warm_seconds=min(20.0, 2 * sizes.lag_seconds)
    ),
    "dledger": _dledger,
    "doctor": _doctor,
    "failover": lambda report, sizes, _: bench_failover.run(report, rounds=1 if sizes is QUICK else 5),
    "hot": lambda report, sizes, _: bench_hot_path.run(report, count=sizes.sends // 64 * 64),
    "pipeline": _pipeline,
    "large": lambda report, sizes, _: bench_pipeline.run_large(report, gigabytes=sizes.log_gigabytes),
    "replication": _replication,
    "sources": _sources,
    "many": lambda report, sizes, _: bench_many.run(
        report, topics=sizes.many_topics, groups=sizes.many_topics // 5, queues=min(sizes.many_topics, 65_535)
    ),
    "waiting": lambda report, sizes, _: bench_waiting.run(report, count=sizes.sends, waiting=sizes.waiting),
    "client-soak": lambda report, sizes, _: bench_client_soak.run(report, messages=sizes.soak),
    "access": lambda report, sizes, _: bench_access.run(report, count=sizes.frames // 20),
    "console": lambda report, sizes, _: bench_console.run(
        report,
        topics=50 if sizes is QUICK else 1_000,
        groups=20 if sizes is QUICK else 500,
        many_groups=40 if sizes is QUICK else 10_000,
        seconds=2 if sizes is QUICK else 30,
    ),
    "wire": lambda report, sizes, _: bench_wire.run(report, count=sizes.frames),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=…", description="Measure formats, kernels, the store and the pipeline."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones, of {', '.join(BENCHMARKS)} (all)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small logs: shows that it runs, not how fast")
    size.add_argument("--full", action="store_true", help="10 million messages, 10 GB: takes half an hour and 25 GB")
    parser.add_argument("--data", type=Path, help="where the logs are kept (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/latest.json"), help="JSON to write")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    sizes = QUICK if arguments.quick else FULL if arguments.full else Sizes()
    print(", ".join(f"{name} {value}" for name, value in circumstances().items()))
    report = Report()
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as temporary:
        try:
            for name in arguments.names or BENCHMARKS:
                BENCHMARKS[name](report, sizes, arguments.data or Path(temporary))
        finally:
            report.save(arguments.out)  # also what was measured before a failure
    print(f"\nrecorded in {arguments.out}")


if __name__ == "__main__":
    main()
