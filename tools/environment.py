"""Development environment: creates .venv once, and updates it when one of its inputs has changed.

Uses the standard library alone, as it runs before any package is installed. The stamp is written last: after an
interrupted set-up there is none, and the next run starts from an empty .venv. A lock file lets two `make` runs share
one set-up.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "setup.stamp"
LOG = VENV / "setup.log"
JAVA_HOME = VENV / "java_home"
LOCK = ROOT / ".setup.lock"

EXTRAS = "all,browser,dev"
INPUTS = ("pyproject.toml", "constraints.txt", "tools/environment.py")
LOG_TAIL_LINES = 25

# Environment variables of the caller that would make pip install into, or import from, another place.
_DISTURBING = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")


class SetupError(Exception):
    """Set-up failed; the message is one sentence with the reason and what to do."""


def describe(python_version: str, root: Path = ROOT) -> dict[str, str]:
    """Return the inputs of an environment; an environment with an equal description is current."""
    digest = hashlib.sha256()
    for name in INPUTS:
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return {"python": python_version, "root": str(root), "inputs": digest.hexdigest()}


def read_stamp(stamp: Path = STAMP) -> dict[str, str] | None:
    """Return the description of the environment, or None if set-up did not finish."""
    try:
        content = json.loads(stamp.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def must_recreate(made_from: dict[str, str] | None, wanted: dict[str, str]) -> bool:
    """Return whether .venv must be created from nothing: it is unfinished, was moved, or has another Python."""
    return made_from is None or any(made_from.get(name) != wanted[name] for name in ("python", "root"))


def wanted_python_version() -> str:
    """Return the version of $PYTHON if it is set, otherwise of this interpreter."""
    named = os.environ.get("PYTHON")
    if not named:
        return sys.version
    answer = subprocess.run([named, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=True)
    return answer.stdout.rstrip("\n")


def set_up() -> None:
    """Create or update .venv; do nothing if it is current. Raise `SetupError` if a step fails."""
    wanted = describe(sys.version)
    made_from = read_stamp()
    if made_from == wanted and python_of(VENV).exists():
        return
    started = time.monotonic()
    version = ".".join(map(str, sys.version_info[:3]))
    if must_recreate(made_from, wanted):
        say(f"making .venv with Python {version}")
        require_venv_module()
        shutil.rmtree(VENV, ignore_errors=True)
        VENV.mkdir()
        run("make the virtual environment", [sys.executable, "-I", "-m", "venv", ".venv"])
        say("installing packages (the first time downloads about 700 MB, most of it Spark; details in .venv/setup.log)")
    else:
        say("bringing packages up to date")
    STAMP.unlink(missing_ok=True)
    install_packages()
    find_java()
    warm_kernels()
    STAMP.write_text(json.dumps(wanted, indent=1))
    say(f"ready after {time.monotonic() - started:.0f} s")


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def install_packages() -> None:
    # A relative path, because pip splits PIP_CONSTRAINT at spaces, and the path of the repository may contain some.
    # Old versions of pip read PIP_CONSTRAINT for isolated builds, new ones read PIP_BUILD_CONSTRAINT.
    constrained = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}
    pip = [str(python_of(VENV)), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    run("install the packages", [*pip, "--editable", f".[{EXTRAS}]"], **constrained)


def find_java() -> None:
    """Write the home of a Java for Spark into `JAVA_HOME`; leave the file empty, with a notice, if there is none."""
    with LOG.open("a") as log:
        found = subprocess.run(
            ["tools/find_java", "--install"], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
        )
    JAVA_HOME.write_text(found.stdout)
    if found.returncode != 0:
        reason = subprocess.run(["tools/find_java"], cwd=ROOT, capture_output=True, text=True)
        say(reason.stderr.strip())


def warm_kernels() -> None:
    """Compile the numba kernels into their cache, so that the first command does not wait for it."""
    if (ROOT / "src/orbitlog/kernels").is_dir():
        say("compiling the numba kernels")
        try:
            run("compile the kernels", [str(python_of(VENV)), "tools/warm_kernels.py"])
        except SetupError as error:
            say(f"{error} Their first use will compile them.")


def require_venv_module() -> None:
    """Raise `SetupError` without `venv` and `ensurepip`; on Debian try to install their package first."""
    if can_make_venv():
        return
    major_minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    say(f"python{major_minor} cannot make virtual environments yet: asking the package manager for python3-venv")
    packages = (f"apt-get:python{major_minor}-venv", "apt-get:python3-venv")
    subprocess.run(["tools/system_install", *packages], cwd=ROOT, capture_output=True)
    if not can_make_venv():
        raise SetupError(f"{sys.executable} has no venv and ensurepip: install the package python{major_minor}-venv.")


def can_make_venv() -> bool:
    return subprocess.run([sys.executable, "-I", "-c", "import venv, ensurepip"], capture_output=True).returncode == 0


def run(purpose: str, command: Sequence[str], **extra_environment: str) -> None:
    """Run a command in the repository's root with its output in `LOG`; if it fails, print the last lines and raise."""
    environment = {name: value for name, value in os.environ.items() if name not in _DISTURBING}
    with LOG.open("a") as log:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment | extra_environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    if done.returncode != 0:
        tail = LOG.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        print("\n".join(tail), file=sys.stderr)
        raise SetupError(f"could not {purpose} (exit {done.returncode}); the whole log is .venv/setup.log.")


def say(sentence: str) -> None:
    print(f"setup: {sentence}", flush=True)


def main() -> int:
    if "--is-current" in sys.argv[1:]:
        return 0 if read_stamp() == describe(wanted_python_version()) else 1
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this directory")
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            set_up()
        except SetupError as error:
            print(f"setup: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
