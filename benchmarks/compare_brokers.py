"""`python -m benchmarks.compare_brokers`: growth of throughput with the number of brokers on one machine.

python -m benchmarks.compare_brokers [--quick] [--rounds N] [--brokers N]... [--out FILE]

Each number of brokers is a separate cluster, started by `orbitlog up --brokers N`, under the official Java client.
Rounds alternate between the clusters; each figure is the median of its rounds. The client takes cores from the brokers:
full growth needs as many cores as brokers and clients together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.broker_pairs import Broker, Load, _resident_kb, client_of
from benchmarks.measure import circumstances
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.admin_headers import CreateTopicRequest
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

TOPIC = "Cluster"
QUEUES = 8


def jobs(scale: float) -> dict[str, str]:
    def count(messages: int) -> int:
        return max(640, int(messages * scale) // 32 * 32)

    return {
        "sync send, 64 threads, 128 B": f"sync {TOPIC} 64 128 {count(160_000)}",
        "async send, 1,000 in flight, 128 B": f"async {TOPIC} 1000 128 {count(300_000)}",
        "batches of 32, 8 threads, 128 B": f"batch {TOPIC} 8 128 {count(640_000)} 32",
    }


class Cluster(Broker):
    """Brokers of one machine, and the name server whose process started them."""

    addresses: tuple[str, ...] = ()

    @property
    def _pids(self) -> list[int]:
        pid = self.processes[0].pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]

    def cpu_seconds(self) -> float:
        return sum(map(self._pids))

    def resident_mb(self) -> float:
        return sum(map(_resident_kb, self._pids)) / 1024


def start_cluster(number: int, directory: Path) -> Cluster:
    directory.mkdir(parents=True)
    program = Path(sys.executable).with_name("orbitlog")
    words = ["up", "--brokers", str(number), "--store", str(directory / "store"), "--json"]
    with (directory / "stderr.log").open("ab") as errors:
        process = subprocess.Popen(
            [program, *words, "--name-server-port", "0", "--broker-port", "0"], stdout=subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    ready = [json.loads(process.stdout.readline()) for _ in range(number)]
    cluster = Cluster("orbitlog", ready[0]["name-server"], ready[0]["broker"], [process])
    cluster.addresses = tuple(told["broker"] for told in ready)
    return cluster


async def make_topic(addresses: tuple[str, ...]) -> None:
    """Make the topic on every broker, with the same queues."""
    client = RemotingClient()
    header = CreateTopicRequest(
        topic=TOPIC,
        default_topic="TBW102",
        read_queue_count=QUEUES,
        write_queue_count=QUEUES,
        permission=6,
        filter_type="SINGLE_TAG",
    )
    try:
        for address in addresses:
            request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=header.to_ext_fields())
            answer = await client.invoke(address, request, 30)
            if answer.code != ResponseCode.SUCCESS:
                raise RuntimeError(f"{address}: {answer.remark}")
    finally:
        await client.close()


def measure(numbers: list[int], scale: float, rounds: int, directory: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {name: {number: [] for number in numbers} for name in jobs(scale)}
    cpu: dict[str, Any] = {name: {number: [] for number in numbers} for name in figures}
    with ExitStack() as stack:
        clusters: dict[int, tuple[Cluster, Load]] = {}
        for number in numbers:
            home = directory / str(number)
            cluster = start_cluster(number, home)
            stack.callback(cluster.stop)
            asyncio.run(make_topic(cluster.addresses))
            clusters[number] = cluster, stack.enter_context(client_of(cluster, home))
        memory = {number: broker.resident_mb() for number, (broker, _) in clusters.items()}
        for name, job in jobs(scale).items():
            for round_number in range(rounds + 1):
                for number in numbers if round_number % 2 else numbers[::-1]:
                    broker, load = clusters[number]
                    before = broker.cpu_seconds()
                    answer = load.run(job)
                    if answer["failed"]:
                        raise RuntimeError(f"{answer['failed']:.0f} failed in {name} with {number} brokers")
                    if round_number:
                        figures[name][number].append(answer["messages"] / answer["seconds"])
                        cpu[name][number].append((broker.cpu_seconds() - before) / answer["messages"] * 1e6)
            print(told(name, figures[name], cpu[name]), flush=True)
    print(f"  {'memory of its own, idle':40}" + "".join(f"{memory[number]:9,.0f} MB (x{number})" for number in numbers))
    return {"rates": figures, "cpuMicros": cpu, "idleMb": memory}


def told(name: str, rates: dict[int, list[float]], cpu: dict[int, list[float]]) -> str:
    parts = [f"  {name:40}"]
    first = statistics.median(next(iter(rates.values())))
    for number, values in rates.items():
        rate = statistics.median(values)
        spent = statistics.median(cpu[number])
        parts.append(f"{rate:>9,.0f} msg/s (x{number}: {rate / first:4.2f}, {spent:4.1f} us CPU)")
    return " ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="One, two or more of our brokers, side by side.")
    parser.add_argument("--quick", action="store_true", help="few messages: shows that it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (default 3)")
    parser.add_argument("--brokers", type=int, action="append", help="a number of brokers (default 1 and 2)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/brokers.json"), help="JSON to write")
    arguments = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in circumstances().items()))
    with tempfile.TemporaryDirectory(prefix="orbitlog-brokers-") as directory:
        scale = 0.02 if arguments.quick else 1.0
        results = measure(arguments.brokers or [1, 2], scale, arguments.rounds, Path(directory))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({**circumstances(), **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
