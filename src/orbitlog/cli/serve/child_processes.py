"""Child processes of a server command: how each of them is ended."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process


async def end_process(process: Process, grace_s: float) -> None:
    """Terminate a process and wait for its exit; kill it if it is still running after `grace_s`."""
    if process.returncode is None:
        process.terminate()
    await wait_or_kill(process, grace_s)


async def wait_or_kill(process: Process, grace_s: float) -> None:
    """Wait for the exit of a process that is ending; kill it if it is still running after `grace_s`."""
    try:
        async with asyncio.timeout(grace_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
