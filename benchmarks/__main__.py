"""`make bench`: run the benchmarks, print them, and record them as JSON.

python -m benchmarks [--quick] [--data DIR] [--out FILE]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import bench_kernels, bench_records, bench_store
from benchmarks.measure import Report, circumstances


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description="Measure formats, kernels and the store.")
    parser.add_argument("--quick", action="store_true", help="small logs: shows that it runs, not how fast")
    parser.add_argument("--data", type=Path, help="where the logs are kept (default: a temporary directory)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/latest.json"), help="JSON to write")
    arguments = parser.parse_args()
    segment_bytes = (1 << 23) if arguments.quick else (1 << 30)
    print(", ".join(f"{name} {value}" for name, value in circumstances().items()))
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as temporary:
        directory = arguments.data or Path(temporary)
        report = Report()
        for body_bytes in (200, 1024):
            bench_records.run(report, body_bytes=body_bytes, count=2_000 if arguments.quick else 200_000)
        for body_bytes in (200, 1024):
            bench_kernels.run(report, directory, body_bytes=body_bytes, segment_bytes=segment_bytes)
        bench_store.run(report, count=2_000 if arguments.quick else 200_000)
    report.save(arguments.out)
    print(f"\nrecorded in {arguments.out}")


if __name__ == "__main__":
    main()
