"""Replication beside Apache's pairs: sends under the official client, replication delay, catch-up.

Orbitlog and Apache run at the same time and take turns, round by round, so that other load meets both. Each figure is
the median of its rounds. An acknowledgement needs every slave in the rows `sync` and `sync-flush`, of both brokers.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.broker_pairs import Load, client_of
from benchmarks.measure import Reading, Report, percentiles
from benchmarks.replica_sets import APACHE, ORBITLOG, ReplicaSet, wait_until
from orbitlog.errors import OrbitlogError
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

KINDS = (ORBITLOG, APACHE)
TOPIC = "Replicated"
ROUNDS = 3
_THREADS = 64
_BODY_BYTES = 128
# Orbitlog's sync-replicated sends must be 1.3 times as many, or more.
_APACHE_SHARE_MAX = 1 / 1.3
_MODES = {
    "async": {"brokerRole": "ASYNC_MASTER"},
    "sync": {"brokerRole": "SYNC_MASTER"},
    "sync-flush": {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"},
}


def run(report: Report, *, sends: int, probes: int, catch_up_bytes: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitlog-replication-") as temporary:
        directory = Path(temporary)
        _measure_catch_up(report, directory / "catch-up", catch_up_bytes)
        for slaves in (1, 2):
            for mode in _MODES:
                _measure_mode(report, directory / f"{mode}-{slaves}", mode, slaves, sends, probes)


@contextmanager
def _running(directory: Path, settings: dict[str, object], slaves: int) -> Iterator[dict[str, tuple[ReplicaSet, Load]]]:
    """Yield a running set of each kind, with the official client, after the topic exists and slaves follow."""
    with ExitStack() as stack:
        sets: dict[str, tuple[ReplicaSet, Load]] = {}
        for kind in KINDS:
            replicas = ReplicaSet(kind, directory / kind, settings, slaves)
            stack.callback(replicas.stop)
            replicas.start()
            load = stack.enter_context(client_of(replicas.as_broker(), directory / kind))
            load.run(f"topics {TOPIC} 1 8")
            wait_until(lambda replicas=replicas: asyncio.run(_is_sent(replicas)), "a send is acknowledged")
            replicas.wait_for_slaves()
            sets[kind] = replicas, load
        yield sets


def _measure_mode(report: Report, directory: Path, mode: str, slaves: int, sends: int, probes: int) -> None:
    group = f"Replication, {mode}, {slaves} slave{'s' * (slaves > 1)}, {_THREADS} threads, {_BODY_BYTES} B bodies"
    settings: dict[str, object] = {**_MODES[mode], "inSyncReplicas": slaves + 1}
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    p99s: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with _running(directory, settings, slaves) as sets:
        for round_number in range(ROUNDS + 1):
            for kind in KINDS if round_number % 2 else KINDS[::-1]:
                replicas, load = sets[kind]
                before_s = replicas.slave_cpu_seconds()
                answer = load.run(f"sync {TOPIC} {_THREADS} {_BODY_BYTES} {sends}")
                if answer["failed"]:
                    raise RuntimeError(f"{answer['failed']:.0f} sends of {group} failed at {kind}")
                replicas.wait_for_slaves()
                if round_number:  # the first one warms up
                    rates[kind].append(answer["messages"] / answer["seconds"])
                    p99s[kind].append(answer["p99"])
                    cpu[kind].append((replicas.slave_cpu_seconds() - before_s) / slaves / answer["messages"] * 1e6)
        for kind in KINDS:
            report.read(Reading(group, f"{kind}: sends per second", statistics.median(rates[kind]), "/s"))
            report.read(Reading(group, f"{kind}: send, p99", statistics.median(p99s[kind]), "ms"))
            report.read(Reading(group, f"{kind}: CPU of a slave for a message", statistics.median(cpu[kind]), "µs"))
        share = statistics.median(rates[APACHE]) / statistics.median(rates[ORBITLOG])
        limit = _APACHE_SHARE_MAX if mode == "sync" else None
        report.read(Reading(group, "sends per second, apache / orbitlog", share, "", limit))
        for kind in KINDS:
            delays_ms = asyncio.run(_delays_ms(sets[kind][0], probes))
            p50, p99 = percentiles(delays_ms)
            report.read(Reading(group, f"{kind}: replication delay, p50", p50, "ms"))
            report.read(Reading(group, f"{kind}: replication delay, p99", p99, "ms"))


async def _delays_ms(replicas: ReplicaSet, probes: int) -> list[float]:
    """Return the times from before a send until the last slave can serve the message, one message at a time."""
    client = RemotingClient()
    delays = []
    try:
        for number in range(probes):
            await asyncio.sleep(0.01 + number % 7 / 1000)  # not in step with timers of a broker
            started = time.perf_counter()
            queue_offset = await _send(client, replicas.addresses[0])
            for broker_id in replicas.slave_ids:
                while await _max_offset(client, replicas.addresses[broker_id]) <= queue_offset:
                    if time.perf_counter() - started > 10:
                        raise RuntimeError(f"slave {broker_id} of {replicas.kind} lacks a message after 10 s")
            delays.append((time.perf_counter() - started) * 1000)
    finally:
        await client.close()
    return delays


async def _is_sent(replicas: ReplicaSet) -> bool:
    """Return whether the master acknowledges a send: not before its slaves follow, in sync mode."""
    client = RemotingClient()
    try:
        await _send(client, replicas.addresses[0])
    except (RuntimeError, OrbitlogError):
        return False
    finally:
        await client.close()
    return True


async def _send(client: RemotingClient, address: str) -> int:
    fields = {"a": "probe", "b": TOPIC, "c": "TBW102", "d": "8", "e": "0", "f": "0", "g": "1", "h": "0"}
    fields |= {"i": "", "j": "0", "k": "false", "m": "false"}
    answer = await client.invoke(address, Command(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"x" * 128), 10)
    if answer.code != ResponseCode.SUCCESS:
        raise RuntimeError(f"{address} answered a send with code {answer.code}: {answer.remark}")
    return int(answer.ext_fields["queueOffset"])


async def _max_offset(client: RemotingClient, address: str) -> int:
    fields = {"topic": TOPIC, "queueId": "0"}
    answer = await client.invoke(address, Command(RequestCode.GET_MAX_OFFSET, ext_fields=fields), 10)
    return int(answer.ext_fields.get("offset", "0"))


def _measure_catch_up(report: Report, directory: Path, wanted_bytes: int) -> None:
    group = f"Catch-up of a restarted slave, {wanted_bytes >> 20} MiB"
    with _running(directory, {"brokerRole": "ASYNC_MASTER"}, 1) as sets:
        for kind in KINDS:
            replicas, load = sets[kind]
            replicas.stop_broker(1)
            start = replicas.log_end(0)
            while replicas.log_end(0) - start < wanted_bytes:
                load.run(f"batch {TOPIC} 8 1024 {32 * 1000} 32")
            replicas.start_broker(1)
            began, first = time.perf_counter(), replicas.log_end(1)
            while first == start:
                began, first = time.perf_counter(), replicas.log_end(1)
            end = replicas.log_end(0)
            wait_until(lambda replicas=replicas, end=end: replicas.log_end(1) >= end, "the slave has caught up")
            megabytes = (end - first) / 1e6
            report.read(Reading(group, f"{kind}: copied", megabytes / (time.perf_counter() - began), "MB/s"))
