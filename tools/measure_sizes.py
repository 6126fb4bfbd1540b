"""Measure what the core and each extra add to an installation, and write the table of docs/install.md.

Packages are downloaded once, at the versions of constraints.txt. Download is the size of their archives, unpacked that
of the files in them. pip also compiles them: "with bytecode" adds what this Python writes below __pycache__. Each
set is also installed from those archives into an empty environment, for the processor time of pip. Sizes of an extra
include the core's.

usage: measure_sizes.py [--keep DIRECTORY]
"""

from __future__ import annotations

import argparse
import functools
import json
import marshal
import os
import re
import resource
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "install.md"
SETS = ("", "console", "rocksdb", "otel", "grpc", "plot", "fast", "lake", "spark", "all")
CORE_UNPACKED_MAX_MB = 35
MB = 1_000_000
_BYTECODE_HEADER_BYTES = 16
_MARKS = ("<!-- sizes: make sizes -->\n", "<!-- end of sizes -->\n")


class Size(NamedTuple):
    """What one set of packages takes."""

    packages: int
    download_bytes: int
    unpacked_bytes: int
    bytecode_bytes: int
    seconds: float


def pip(*arguments: str, python: str = sys.executable) -> None:
    constrained = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}
    command = [python, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", *arguments]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **constrained}, check=True)


def download(directory: Path) -> Path:
    """Fetch every package of every extra, and build the wheel of Orbitlog; return the wheel."""
    pip("wheel", "--no-deps", "--wheel-dir", str(directory), ".")
    pip("wheel", "--wheel-dir", str(directory), "--find-links", str(directory), "orbitlog[all] @ file://" + str(ROOT))
    (wheel,) = directory.glob("orbitlog-*.whl")
    return wheel


def unpacked_bytes(archive: Path) -> int:
    with zipfile.ZipFile(archive) as wheel:
        return sum(member.file_size for member in wheel.infolist())


def bytecode_bytes(archive: Path) -> int:
    """Return the size of the bytecode files of a wheel; modules that this Python cannot compile have none."""
    with zipfile.ZipFile(archive) as wheel, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of others
        return sum(_bytecode_of(wheel.read(name)) for name in wheel.namelist() if name.endswith(".py"))


def _bytecode_of(source: bytes) -> int:
    try:
        code = compile(source, "module.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return 0
    return _BYTECODE_HEADER_BYTES + len(marshal.dumps(code))


def archives_of(wheel: Path, extra: str, directory: Path) -> list[Path]:
    """Return the archives that pip installs for an extra."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        source = ("--no-index", "--find-links", str(directory))
        options = ("--dry-run", "--ignore-installed", "--report", str(report))
        pip("install", *source, *options, requirement(wheel, extra))
        chosen = json.loads(report.read_text())["install"]
    return [directory / item["download_info"]["url"].rpartition("/")[2] for item in chosen]


def requirement(wheel: Path, extra: str) -> str:
    return f"{wheel}[{extra}]" if extra else str(wheel)


def install_seconds(wheel: Path, extra: str, directory: Path) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([sys.executable, "-I", "-m", "venv", scratch], check=True)
        python = str(Path(scratch, "bin", "python"))
        started = _children_seconds()
        pip("install", "--no-index", "--find-links", str(directory), requirement(wheel, extra), python=python)
        return _children_seconds() - started


def _children_seconds() -> float:
    """Return the processor time of all ended child processes; unlike elapsed time, other load hardly changes it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(directory: Path) -> dict[str, Size]:
    wheel = download(directory)
    unpacked, bytecode = functools.cache(unpacked_bytes), functools.cache(bytecode_bytes)
    sizes = {}
    for extra in SETS:
        archives = archives_of(wheel, extra, directory)
        sizes[extra] = Size(
            len(archives),
            sum(archive.stat().st_size for archive in archives),
            sum(map(unpacked, archives)),
            sum(map(bytecode, archives)),
            install_seconds(wheel, extra, directory),
        )
        print(f"{extra or 'core'}: {sizes[extra]}", flush=True)
    return sizes


def table(sizes: dict[str, Size]) -> str:
    head = ["command", "packages", "download", "unpacked", "with bytecode", "processor time"]
    rows = [head, ["---", *(["---:"] * (len(head) - 1))]]
    for extra, size in sizes.items():
        command = f"`pip install 'orbitlog[{extra}]'`" if extra else "`pip install orbitlog`"
        counts = (size.download_bytes, size.unpacked_bytes, size.unpacked_bytes + size.bytecode_bytes)
        megabytes = (f"{round(count / MB)} MB" for count in counts)
        rows.append([command, str(size.packages), *megabytes, f"{size.seconds:.0f} s"])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write_page(text: str) -> None:
    page = PAGE.read_text()
    pattern = re.compile("(?<=" + re.escape(_MARKS[0]) + ").*?(?=" + re.escape(_MARKS[1]) + ")", re.DOTALL)
    assert pattern.search(page), f"{PAGE} has no marks for the table"
    PAGE.write_text(pattern.sub(lambda _: text, page))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keep", type=Path, help="keep the archives in this directory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        sizes = measure(directory.resolve())
    write_page(table(sizes))
    core_mb = sizes[""].unpacked_bytes / MB
    if core_mb > CORE_UNPACKED_MAX_MB:
        print(f"the core is {core_mb:.0f} MB unpacked, at most {CORE_UNPACKED_MAX_MB} are allowed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
