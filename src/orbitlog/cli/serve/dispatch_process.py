"""Dispatch process of `orbitlog up --dispatch spark`: starts Spark next to a broker, supervises and restarts it.

When the process ends, the broker takes dispatch back at once, so consumers are served. The process is then restarted
after a pause that grows with each failure, and given up after several failures. Dispatch is handed to the new process
only when it requests it: until Spark has started, which takes seconds, the broker dispatches.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from orbitlog.cli.serve.child_processes import end_process
from orbitlog.errors import StoreError
from orbitlog.storefiles.confined.regular_files import open_regular

PAUSES_S = (1.0, 5.0, 20.0, 60.0, 120.0)
"""Pause before each restart, in seconds; starts over after a run of `_STABLE_S`."""
_STABLE_S = 600.0  # a process that ran this long had started successfully
_STOP_S = 15.0
_TAKE_BACK_S = 0.5
_POLL_S = 0.2
_OUTPUT_MAX = 1 << 16
_REQUEST = b"waiting:"  # start of the line that `pipeline dispatch` prints while it waits for the lease
_PROGRAM = "from orbitlog.cli.main import main; main()"

log = logging.getLogger(__name__)


class DispatchingBroker(Protocol):
    """A broker that can hand dispatch over and take it back."""

    def hand_over_dispatch(self) -> None: ...
    def take_back_dispatch(self) -> bool: ...


class DispatchProcess:
    """Keeps `orbitlog pipeline dispatch` running for a broker."""

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
        """Start the process and supervise it; the broker must already have offered dispatch."""
        process = await self._begin()
        self._watching = asyncio.create_task(self._watch(process))
        self._watching.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Stop the process, which first hands dispatch back."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._process is not None:
            await end_process(self._process, _STOP_S)  # it first hands dispatch back

    async def _begin(self) -> Process:
        with self._open_output() as output:
            self._output_start = output.seek(0, os.SEEK_END)
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=DEVNULL, stdout=output, stderr=output
            )
        return self._process

    def _open_output(self) -> BinaryIO:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.fdopen(open_regular(self._output_path, flags), "ab")

    async def _watch(self, process: Process) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began_s = loop.time()
            status = await process.wait()
            await self._take_back(status)
            if status == 0:
                log.warning(
                    "Spark dispatch has exited with status 0 and is not restarted; restart the broker to start it"
                )
                return
            if loop.time() - began_s >= _STABLE_S:
                failures = 0
            if failures == len(self._pauses_s):
                log.error(
                    "Spark dispatch has ended %d times in a row and is not restarted; the broker dispatches."
                    " Fix the error in %s, then restart the broker",
                    failures + 1,
                    self._output_path,
                )
                return
            log.warning(
                "restarting Spark dispatch in %g s (attempt %d of %d)",
                self._pauses_s[failures],
                failures + 1,
                len(self._pauses_s),
            )
            await asyncio.sleep(self._pauses_s[failures])
            failures += 1
            process = await self._begin()
            await self._hand_over_on_request(process)

    async def _hand_over_on_request(self, process: Process) -> None:
        """Hand dispatch over as soon as the process requests it."""
        while process.returncode is None:
            if self._has_requested():
                try:
                    self._broker.hand_over_dispatch()
                except StoreError as error:
                    log.error("could not hand dispatch over to Spark, retrying: %s", error)
                else:
                    log.info("Spark is ready; handing dispatch over")
                    return
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _POLL_S)

    def _has_requested(self) -> bool:
        with self._output_path.open("rb") as output:
            output.seek(self._output_start)
            return any(line.startswith(_REQUEST) for line in output.read(_OUTPUT_MAX).splitlines())

    async def _take_back(self, status: int) -> None:
        log.error(
            "Spark dispatch has ended (%s); the broker takes dispatch back. See %s",
            f"killed by signal {-status}" if status < 0 else f"exit status {status}",
            self._output_path,
        )
        while True:
            try:
                if self._broker.take_back_dispatch():
                    break
            except StoreError as error:
                log.error("could not take dispatch back, retrying: %s", error)
            await asyncio.sleep(_TAKE_BACK_S)
        log.warning("the broker has taken dispatch back")


def _log_failure(watching: asyncio.Task[None]) -> None:
    if not watching.cancelled() and (error := watching.exception()) is not None:
        log.error("could not restart Spark dispatch; the broker dispatches: %s", error)
