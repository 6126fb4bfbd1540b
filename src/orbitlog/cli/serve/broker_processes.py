"""Broker processes: several brokers on one machine as one cluster, supervised by the process of the name server.

One Python process uses one core; further cores serve further brokers. Clients see a normal cluster: a topic has queues
on each broker, and producers send to them in turn.
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

PORT_STEP = 10  # a broker also listens on the VIP port, two below its own, and Java's on the HA port, one above
_PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
_STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BrokerInstance:
    """Name, store and ports (0: any free port) of one of several brokers; None: no metrics."""

    name: str
    root: Path
    port: int
    metrics_port: int | None = None
    assignments: tuple[str, ...] = ()
    """Further settings of this one."""


def plan_brokers(count: int, name: str, root: Path, port: int, metrics_port: int | None = None) -> list[BrokerInstance]:
    """Return the instances of a cluster: broker-a, broker-b and so on, each with a directory below `root`."""
    start = name.removesuffix("-a")
    return [
        BrokerInstance(
            f"{start}-{letter}",
            root / f"{start}-{letter}",
            port + PORT_STEP * number if port else 0,
            metrics_port + PORT_STEP * number if metrics_port else metrics_port,
        )
        for number, letter in enumerate(string.ascii_lowercase[:count])
    ]


def plan_replicas(
    count: int, name: str, root: Path, port: int, metrics_port: int | None = None
) -> list[BrokerInstance]:
    """Return the members of one replica group, each with a directory below `root`; the later ones have other ports."""
    return [
        BrokerInstance(
            f"{name}-{member}",
            root / f"{name}-{member}",
            port + PORT_STEP * (member - 1) if port else 0,
            metrics_port + PORT_STEP * (member - 1) if metrics_port else metrics_port,
            (f"brokerName={name}", f"replicaMemberId={member}"),
        )
        for member in range(1, count + 1)
    ]


class BrokerProcesses:
    """Broker processes that stop when this process does, however it ends."""

    def __init__(self, instances: Sequence[BrokerInstance], words: Sequence[str]) -> None:
        self._instances = instances
        self._words = words
        self._processes: dict[str, Process] = {}
        self._watches: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self.ended: dict[str, int] = {}
        """Exit codes of brokers that ended unexpectedly, by name."""

    async def start(self) -> list[dict[str, str]]:
        """Start all brokers at once; return the fields of their ready lines when all are ready."""
        for instance in self._instances:
            self._processes[instance.name] = await self._start(instance)
        facts = await asyncio.gather(*(self._ready(instance.name) for instance in self._instances))
        self._watches = [asyncio.create_task(self._watch(instance)) for instance in self._instances]
        return facts

    async def _start(self, instance: BrokerInstance) -> Process:
        words: tuple[str, ...] = ("broker", "--store", str(instance.root), "--port", str(instance.port), "--json")
        if instance.metrics_port is not None:
            words = (*words, "--metrics-port", str(instance.metrics_port))
        settings = (f"brokerName={instance.name}", *instance.assignments)
        command = (*_PROGRAM, *words, *self._words, *(word for setting in settings for word in ("--set", setting)))
        # The pipe closes when this process ends, even if it is killed; the broker then stops (ENDS_WITH_INPUT).
        return await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, env={**os.environ, ENDS_WITH_INPUT: "1"}
        )

    async def _ready(self, name: str) -> dict[str, str]:
        output = self._processes[name].stdout
        assert output is not None
        line = await output.readline()
        if not line:
            raise OrbitlogError(f"{name} did not start")
        ready = json.loads(line)
        return {key: str(ready[key]) for key in ("broker", "store", "log")}

    async def _watch(self, instance: BrokerInstance) -> None:
        """Log a broker that ends unexpectedly; stop this process after the last one."""
        code = await self._processes[instance.name].wait()
        if self._is_stopping:
            return
        self.ended[instance.name] = code
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        left = len(self._instances) - len(self.ended)
        log.error(
            "%s %s (its log is in %s); %d of %d brokers are running",
            instance.name,
            how,
            instance.root,
            left,
            len(self._instances),
        )
        if not left:
            signal.raise_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Stop all brokers and wait for their exit."""
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
