"""Resolve every dependency and pin it in constraints.txt.

The oldest supported Python resolves freely; each newer one found on this machine then resolves within those pins,
and may add packages that only it needs. A pin constrains a package without asking for it, so one list serves all.

usage: lock.py [PYTHON...]      default: python3.11, python3.12, python3.13 if they are installed
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
SUPPORTED = ("python3.11", "python3.12", "python3.13")
EVERYTHING = ".[all,browser,site,deploy,release,dev]"
# Build dependencies: of Orbitlog (hatchling, and editables for --editable) and of PySpark, which ships as source.
BUILD_BACKENDS = ("hatchling", "editables", "setuptools", "wheel")

HEADER = """\
# Every package that any extra or build needs, at one version for all supported Pythons. Made by `make lock`.
"""


def runs(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def resolve(pip: Path, pins: dict[str, str], *requirements: str) -> dict[str, str]:
    """Ask pip which versions it would install; nothing is installed."""
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch) / "pins.txt"
        constraints.write_text(render(pins))
        report = Path(scratch) / "report.json"
        options = [
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--constraint",
            str(constraints),
            "--report",
            str(report),
        ]
        subprocess.run([str(pip), "install", *options, *requirements], cwd=ROOT, check=True)
        chosen = json.loads(report.read_text())["install"]
    found = {normalise(item["metadata"]["name"]): str(item["metadata"]["version"]) for item in chosen}
    found.pop("orbitlog", None)
    return found


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def render(pins: dict[str, str]) -> str:
    return HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def main(pythons: list[str]) -> int:
    usable = [python for python in pythons if runs(python)]
    if not usable:
        print(f"none of {', '.join(pythons)} runs here: name an interpreter.", file=sys.stderr)
        return 2
    pins: dict[str, str] = {}
    for python in usable:
        print(f"lock: resolving with {python}", flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run([python, "-m", "venv", scratch], check=True)
            pip = Path(scratch) / "bin" / "pip"
            pins |= resolve(pip, pins, EVERYTHING)
            pins |= resolve(pip, pins, *BUILD_BACKENDS)
    CONSTRAINTS.write_text(render(pins))
    print(f"lock: {len(pins)} packages pinned in constraints.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(SUPPORTED)))
