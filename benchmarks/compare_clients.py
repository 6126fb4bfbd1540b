"""`python -m benchmarks.compare_clients`: the Python client beside others, at one broker, in one run.

python -m benchmarks.compare_clients [--broker orbitlog|apache] [--quick] [--rounds N] [--out FILE]

The others are the official Java client and two other Python clients if they load: the C++ client's wheel, and the gRPC
client at Apache's proxy. Each client is one process; rounds alternate between them, and each row is the median of its
rounds. CPU is that of the client process alone, and so shows the cost of the client also if the broker limits the rate.
A row is empty for a client without that function.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.broker_pairs import VERSION, Broker, JobFailed, Load, client_of, running_load
from benchmarks.compare import STARTERS
from benchmarks.measure import circumstances, cpu_seconds
from benchmarks.other_python_clients import cpp_client_of, grpc_client_of
from tests.interop.harness.packages import NotAvailable

TOPIC = "Clients"
OTHERS = {"cpp": cpp_client_of, "grpc": grpc_client_of}
_COUNT_MAX = {"cpp": 20_000, "grpc": 1_000}


def rows(scale: float) -> dict[str, str]:
    def count(messages: int) -> int:
        return max(640, int(messages * scale) // 32 * 32)

    return {
        "send, one at a time": f"sync {TOPIC} 1 128 {count(10_000)}",
        "send, 100 in flight": f"async {TOPIC} 100 128 {count(60_000)}",
        "send, 100 in flight, 1 KB": f"async {TOPIC} 100 1024 {count(60_000)}",
        "batches of 32, 8 at a time": f"batch {TOPIC} 8 128 {count(320_000)} 32",
        "backlog consumed": f"consume {TOPIC} {count(200_000)}",
    }


@contextmanager
def python_client_of(broker: Broker, directory: Path, loop: str = "uvloop") -> Iterator[Load]:
    command = [sys.executable, "-m", "benchmarks.python_load", broker.name_server, broker.address, loop]
    with running_load(command, directory / "python.log") as load:
        yield load


def fewer(client: str, job: str) -> str:
    """Return the job with as many messages as a slow client can do in a few seconds."""
    words = job.split(" ")
    at = 2 if words[0] == "consume" else 4
    if client in _COUNT_MAX:
        words[at] = str(min(int(words[at]), _COUNT_MAX[client]))
    return " ".join(words)


def measure(load: Load, job: str) -> dict[str, float] | None:
    before = cpu_seconds(load.process.pid)
    answer = load.run(job)
    if not answer["messages"]:
        return None
    spent = cpu_seconds(load.process.pid) - before
    if answer["failed"]:
        raise RuntimeError(f"{answer['failed']:.0f} failed in {job}")
    return {
        "rate": answer["messages"] / answer["seconds"],
        "cpuMicros": spent / answer["messages"] * 1e6,
        "blockedMs": answer.get("blockedMs", 0.0),
    }


def compare(broker_kind: str, scale: float, rounds: int, directory: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with ExitStack() as stack:
        broker = STARTERS[broker_kind](directory, ())
        stack.callback(broker.stop)
        clients = {
            "java": stack.enter_context(client_of(broker, directory)),
            "python": stack.enter_context(python_client_of(broker, directory)),
        }
        clients["java"].run(f"topics {TOPIC} 1 8")
        for client, start in OTHERS.items():
            try:
                clients[client] = stack.enter_context(start(broker, directory))
            except (NotAvailable, RuntimeError, OSError) as reason:
                print(f"  without {client}: {reason}", flush=True)
        for name, job in rows(scale).items():
            measured: dict[str, list[dict[str, float]]] = {client: [] for client in clients}
            for number in range(rounds + 1):
                for client in list(clients) if number % 2 else list(clients)[::-1]:
                    try:
                        figures = measure(clients[client], fewer(client, job))
                    except (JobFailed, OSError) as reason:
                        print(f"  {name}, {client}: {reason}", flush=True)
                        continue
                    if number and figures is not None:
                        measured[client].append(figures)
            results[name] = {client: figures for client, figures in measured.items() if figures}
            print(told(name, results[name]), flush=True)
    return results


def told(name: str, measured: dict[str, list[dict[str, float]]]) -> str:
    parts = [f"  {name:28}"]
    rates = {}
    for client, figures in measured.items():
        rates[client] = statistics.median(each["rate"] for each in figures)
        cpu = statistics.median(each["cpuMicros"] for each in figures)
        parts.append(f"{client} {rates[client]:>9,.0f} msg/s ({cpu:5.1f} us CPU)")
    parts.append(f"{rates['python'] / rates['java']:5.2f}x")
    parts.append(f"loop busy {max(each['blockedMs'] for each in measured['python']):.0f} ms at most")
    return "  ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Clients side by side at one broker.")
    parser.add_argument("--broker", choices=sorted(STARTERS), default="orbitlog")
    parser.add_argument("--quick", action="store_true", help="few messages: shows that it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each row (default 3)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/clients.json"), help="JSON to write")
    arguments = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in circumstances().items()))
    with tempfile.TemporaryDirectory(prefix="orbitlog-clients-") as directory:
        results = compare(arguments.broker, 0.02 if arguments.quick else 1.0, arguments.rounds, Path(directory))
    record = {"apacheVersion": VERSION, "broker": arguments.broker, **circumstances(), "rows": results}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
