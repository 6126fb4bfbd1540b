"""`python -m benchmarks.compare_spark`: Spark's network source and sink beside the Java client, at one broker.

python -m benchmarks.compare_spark [--broker orbitlog|apache] [--quick] [--rounds N] [--out FILE]

Source: the topic is read by a session at local[2], and by one push consumer of Java, which pulls all queues at once.
Sink: a DataFrame of two partitions, one request in flight each, beside two threads of Java's batch producer, with the
same messages: one body, one tag, a key each. Spark's time includes planning and commit. Rounds alternate; each row is
the median of its rounds. Then the latency of a stream from topic to topic, from the store time of a message to that of
its copy, and the time of a small query as a command: with a Spark of its own, and at `orbitlog pipeline serve`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.broker_pairs import VERSION, Broker, Load, client_of, running_load
from benchmarks.compare import STARTERS
from benchmarks.measure import circumstances
from benchmarks.spark_load import MASTER

SOURCE, SINK, COPIED, COPIES = "Source", "Sink", "Copied", "Copies"
QUEUES, THREADS, BATCH, BODY_BYTES = 8, 2, 32, 1024
SHOWN, _WARM_UP, _QUERIES = 10, 5, 9


@contextmanager
def spark_client_of(broker: Broker, directory: Path) -> Iterator[Load]:
    command = [sys.executable, "-m", "benchmarks.spark_load", broker.name_server, broker.address]
    with running_load(command, directory / "spark.log") as load:
        yield load


def compare(broker_kind: str, scale: float, rounds: int, directory: Path) -> dict[str, Any]:
    messages = max(640, int(1_000_000 * scale) // BATCH * BATCH)
    results: dict[str, Any] = {}
    broker = STARTERS[broker_kind](directory, ())
    try:
        with client_of(broker, directory) as java, spark_client_of(broker, directory) as spark:
            for topic in (SOURCE, SINK, COPIED, COPIES):
                java.run(f"topics {topic} 1 {QUEUES}")
            java.run(f"batch {SOURCE} 8 {BODY_BYTES} {messages} {BATCH}")
            jobs = {
                "source, 1 KB": f"consume {SOURCE} {messages}",
                "sink, 1 KB, batches of 32": f"batch {SINK} {THREADS} {BODY_BYTES} {messages // 2} {BATCH}",
            }
            for name, job in jobs.items():
                results[name] = alternate({"java": java, "spark": spark}, job, rounds)
                print(summary(name, results[name]), flush=True)
            copied = max(200, int(10_000 * scale))
            results["topic to topic"] = spark.run(f"copy {COPIED} {COPIES} {BODY_BYTES} {copied} 200")
            latency = results["topic to topic"]
            print(f"  topic to topic, 200 msg/s: p50 {latency['p50Ms']:.0f} ms, p99 {latency['p99Ms']:.0f} ms")
        results["small query"] = small_query(broker, directory)
    finally:
        broker.stop()
    return results


def small_query(broker: Broker, directory: Path) -> dict[str, float]:
    """Time the command that shows ten messages of a topic; the first queries of the server warm its JVM up."""
    program = [sys.executable, "-c", "from orbitlog.cli.main import main; main()", "pipeline"]
    query = [*program, "query", "--name-server", broker.name_server, "--topic", COPIED, "--limit", str(SHOWN), "--json"]
    path = directory / "serve.sock"
    seconds = {"ownSpark": seconds_of_query([*query, "--master", MASTER])}
    server = subprocess.Popen([*program, "serve", "--master", MASTER, "--socket", str(path)], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        server.stdout.readline()
        times = [seconds_of_query([*query, "--master", f"unix:{path}"]) for _ in range(_WARM_UP + _QUERIES)]
        seconds |= {
            "first": times[0],
            "atServer": statistics.median(times[_WARM_UP:]),
            "slowest": max(times[_WARM_UP:]),
        }
    finally:
        server.terminate()
        server.communicate()
    shown = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    print(f"  small query of ten messages: {shown}", flush=True)
    return seconds


def seconds_of_query(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    assert done.stdout.count(b"\n") == SHOWN
    return time.perf_counter() - began


def alternate(clients: dict[str, Load], job: str, rounds: int) -> dict[str, list[float]]:
    """Return the rates of each client in MB/s of bodies; the first round of each is not counted."""
    rates: dict[str, list[float]] = {name: [] for name in clients}
    for number in range(rounds + 1):
        for name in list(clients) if number % 2 else list(clients)[::-1]:
            answer = clients[name].run(job)
            if answer["failed"]:
                raise RuntimeError(f"{answer['failed']:.0f} failed in {job} of {name}")
            if number:
                rates[name].append(answer["messages"] * BODY_BYTES / answer["seconds"] / 1e6)
    return rates


def summary(name: str, rates: dict[str, list[float]]) -> str:
    medians = {client: statistics.median(values) for client, values in rates.items()}
    shown = "  ".join(f"{client} {median:7.1f} MB/s" for client, median in medians.items())
    return f"  {name:28}{shown}  {medians['spark'] / medians['java']:5.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description="Spark's source and sink beside Java's client.")
    parser.add_argument("--broker", choices=sorted(STARTERS), default="orbitlog")
    parser.add_argument("--quick", action="store_true", help="few messages: shows that it runs, not how fast")
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds of each row (default 3)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/spark.json"), help="JSON to write")
    arguments = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in circumstances().items()))
    with tempfile.TemporaryDirectory(prefix="orbitlog-spark-") as directory:
        results = compare(arguments.broker, 0.002 if arguments.quick else 1.0, arguments.rounds, Path(directory))
    record = {"apacheVersion": VERSION, "broker": arguments.broker, **circumstances(), "rows": results}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
