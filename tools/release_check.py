"""Release check: builds sdist and wheel into dist/, and checks them as a user would get them (docs/releasing.md).

usage: release_check.py --tools DIRECTORY [--tag vVERSION] [--python INTERPRETER ...]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
# Installers of commands that docs/install.md names, with the words before the wheel.
INSTALLERS = {"uv": ("tool", "install"), "pipx": ("install",)}
SECTIONS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_RELEASE = re.compile(r"^## (?:Unreleased|(?P<version>\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2})$")

# Run in an environment that has the wheel and nothing else: a message goes through a broker, and its store is sound.
SMOKE = """
import subprocess, sys
from pathlib import Path
import orbitlog
program, store = Path(sys.executable).parent / "orbitlog", Path(sys.argv[1])
up = [program, "up", "--store", store, "--name-server-port", "0", "--broker-port", "0"]
with subprocess.Popen(up, stdout=subprocess.PIPE, text=True) as server:
    try:
        address = dict(word.split("=", 1) for word in server.stdout.readline().split()[1:])["name-server"]
        with orbitlog.connect(f"rocketmq://{address}") as mq:
            mq.send("Released", "hello")
            assert next(iter(mq.consume("Released", group="g", start_from="first"))).text == "hello"
    finally:
        server.terminate()
subprocess.run([program, "doctor", "check", store], check=True, stdout=subprocess.DEVNULL)
print(subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip())
"""


class Failed(Exception):
    """A check failed; the message is one sentence."""


def stated_version() -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', (ROOT / "src/orbitlog/__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise Failed("src/orbitlog/__init__.py states no __version__")
    return found[1]


def build(hatchling: Path, into: Path) -> None:
    """Build both archives; their members have the time of the last commit."""
    last_commit = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    epoch = last_commit.stdout.strip() or "315532800"
    command = [str(hatchling), "build", "-d", str(into)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "SOURCE_DATE_EPOCH": epoch}, capture_output=True)
    if done.returncode != 0:
        raise Failed(f"building failed: {done.stderr.decode(errors='replace').strip()}")


def check_archives(version: str, hatchling: Path) -> str:
    shutil.rmtree(DIST, ignore_errors=True)
    build(hatchling, DIST)
    expected = {f"orbitlog-{version}.tar.gz", f"orbitlog-{version}-py3-none-any.whl"}
    if (found := {path.name for path in DIST.iterdir()}) != expected:
        raise Failed(f"dist/ has {sorted(found)}, expected {sorted(expected)}")
    with tempfile.TemporaryDirectory() as scratch:
        build(hatchling, Path(scratch))
        for name in sorted(expected):
            first, second = (hashlib.sha256((place / name).read_bytes()).digest() for place in (DIST, Path(scratch)))
            if first != second:
                raise Failed(f"two builds of {name} differ")
    return ", ".join(f"{path.name} {path.stat().st_size:,} bytes" for path in sorted(DIST.iterdir()))


def check_metadata(twine: Path) -> str:
    done = subprocess.run([twine, "check", "--strict", *map(str, DIST.iterdir())], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"twine check: {done.stdout.strip()} {done.stderr.strip()}")
    return "twine check passed"


def check_versions(version: str, tag: str | None) -> str:
    if tag is not None and tag != f"v{version}":
        raise Failed(f"the tag is {tag}, the package has version {version}")
    for page in sorted((ROOT / "src/man").glob("man?/*")):
        if f'"orbitlog {version}"' not in page.read_text():
            raise Failed(f"{page.relative_to(ROOT)} has another version: run `make docs`")
    chart = ROOT / "deploy/helm/orbitlog/Chart.yaml"
    if chart.exists() and f'appVersion: "{version}"' not in chart.read_text():
        raise Failed(f'{chart.relative_to(ROOT)} has no appVersion: "{version}"')
    return version


def check_changelog(text: str, version: str | None) -> str:
    """Check headings; `version` must have a section if it is given."""
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    if not headings or headings[0] != "## Unreleased":
        raise Failed("CHANGELOG.md must start with the section Unreleased")
    versions = []
    for heading in headings:
        found = _RELEASE.match(heading)
        if found is None:
            raise Failed(f"CHANGELOG.md: {heading!r} is not `## VERSION - DATE`")
        if found["version"]:
            versions.append(tuple(map(int, found["version"].split("."))))
    if versions != sorted(set(versions), reverse=True):
        raise Failed("CHANGELOG.md: versions are not in descending order")
    kinds = [line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")]
    if unknown := [kind for kind in kinds if kind not in SECTIONS]:
        raise Failed(f"CHANGELOG.md: unknown sections {unknown}")
    if version is not None and tuple(map(int, version.split("."))) not in versions:
        raise Failed(f"CHANGELOG.md has no section for {version}")
    return f"{len(versions)} releases"


def interpreters(named: list[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each supported Python, and its program if it can be run here."""
    for name in (*PYTHONS, *named):
        found = (shutil.which(name), *of_pyenv(name))
        yield name, next((program for program in found if program and can_make_venv(program)), None)


def can_make_venv(program: str) -> bool:
    return subprocess.run([program, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0


def of_pyenv(name: str) -> list[str]:
    """Return the programs of this name that pyenv installed: on the path is a shim, which may be switched off."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return sorted(map(str, versions.glob(f"*/bin/{name}")), reverse=True)


def check_installation(version: str, program: str) -> str:
    (wheel,) = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        venv = Path(scratch, "environment")
        subprocess.run([program, "-I", "-m", "venv", venv], check=True)
        python = venv / "bin" / "python"
        pip = [str(python), "-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "install"]
        installed = subprocess.run(
            [*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], capture_output=True, text=True
        )
        if installed.returncode != 0:
            raise Failed(f"{program}: cannot install: {installed.stderr.strip()}")
        done = subprocess.run(
            [python, "-W", "error", "-c", SMOKE, Path(scratch, "store")], cwd=scratch, capture_output=True, text=True
        )
        if done.returncode != 0 or done.stdout.strip() != f"orbitlog {version}":
            raise Failed(f"{program}: the smoke test failed: {done.stdout.strip()} {done.stderr.strip()}")
    return "installed without extras, smoke test passed"


def check_installer(version: str, program: str, words: tuple[str, ...]) -> str:
    """Install the wheel as a command in an empty home directory; pipx links the man pages as well."""
    (wheel,) = DIST.glob("*.whl")
    with tempfile.TemporaryDirectory() as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PIPX_", "UV_TOOL_"))}
        environment = {**kept, "HOME": home}
        command = [program, *words, "--python", sys.executable, str(wheel)]
        installed = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True)
        if installed.returncode != 0:
            raise Failed(f"{program}: cannot install: {installed.stderr.strip()}")
        orbitlog = Path(home, ".local", "bin", "orbitlog")
        done = subprocess.run([orbitlog, "--version"], cwd=home, env=environment, capture_output=True, text=True)
        if done.stdout.strip() != f"orbitlog {version}":
            raise Failed(f"{program}: the command printed {done.stdout.strip()!r} {done.stderr.strip()}")
        if Path(program).name == "pipx" and not Path(home, ".local/share/man/man1/orbitlog.1").exists():
            raise Failed(f"{program}: the man pages are not linked")
    return "the command is installed and starts"


def check_documentation() -> str:
    tests = ("tests/test_docs.py", "tests/test_man_pages.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"documentation: {done.stdout.strip()[-2000:]}")
    return done.stdout.strip().splitlines()[-1]


def report(name: str, check: Callable[[], str]) -> bool:
    try:
        outcome = check()
    except Failed as error:
        print(f"release-check: {name}: FAILED: {error}", flush=True)
        return False
    print(f"release-check: {name}: {outcome}", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Build and check the archives of a release.")
    parser.add_argument("--tag", help="also check the version and the changelog against this tag")
    parser.add_argument("--python", action="append", default=[], help="a further interpreter to install on")
    parser.add_argument("--tools", type=Path, required=True, help="directory of the programs hatchling and twine")
    options = parser.parse_args()
    version = stated_version()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    passed = [
        report("archives", lambda: check_archives(version, options.tools / "hatchling")),
        report("metadata", lambda: check_metadata(options.tools / "twine")),
        report("version", lambda: check_versions(version, options.tag)),
        report("changelog", lambda: check_changelog(changelog, version if options.tag else None)),
        report("documentation", check_documentation),
    ]
    for name, program in interpreters(options.python):
        if program is None:
            print(f"release-check: {name}: not checked: it is not installed", flush=True)
        else:
            passed.append(report(name, lambda chosen=program: check_installation(version, chosen)))  # type: ignore[misc]
    for name, words in INSTALLERS.items():
        program = shutil.which(name)
        if program is None:
            print(f"release-check: {name}: not checked: it is not installed", flush=True)
        else:
            chosen = (program, words)
            passed.append(report(name, lambda chosen=chosen: check_installer(version, *chosen)))  # type: ignore[misc]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
