"""Child processes of jobs: commands of this package with JSON lines as output, ended with all their children."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from typing import Any

from orbitlog.errors import OrbitlogError

_PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
LINE_BYTES_MAX = 4 << 20
_ERROR_BYTES_MAX = 64 << 10


class ChildFailed(OrbitlogError):
    """A child process that ended with an error or took too long."""


async def json_lines(
    *words: str, seconds: float, accepted: tuple[int, ...] = (0,)
) -> AsyncIterator[tuple[dict[str, Any], int]]:
    """Run a command; yield each line of its output as JSON, with its size. Raise `ChildFailed` if it fails."""
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM, *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True, limit=LINE_BYTES_MAX
    )
    errors = asyncio.create_task(_errors(process))
    try:
        async with asyncio.timeout(seconds):
            assert process.stdout is not None
            while line := await process.stdout.readline():
                value = json.loads(line)
                if isinstance(value, dict):
                    yield value, len(line)
            await process.wait()
            text = await errors
    except TimeoutError:
        raise ChildFailed(f"it takes longer than {seconds:.0f} s, so it was stopped") from None
    except ValueError:
        raise ChildFailed(f"a row is larger than {LINE_BYTES_MAX >> 20} MiB, or is not JSON") from None
    finally:
        await _end(process)
        errors.cancel()
    if process.returncode not in accepted:
        raise ChildFailed(text or f"the command ended with code {process.returncode}")


async def _errors(process: Process) -> str:
    """Return the last line that the command printed as an error; more than a limit is dropped."""
    assert process.stderr is not None
    kept = b""
    while part := await process.stderr.read(8192):
        kept = (kept + part)[-_ERROR_BYTES_MAX:]
    lines = kept.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("orbitlog: ")[:1000] if lines else ""


async def _end(process: Process) -> None:
    """Kill the process and its children, such as a JVM; they are a session of their own."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await process.wait()
