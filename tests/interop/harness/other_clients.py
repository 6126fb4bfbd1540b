"""Drivers of the clients in Go, JavaScript and C++: fetched by the tools of their languages, kept in a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.interop.harness.packages import NotAvailable, cache_directory

FETCH_SECONDS_MAX = 600
SOURCES = Path(__file__).resolve().parent.parent / "drivers"

_CPP_WHEEL = "rocketmq==0.4.4"
# The client in the wheel has no TLS. A library of 2.2 or later has the same C interface, and more.
_CPP_LIBRARY = "ROCKETMQ_CPP_LIBRARY"


@cache
def driver_command(language: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs a driver, and its environment; raises `NotAvailable` if it cannot be built."""
    makers = {
        "go": (_make_go, _run_go),
        "go-tls": (_make_go_with_tls, _run_go),
        "node": (_make_node, _run_node),
        "cpp": (_make_cpp, _run_cpp),
        "cpp-tls": (_make_cpp_with_tls, _run_cpp),
    }
    sources = sorted(path for path in (SOURCES / language.removesuffix("-tls")).iterdir() if path.is_file())
    if language == "cpp-tls":
        sources.append(_tls_library())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    made = cache_directory() / f"{language}-{digest}"
    if not made.exists():
        unfinished = made.with_name(f"{made.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        for path in sources:
            shutil.copy(path, unfinished)
        makers[language][0](unfinished)
        unfinished.replace(made)
    return makers[language][1](made)


def _program(name: str, hint: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotAvailable(f"{name} was not found: {hint}")
    return found


def _fetch(command: Sequence[str], directory: Path, what: str) -> None:
    log = directory / "fetch.log"
    try:
        with log.open("w") as output:
            done = subprocess.run(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                timeout=FETCH_SECONDS_MAX,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"{what} could not be fetched within {FETCH_SECONDS_MAX} s; see {log}") from None
    if done.returncode != 0:
        raise NotAvailable(f"{what} could not be fetched (exit {done.returncode}); see {log}")


def _make_go(directory: Path) -> None:
    go = _program("go", "install Go 1.20 or newer to try its client")
    _fetch([go, "build", "-o", "driver", "."], directory, "the Go client")


def _make_go_with_tls(directory: Path) -> None:
    """Build with the newer client of `tls.mod`: v2.1.2, the latest release, has no TLS."""
    go = _program("go", "install Go 1.20 or newer to try its client")
    _fetch([go, "build", "-modfile", "tls.mod", "-tags", "tls", "-o", "driver", "."], directory, "the newer Go client")


def _run_go(directory: Path) -> tuple[list[str], dict[str, str]]:
    return [str(directory / "driver")], dict(os.environ)


def _make_node(directory: Path) -> None:
    npm = _program("npm", "install Node.js and npm to try the client ali-ons")
    _fetch([npm, "install", "--no-audit", "--no-fund", "--no-package-lock"], directory, "the client ali-ons")


def _run_node(directory: Path) -> tuple[list[str], dict[str, str]]:
    return [_program("node", "install Node.js to try the client ali-ons"), str(directory / "main.js")], dict(os.environ)


def _make_cpp(directory: Path) -> None:
    fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", ".", _CPP_WHEEL]
    _fetch(fetch, directory, f"the C++ client in the wheel {_CPP_WHEEL}")
    for wheel in directory.glob("*.whl"):
        with zipfile.ZipFile(wheel) as content:
            content.extractall(directory)


def _tls_library() -> Path:
    given = os.environ.get(_CPP_LIBRARY)
    if not given or not Path(given).is_file():
        raise NotAvailable(f"the C++ client of the wheel has no TLS; set {_CPP_LIBRARY} to a librocketmq.so of 2.2")
    return Path(given)


def _make_cpp_with_tls(directory: Path) -> None:
    _make_cpp(directory)
    library = directory / "rocketmq" / "librocketmq.so"
    library.unlink()
    shutil.copy(_tls_library(), library)


def _run_cpp(directory: Path) -> tuple[list[str], dict[str, str]]:
    return [sys.executable, "-S", str(directory / "main.py")], {**os.environ, "PYTHONPATH": str(directory)}
