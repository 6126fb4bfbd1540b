"""Cost of metrics: sends with a scrape each second beside sends without metrics, start-up and idle memory.

Each server is a process of its own, and so is the scraper: in a thread of the sender it would take the interpreter
from the sends. Rounds alternate, so that a change of the machine's speed meets both kinds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks.measure import Reading, Report, cpu_seconds
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.client.connection.connect import connect
from orbitlog.formats.tables.topic_config import TopicConfig

GROUP = "cost of metrics"
_PROGRAM = Path(sys.executable).with_name("orbitlog")
_ROUNDS = 9
_IN_FLIGHT = 64
_BODY = b"x" * 128
_OFF: tuple[str, ...] = ()
_ON = ("--metrics-port", "0")
_RATIO_MIN = 0.98
_SCRAPE_LIMIT_S = 1.0


class _Server(NamedTuple):
    pid: int
    cluster: str
    metrics: str
    start_seconds: float
    idle_mib: float


@contextmanager
def _server(root: Path, options: tuple[str, ...]) -> Iterator[_Server]:
    """Run name server and broker; yield their addresses, the time to the ready line, and the memory a second later."""
    command = [str(_PROGRAM), "up", "--store", str(root), "--name-server-port", "0", "--broker-port", "0", "--json"]
    started = time.perf_counter()
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            seconds = time.perf_counter() - started
            time.sleep(2)  # until the modules are loaded that a start does not wait for
            memory = _private_mib(process.pid)
            yield _Server(process.pid, ready["name-server"], ready.get("metrics", ""), seconds, memory)
        finally:
            process.terminate()


def _private_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [found] = [line for line in lines if line.startswith("RssAnon")]
    return int(found.split()[1]) / 1024


@contextmanager
def _scraped(address: str) -> Iterator[None]:
    """Scrape once a second in a process of its own, if there is an address."""
    if not address:
        yield
        return
    with subprocess.Popen([sys.executable, "-m", "benchmarks.metrics_scraper", address]) as scraper:
        try:
            yield
            if scraper.poll() is not None:
                raise RuntimeError(f"the scraper of {address} ended with exit code {scraper.returncode}")
        finally:
            scraper.terminate()


class _Sends(NamedTuple):
    per_second: float
    server_cpu_us: float
    """CPU time of name server and broker for one send."""


async def _sends(server: _Server, seconds: float) -> _Sends:
    async with connect(f"rocketmq://{server.cluster}") as mq:
        await mq.send("Measured", _BODY)
        count, until, cpu_s = 0, time.perf_counter() + seconds, cpu_seconds(server.pid)

        async def send() -> None:
            nonlocal count
            while time.perf_counter() < until:
                await mq.send("Measured", _BODY)
                count += 1

        await asyncio.gather(*(send() for _ in range(_IN_FLIGHT)))
        return _Sends(count / seconds, (cpu_seconds(server.pid) - cpu_s) / count * 1e6)


def run_many(report: Report, *, topics: int, groups: int) -> None:
    """Measure a scrape of a broker with many topics, each consumed by many groups."""
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        uvloop.run(_scrape_many(report, Path(directory, "store"), topics, groups))


async def _scrape_many(report: Report, root: Path, topics: int, groups: int) -> None:
    settings = {"listenPort": "0", "metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    broker = Broker(BrokerSettings(settings), root)
    state = broker.state
    for number in range(topics):
        state.topics.put(TopicConfig(f"Topic{number}", 1, 1))
        for group in range(groups):
            state.offsets.commit(f"Topic{number}", f"group{group}", 0, 0)
    await broker.start()
    gc.collect()
    gc.freeze()
    assert broker.meters is not None and broker.meters.address is not None
    host, port = broker.meters.address
    name = f"scrape of {topics:,} topics x {groups} groups"
    late_s = 0.0

    async def watch() -> None:
        nonlocal late_s
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            late_s = max(late_s, time.perf_counter() - before - 0.001)

    watching = asyncio.create_task(watch())
    seconds, size = [], 0
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        size = len(await asyncio.to_thread(_page, f"http://{host}:{port}/metrics"))
        seconds.append(time.perf_counter() - started)
    watching.cancel()
    report.read(Reading(GROUP, name, _median(seconds), "s", _SCRAPE_LIMIT_S))
    report.read(Reading(GROUP, f"{name}: longest delay of another task", late_s * 1000, "ms"))
    report.read(Reading(GROUP, f"{name}: text", size / 1e6, "MB"))
    await broker.stop()


def _page(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as response:  # noqa: S310 - of the server started here
        found: bytes = response.read()
    return found


def run(report: Report, *, seconds: float) -> None:
    """Measure rounds of this length."""
    sends: dict[tuple[str, ...], list[_Sends]] = {_OFF: [], _ON: []}
    starts: dict[tuple[str, ...], list[float]] = {_OFF: [], _ON: []}
    memory: dict[tuple[str, ...], list[float]] = {_OFF: [], _ON: []}
    for number in range(_ROUNDS):
        for options in (_OFF, _ON) if number % 2 else (_ON, _OFF):
            with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
                with _server(Path(directory, "store"), options) as server, _scraped(server.metrics):
                    starts[options].append(server.start_seconds)
                    memory[options].append(server.idle_mib)
                    sends[options].append(asyncio.run(_sends(server, seconds)))
    rates = {options: [each.per_second for each in found] for options, found in sends.items()}
    cpu = {options: [each.server_cpu_us for each in found] for options, found in sends.items()}
    for options, name in ((_OFF, "without metrics"), (_ON, "with metrics, scraped each second")):
        report.read(Reading(GROUP, f"sends, {_IN_FLIGHT} in flight, 128 B: {name}", _median(rates[options]), "1/s"))
        report.read(Reading(GROUP, f"CPU of the server for a send: {name}", _median(cpu[options]), "µs"))
        report.read(Reading(GROUP, f"start to the ready line: {name}", _median(starts[options]), "s"))
        report.read(Reading(GROUP, f"idle memory (RssAnon): {name}", _median(memory[options]), "MiB"))
    # Neighbours in time are compared: the machine's speed may change within a run.
    ratio = _median([on / off for on, off in zip(rates[_ON], rates[_OFF], strict=True)])
    report.read(Reading(GROUP, f"sends with metrics / without, wanted {_RATIO_MIN}", ratio, "x"))


def _median(values: list[float]) -> float:
    return statistics.median(values)
