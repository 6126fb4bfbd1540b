"""Several brokers on one machine as one cluster: a process each, and the name server beside which they are started.

One Python process works on one core; what a machine has more of serves another broker. Clients see a cluster like any
other: a topic has queues on each of them, and senders go round.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import string
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orbitlog.cli.serve.serving import ENDS_WITH_INPUT
from orbitlog.errors import OrbitlogError

log = logging.getLogger(__name__)

PORT_STEP = 10  # a broker listens two ports below its own, too, and Java's next to it
_PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BrokerInstance:
    """Where one of several brokers is: its name, its store, its port (0 for a free one)."""

    name: str
    root: Path
    port: int


def plan_brokers(count: int, name: str, root: Path, port: int) -> list[BrokerInstance]:
    """Return the places of brokers: broker-a, broker-b and so on, each with a directory below `root`."""
    start = name.removesuffix("-a")
    return [
        BrokerInstance(f"{start}-{letter}", root / f"{start}-{letter}", port + PORT_STEP * number if port else 0)
        for number, letter in enumerate(string.ascii_lowercase[:count])
    ]


class BrokerProcesses:
    """Brokers in processes of their own; all stop when this one does, whatever ends it."""

    def __init__(self, places: Sequence[BrokerInstance], words: Sequence[str]) -> None:
        self._places = places
        self._words = words
        self._processes: dict[str, Process] = {}
        self._watches: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self.ended: dict[str, int] = {}
        """Brokers that ended by themselves, with their exit codes."""

    async def start(self) -> list[dict[str, str]]:
        """Start all at once; returns what their ready lines say when all are ready."""
        for place in self._places:
            self._processes[place.name] = await self._start(place)
        facts = await asyncio.gather(*(self._ready(place.name) for place in self._places))
        self._watches = [asyncio.create_task(self._watch(place)) for place in self._places]
        return facts

    async def _start(self, place: BrokerInstance) -> Process:
        words = ("broker", "--store", str(place.root), "--port", str(place.port), "--json")
        command = (*_PROGRAM, *words, *self._words, "--set", f"brokerName={place.name}")
        # Its input ends with this process, however that ends.
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, env={**os.environ, ENDS_WITH_INPUT: "1"}
        )

    async def _ready(self, name: str) -> dict[str, str]:
        output = self._processes[name].stdout
        assert output is not None
        line = await output.readline()
        if not line:
            raise OrbitlogError(f"{name} did not start")
        told = json.loads(line)
        return {key: str(told[key]) for key in ("broker", "store", "log")}

    async def _watch(self, place: BrokerInstance) -> None:
        """Tell when a broker ends that was not told to; when the last has, there is nothing left to serve."""
        code = await self._processes[place.name].wait()
        if self._is_stopping:
            return
        self.ended[place.name] = code
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        left = len(self._places) - len(self.ended)
        log.error("%s %s (its log is in %s); %d of %d go on", place.name, how, place.root, left, len(self._places))
        if not left:
            signal.raise_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Stop all of them, and wait until they have."""
        self._is_stopping = True
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            process.terminate()
        if running:
            _, late = await asyncio.wait([asyncio.create_task(p.wait()) for p in running], timeout=_STOP_SECONDS)
            for process in running if late else ():
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        await asyncio.gather(*self._watches)
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
