"""The process that dispatches beside a broker (`orbitlog up --dispatch spark`): started, watched, started again.

When it ends, the broker takes dispatch back at once and consumers go on. Then it is started again after a pause, each
time a longer one, and given up where it ends again and again. Dispatch is handed over to the new one only when it asks
for it: until Spark has come up, which takes seconds, the broker dispatches.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from orbitlog.errors import StoreError

PAUSES_S = (1.0, 5.0, 20.0, 60.0, 120.0)
"""How long to wait before each start, counted from the last one that went well."""
_SETTLED_S = 600.0  # who has run for so long had started well
_STOP_S = 15.0
_TAKE_BACK_S = 0.5
_LOOK_S = 0.2
_OUTPUT_MAX = 1 << 16
_ASKS = b"waiting:"  # the first word of the line in which the command says that it waits for dispatch
_PROGRAM = "from orbitlog.cli.main import main; main()"

log = logging.getLogger(__name__)


class DispatchingBroker(Protocol):
    """A broker that can give dispatch away and take it back."""

    def hand_over_dispatch(self) -> None: ...
    def take_back_dispatch(self) -> bool: ...


class DispatchProcess:
    """Keeps `orbitlog pipeline dispatch` running for a broker that has offered dispatch to it."""

    def __init__(
        self,
        broker: DispatchingBroker,
        root: Path,
        output_path: Path,
        *,
        command: Sequence[str] = (),
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._broker = broker
        self._command = tuple(command) or (sys.executable, "-c", _PROGRAM, "pipeline", "dispatch", str(root))
        self._output_path = output_path
        self._pauses_s = pauses_s
        self._process: Process | None = None
        self._output_start = 0
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process and watch it; the broker has offered dispatch already."""
        process = await self._begin()
        self._watching = asyncio.create_task(self._watch(process))
        self._watching.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """End the process, which hands dispatch back first."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._process is not None:
            await _end(self._process)

    async def _begin(self) -> Process:
        with self._output_path.open("ab") as output:
            self._output_start = output.tell()
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=DEVNULL, stdout=output, stderr=output
            )
        return self._process

    async def _watch(self, process: Process) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began_s = loop.time()
            status = await process.wait()
            await self._take_back(status)
            if status == 0:
                log.warning("Spark was told to end and is not started again; start the broker again to have it back")
                return
            if loop.time() - began_s >= _SETTLED_S:
                failures = 0
            if failures == len(self._pauses_s):
                log.error(
                    "Spark has ended %d times in a row and is not started again; mend what %s tells, and start the"
                    " broker again to have it back. Until then the broker dispatches",
                    failures + 1,
                    self._output_path,
                )
                return
            log.warning(
                "Spark is started again in %g s (%d of %d)",
                self._pauses_s[failures],
                failures + 1,
                len(self._pauses_s),
            )
            await asyncio.sleep(self._pauses_s[failures])
            failures += 1
            process = await self._begin()
            await self._hand_over_when_asked(process)

    async def _hand_over_when_asked(self, process: Process) -> None:
        """Hand dispatch over as soon as the process says that it waits for it."""
        while process.returncode is None:
            if self._asks():
                try:
                    self._broker.hand_over_dispatch()
                except StoreError as error:
                    log.error("dispatch cannot be handed over to Spark yet: %s", error)
                else:
                    log.info("Spark is up and asks for dispatch: it is handed over")
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _LOOK_S)

    def _asks(self) -> bool:
        with self._output_path.open("rb") as output:
            output.seek(self._output_start)
            return any(line.startswith(_ASKS) for line in output.read(_OUTPUT_MAX).splitlines())

    async def _take_back(self, status: int) -> None:
        log.error(
            "Spark, which dispatched, has ended (%s); the broker dispatches from now on. %s may tell why",
            f"killed by signal {-status}" if status < 0 else f"exit status {status}",
            self._output_path,
        )
        while True:
            try:
                if self._broker.take_back_dispatch():
                    break
            except StoreError as error:
                log.error("dispatch cannot be taken back yet: %s", error)
            await asyncio.sleep(_TAKE_BACK_S)
        log.warning("dispatch is the broker's again")


def _log_failure(watching: asyncio.Task[None]) -> None:
    if not watching.cancelled() and (error := watching.exception()) is not None:
        log.error("Spark cannot be started again, and the broker dispatches: %s", error)


async def _end(process: Process) -> None:
    """Ask a process to end and wait; it hands dispatch back first."""
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()
