"""Measure the lines and branches of each room that its own tests run, and compare them with the floors.

The tests of a room are those in `tests/unit/<room>` and `tests/integration/<room>`. Kernels also count contract tests,
run without the packages of the extra `fast`, because coverage sees no machine code. Each room is measured by itself, so
that tests of other rooms do not count. Floors are in `tools/coverage_floors.json`; a new room needs one.

usage: room_coverage.py [--markers EXPRESSION] [ROOM ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "orbitlog"
FLOORS = ROOT / "tools" / "coverage_floors.json"
_TESTS_WITHOUT_FAST = {"kernels": "tests/contract"}


def rooms() -> list[str]:
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def directories_of(room: str) -> list[str]:
    """Return the directories with the tests of a room."""
    return [name for kind in ("unit", "integration") if (ROOT / (name := f"tests/{kind}/{room}")).is_dir()]


def measure(room: str, markers: str) -> float:
    """Run the tests of a room; return the percentage of its lines and branches that ran.

    Raise `CalledProcessError` if a test fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "COVERAGE_FILE": str(Path(scratch, "data"))}
        coverage = (sys.executable, "-m", "coverage")
        tests = ("run", "-m", "pytest", "-q", "-m", markers)
        steps = [(*tests, *directories_of(room))]
        if room in _TESTS_WITHOUT_FAST:
            steps.append((*tests, "-p", "tests.support.without_fast", _TESTS_WITHOUT_FAST[room]))
        report = Path(scratch, "report.json")
        for words in (*steps, ("combine", "-q"), ("json", "-q", "-o", str(report))):
            subprocess.run([*coverage, *words], cwd=ROOT, env=environment, check=True)
        return percentage(json.loads(report.read_text()), room)


def percentage(report: Mapping[str, Any], room: str) -> float:
    """Return the share of lines and branches of a room that ran, in percent, from the report of coverage."""
    begin = f"src/orbitlog/{room}/"
    files = [file["summary"] for name, file in report["files"].items() if name.startswith(begin)]
    all_parts = sum(file["num_statements"] + file["num_branches"] for file in files)
    run_parts = sum(file["covered_lines"] + file["covered_branches"] for file in files)
    return float(100 * run_parts / all_parts)


def problems(measured: Mapping[str, float], floors: Mapping[str, int]) -> list[str]:
    """Return a line for each room below its floor; percentages are cut, not rounded, so that they differ."""
    return [
        f"{room}: its tests run {int(percent * 10) / 10} % of its lines and branches, the floor is {floors[room]} %"
        for room, percent in measured.items()
        if percent < floors[room]
    ]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--markers", default="not slow and not spark and not interop", help="of the tests to run")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="rooms to measure [all]")
    options = parser.parse_args(words)
    unknown = set(options.rooms) - set(rooms())
    if unknown:
        parser.error(f"unknown rooms: {', '.join(sorted(unknown))}")
    floors = json.loads(FLOORS.read_text())
    measured = {}
    for room in options.rooms or rooms():
        print(f"== {room}", flush=True)
        try:
            measured[room] = measure(room, options.markers)
        except subprocess.CalledProcessError:
            print(f"{room}: its tests fail, see above", file=sys.stderr)
            return 1
        print(f"{room}: {measured[room]:.1f} %, floor {floors[room]} %", flush=True)
    found = problems(measured, floors)
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
