"""Console process of `orbitlog up --console-port`: a child process, so that the broker stays small."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence

from orbitlog.cli.serve.child_processes import end_process
from orbitlog.cli.serve.serving import ENDS_WITH_INPUT, Served
from orbitlog.errors import OrbitlogError

_PROGRAM = (sys.executable, "-c", "from orbitlog.cli.main import main; main()")
_STOP_SECONDS = 10.0
_HOST = "127.0.0.1"


class ConsoleProcess:
    """A console for one cluster, which ends with this process, however that ends."""

    def __init__(self, host: str, port: int, name_servers: str) -> None:
        self._words = ("console", "--host", host, "--port", str(port), "-n", name_servers, "--json")
        self._process: Process | None = None

    async def start(self) -> dict[str, str]:
        """Start the console; return its fields of the ready line."""
        # The pipe closes when this process ends, even if it is killed; the console then stops (ENDS_WITH_INPUT).
        self._process = await asyncio.create_subprocess_exec(
            *_PROGRAM, *self._words, stdin=PIPE, stdout=PIPE, env={**os.environ, ENDS_WITH_INPUT: "1"}
        )
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise OrbitlogError("the console did not start; the reason is printed above")
        facts: dict[str, str] = json.loads(line)
        return {name: facts[name] for name in ("console", "sign-in") if name in facts}

    async def stop(self) -> None:
        process = self._process
        if process is None:
            return
        await end_process(process, _STOP_SECONDS)
        if process.stdin is not None:
            process.stdin.close()


class WithConsole:
    """Servers of this process, and a console of their cluster; the console is on loopback and reads only."""

    def __init__(self, served: Served, port: int) -> None:
        self._served = served
        self._port = port
        self._console: ConsoleProcess | None = None

    async def start(self) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
        facts = await self._served.start()
        fields = [facts] if isinstance(facts, Mapping) else list(facts)
        self._console = ConsoleProcess(_HOST, self._port, fields[0]["name-server"])
        console = await self._console.start()
        with_console = [{**fields[0], **console}, *fields[1:]]
        return with_console[0] if isinstance(facts, Mapping) else with_console

    async def stop(self) -> None:
        if self._console is not None:
            await self._console.stop()
        await self._served.stop()
