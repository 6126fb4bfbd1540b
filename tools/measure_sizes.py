"""Measure what the core and each extra add to an installation, and write the tables of docs/install.md.

Packages are downloaded once, at the versions of constraints.txt. Download is the size of their archives, unpacked that
of the files in them. pip also compiles them: "with bytecode" adds what this Python writes below __pycache__. Each
set is also installed from those archives into an empty environment, for the processor time of pip. Sizes of an extra
include the core's. A second table has the parts of each package of the core; debug information is what
`strip` would remove from its extension modules.

usage: measure_sizes.py [--keep DIRECTORY] [--core]
"""

from __future__ import annotations

import argparse
import functools
import json
import marshal
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "install.md"
SETS = ("", "lz4", "console", "rocksdb", "otel", "grpc", "plot", "fast", "lake", "spark", "all")
CORE_MAX_MB = 35  # as pip leaves it, with bytecode
MB = 1_000_000
_BYTECODE_HEADER_BYTES = 16
_MARKS = ("<!-- sizes: make sizes -->\n", "<!-- end of sizes -->\n")
_CORE_MARKS = ("<!-- core sizes: make sizes -->\n", "<!-- end of core sizes -->\n")
# ELF for 64 bits, little-endian: offset of the section headers; their size, their number, and the one with the names.
_ELF = struct.Struct("<40xQ10xHHH")
_ELF_MAGIC = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<I20xQQ24x")  # offset of the name, offset and size of the content


class Parts(NamedTuple):
    """What the files of one archive take."""

    modules_bytes: int  # extension modules, without debug information
    debug_bytes: int
    other_bytes: int  # Python files and data
    bytecode_bytes: int

    @property
    def unpacked_bytes(self) -> int:
        return self.modules_bytes + self.debug_bytes + self.other_bytes


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


def download(directory: Path, extra: str) -> Path:
    """Fetch every package of an extra, and build the wheel of Orbitlog; return the wheel."""
    pip("wheel", "--no-deps", "--wheel-dir", str(directory), ".")
    name = f"orbitlog[{extra}]" if extra else "orbitlog"
    pip("wheel", "--wheel-dir", str(directory), "--find-links", str(directory), f"{name} @ file://{ROOT}")
    (wheel,) = directory.glob("orbitlog-*.whl")
    return wheel


def parts_of(archive: Path) -> Parts:
    """Return what the files of a wheel take; modules that this Python cannot compile have no bytecode."""
    modules = debug = other = bytecode = 0
    with zipfile.ZipFile(archive) as wheel, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of others
        for member in wheel.infolist():
            if re.search(r"\.so(\.\d+)*$", member.filename):
                removable = debug_bytes(wheel.read(member))
                modules += member.file_size - removable
                debug += removable
            else:
                other += member.file_size
            if member.filename.endswith(".py"):
                bytecode += _bytecode_of(wheel.read(member))
    return Parts(modules, debug, other, bytecode)


def debug_bytes(module: bytes) -> int:
    """Return the size of debug information and symbol table of an extension module; 0 if it is not ELF for 64 bits."""
    if not module.startswith(_ELF_MAGIC):
        return 0
    table, size, count, names_index = _ELF.unpack_from(module)
    sections = [_SECTION.unpack_from(module, table + index * size) for index in range(count)]
    names = sections[names_index][1]
    found = 0
    for name_offset, _, length in sections:
        begin = names + name_offset
        name = module[begin : module.index(b"\0", begin)]
        if name.startswith(b".debug_") or name in (b".symtab", b".strtab"):
            found += length
    return found


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


def measure(wheel: Path, directory: Path) -> dict[str, Size]:
    measured = functools.cache(parts_of)
    sizes = {}
    for extra in SETS:
        archives = archives_of(wheel, extra, directory)
        sizes[extra] = Size(
            len(archives),
            sum(archive.stat().st_size for archive in archives),
            sum(measured(archive).unpacked_bytes for archive in archives),
            sum(measured(archive).bytecode_bytes for archive in archives),
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


def core_table(core: dict[str, Parts]) -> str:
    """Return the table of the packages of the core, largest first, and their sum."""
    head = ["package", "Python and data", "extension modules", "their debug information", "bytecode", "together"]
    rows = [head, ["---", *(["---:"] * (len(head) - 1))]]
    largest_first = sorted(core.items(), key=lambda item: -item[1].unpacked_bytes - item[1].bytecode_bytes)
    total = Parts(*(sum(column) for column in zip(*core.values(), strict=True)))
    for name, parts in [*((f"`{name}`", parts) for name, parts in largest_first), ("all", total)]:
        counts = (parts.other_bytes, parts.modules_bytes, parts.debug_bytes, parts.bytecode_bytes, sum(parts))
        rows.append([name, *(f"{count / MB:.1f} MB" for count in counts)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def measure_core(wheel: Path, directory: Path) -> dict[str, Parts]:
    archives = archives_of(wheel, "", directory)
    return {archive.name.partition("-")[0].replace("_", "-"): parts_of(archive) for archive in archives}


def write_page(text: str, marks: tuple[str, str]) -> None:
    page = PAGE.read_text()
    pattern = re.compile("(?<=" + re.escape(marks[0]) + ").*?(?=" + re.escape(marks[1]) + ")", re.DOTALL)
    assert pattern.search(page), f"{PAGE} has no marks for the table"
    PAGE.write_text(pattern.sub(lambda _: text, page))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keep", type=Path, help="keep the archives in this directory")
    parser.add_argument("--core", action="store_true", help="measure the core alone, in a minute")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = (options.keep or Path(scratch)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        wheel = download(directory, "" if options.core else "all")
        core = measure_core(wheel, directory)
        write_page(core_table(core), _CORE_MARKS)
        if not options.core:
            write_page(table(measure(wheel, directory)), _MARKS)
    core_mb = sum(sum(parts) for parts in core.values()) / MB
    if core_mb >= CORE_MAX_MB:
        print(f"the core takes {core_mb:.1f} MB with bytecode, less than {CORE_MAX_MB} are allowed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
