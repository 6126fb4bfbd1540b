"""Newcomer test: runs the quick starts of docs/guides in an empty account, command by command, as they are printed.

usage: newcomer.py [ROLE...]       default: all of docs/guides/quick-start-ROLE.md

Each page gets a new home directory with a clone of the committed state, and an environment with a PATH alone. A fence
`sh newcomer` is run by one shell in order; `sh newcomer server` is the second terminal of the page, and the next
commands wait for its line `ready`. A command that fails ends the page; the exit code is then 1.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDES = ROOT / "docs" / "guides"
PREFIX = "quick-start-"
_FENCE = re.compile(r"^```sh newcomer( server)?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_READY_SECONDS = 120
_PAGE_SECONDS = 1200
# What a machine needs to reach its package index belongs to the machine, not to the account.
_OF_THE_MACHINE = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "PIP_CERT",
    "PIP_INDEX_URL",
    "PIP_FIND_LINKS",
)


class NewcomerFailed(Exception):
    """A quick start did not work as printed; the message has the page, the command's output and the reason."""


def steps(page: str) -> Iterator[tuple[bool, str]]:
    """Yield the fences of a page: whether it is a server, and its commands."""
    for server, commands in _FENCE.findall(page):
        yield bool(server), commands


def roles() -> list[str]:
    return sorted(path.stem.removeprefix(PREFIX) for path in GUIDES.glob(f"{PREFIX}*.md"))


def new_account(home: Path) -> tuple[Path, dict[str, str]]:
    """Return the clone in a new home directory, and the environment of the account."""
    clone = home / "orbitlog"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    return clone, environment | {name: os.environ[name] for name in _OF_THE_MACHINE if name in os.environ}


class Shell:
    """One terminal: bash, which ends at the first command that fails."""

    def __init__(self, clone: Path, environment: dict[str, str], log: Path) -> None:
        self._log = log.open("wb")
        self.log = log
        self.process = subprocess.Popen(
            ["bash", "-eu", "-o", "pipefail"],
            cwd=clone,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def finish(self, seconds: float) -> int:
        """Close the input, and return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(seconds)

    def end(self) -> None:
        """End everything that the terminal started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._log.close()


def as_block(commands: str) -> str:
    """Return the commands with an empty standard input: that of the shell is the rest of the page."""
    return f"{{\n{commands}}} </dev/null\n"


def wait_for(shell: Shell, text: str, seconds: float, *others: Shell) -> None:
    """Wait for a line in a terminal; raise `NewcomerFailed` if one of the terminals ends first."""
    deadline = time.monotonic() + seconds
    while not re.search(rf"^{text}", shell.log.read_text(errors="replace"), re.MULTILINE):
        ended = [each for each in (shell, *others) if each.process.poll() is not None]
        if ended or time.monotonic() > deadline:
            printed = (ended or [shell])[0].log.read_text(errors="replace")
            raise NewcomerFailed(f"waiting for {text!r}; the terminal printed:\n{printed[-3000:]}")
        time.sleep(0.1)


def follow(role: str, directory: Path) -> float:
    """Run one quick start; return its seconds, or raise `NewcomerFailed`."""
    page = (GUIDES / f"{PREFIX}{role}.md").read_text()
    clone, environment = new_account(directory)
    started = time.monotonic()
    with ExitStack() as running:
        main = Shell(clone, environment, directory / "terminal.log")
        running.callback(main.end)
        for number, (is_server, commands) in enumerate(steps(page)):
            if is_server:
                server = Shell(clone, environment, directory / f"server-{number}.log")
                running.callback(server.end)
                server.write(as_block(commands))
                wait_for(server, "ready ", _READY_SECONDS)
            else:
                main.write(f"{as_block(commands)}echo newcomer: step {number} done\n")
                wait_for(main, f"newcomer: step {number} done", _PAGE_SECONDS)
        if (code := main.finish(_READY_SECONDS)) != 0:
            raise NewcomerFailed(f"{role}: the terminal ended with {code}")
    return time.monotonic() - started


def main(arguments: list[str]) -> int:
    chosen = arguments or roles()
    if unknown := set(chosen) - set(roles()):
        print(
            f"newcomer: no quick start for {', '.join(sorted(unknown))}; there are {', '.join(roles())}",
            file=sys.stderr,
        )
        return 2
    failed = False
    for role in chosen:
        with tempfile.TemporaryDirectory(prefix=f"newcomer-{role}-") as home:
            try:
                print(f"{role}: every command ran, {follow(role, Path(home)):.0f} s", flush=True)
            except NewcomerFailed as error:
                failed = True
                print(f"{role}: FAILED: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
