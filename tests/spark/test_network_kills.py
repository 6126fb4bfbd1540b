"""kill -9 on drivers, workers, executors, brokers and name servers during pipelines over the network.

Pipelines read, change and write: topic to topic (plain and transactional), topic to Delta, Delta to topic. In the end
the logs of the brokers and the table are compared: each message arrived, and once. `make cluster` makes a hundred kills
(ORBITLOG_KILLS), on a standalone cluster of a master and two workers; fewer than ten are made at local[2], in copies
alone. ORBITLOG_KILL_SECONDS ends the kills earlier. The seed and the number of kills are printed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.formats.records.message import Message
from tests.spark.conftest import Cluster
from tests.spark.killed_driver import ANSWERS_WITHIN_S, DRIVER, EXECUTOR, WORKER, Driver
from tests.spark.killed_servers import Producer, Servers
from tests.spark.live_store import messages_of

KILLS = int(os.environ.get("ORBITLOG_KILLS", "0"))
KILL_SECONDS = float(os.environ.get("ORBITLOG_KILL_SECONDS", "inf"))
SEED = int(os.environ.get("ORBITLOG_SEED", str(random.SystemRandom().randrange(1 << 32))))
_MANY = 10
COPY, TRANSACTION, LAKE, REPLAY = "copy", "transaction", "lake", "replay"
BROKER, NAME_SERVER = "broker", "name server"
_VICTIMS = (BROKER, DRIVER, WORKER, NAME_SERVER, EXECUTOR)
_SHORT_VICTIMS = (BROKER, DRIVER)
_LOOK_S = 0.05
_DOWN_S_MAX = 3.0
_REPLAY_S = 4
_MESSAGES_PER_TURN = 100
TOPIC = "Orders"


class Trial:
    """Pipelines in turn, each with something killed in it."""

    def __init__(self, directory: Path, servers: Servers, cluster: Cluster | None) -> None:
        self._directory, self._servers, self._cluster = directory, servers, cluster
        self._chance = random.Random(SEED)
        self._driver: Driver | None = None
        self.pipelines = (COPY,) if cluster is None else (COPY, TRANSACTION, LAKE, REPLAY)
        self._victims = _SHORT_VICTIMS if cluster is None else _VICTIMS
        self._longest_s = dict.fromkeys(self.pipelines, 4.0)
        self.kills: Counter[tuple[str, str]] = Counter()
        self.finished: Counter[str] = Counter()
        self.replays = 0

    def turn(self) -> None:
        """Run the pipeline that was killed least, and kill what was killed least in it."""
        counts = Counter(pipeline for pipeline, _ in self.kills.elements())
        name = min(self.pipelines, key=lambda pipeline: counts[pipeline])
        if name == REPLAY and not self.finished[LAKE]:
            name = LAKE
        victim = min(self._victims, key=lambda one: (self.kills[name, one], self._killed(one)))
        driver, began_s = self._begin(name)
        answer = driver.answer(self._chance.random() * self._longest_s[name])
        was_killed = answer is None and self._kill(name, victim, driver)
        if self._driver is None:
            return
        answer = answer or driver.answer(ANSWERS_WITHIN_S)
        self._longest_s[name] = min(time.monotonic() - began_s, 15.0)
        if answer == "done":
            self._done(name)
        else:
            # Spark gives a query up if its planning process dies, or a task fails four times: the next turn resumes.
            assert was_killed, f"{name}: {answer}; ORBITLOG_SEED={SEED}"
            print(f"   {name}: {answer}", flush=True)

    def run(self, name: str) -> None:
        """Let a pipeline end by itself."""
        driver, _ = self._begin(name)
        answer = driver.answer(ANSWERS_WITHIN_S)
        assert answer == "done", f"{name}: {answer}; ORBITLOG_SEED={SEED}"
        self._done(name)

    def end(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver = None

    def _begin(self, name: str) -> tuple[Driver, float]:
        if self._driver is None:
            master = "local[2]" if self._cluster is None else self._cluster.url
            self._driver = Driver(master, self._cluster, "tests.spark.network_kill_driver")
        self._driver.begin(self._job(name))
        return self._driver, time.monotonic()

    def _job(self, name: str) -> dict[str, Any]:
        job = {"nameServer": self._servers.address, "topic": TOPIC}
        if name in (COPY, TRANSACTION):
            checkpoint = str(self._directory / f"checkpoint-{name}")
            is_transactional = name == TRANSACTION
            return job | {"job": COPY, "to": name, "checkpoint": checkpoint, "transactional": is_transactional}
        if name == LAKE:
            return job | {"job": LAKE, "to": str(self.table), "follow": self._chance.random() < 0.5}
        state = self.state_of(self.replays)
        if not state.exists():
            self._servers.create_topic(self.topic_of(self.replays))
        rate = max(len(rows_of(self.table)) // _REPLAY_S, 100)
        replayed = {"table": str(self.table), "state": str(state), "topic": self.topic_of(self.replays), "rate": rate}
        return job | {"job": REPLAY} | replayed

    @property
    def table(self) -> Path:
        return self._directory / "lake"

    def state_of(self, replay: int) -> Path:
        return self._directory / f"replay-{replay}"

    def topic_of(self, replay: int) -> str:
        return f"replay-{replay}"

    def _done(self, name: str) -> None:
        self.finished[name] += 1
        if name == REPLAY:
            self.replays += 1

    def _killed(self, victim: str) -> int:
        return sum(count for (_, one), count in self.kills.items() if one == victim)

    def _kill(self, name: str, victim: str, driver: Driver) -> bool:
        """Kill the victim; return False if the job ended before there was one."""
        if victim == DRIVER:
            self.end()
        elif victim in (BROKER, NAME_SERVER):
            servers = self._servers.brokers if victim == BROKER else self._servers.name_servers
            server = self._chance.choice(servers)
            server.kill()
            time.sleep(self._chance.random() * _DOWN_S_MAX)
            server.start()
        elif not self._kill_process(victim, driver):
            return False
        self.kills[name, victim] += 1
        print(f"{self.kills.total()}. {name}: {victim}", flush=True)
        return True

    def _kill_process(self, victim: str, driver: Driver) -> bool:
        for _ in range(int(5 / _LOOK_S)):
            if found := driver.find(victim):
                try:
                    os.kill(self._chance.choice(found), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                return True
            time.sleep(_LOOK_S)
        return False


def rows_of(table: Path, version: int | None = None) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    columns = ["brokerName", "queueId", "queueOffset", "body"]
    rows: list[dict[str, Any]] = DeltaTable(table, version=version).to_pyarrow_dataset().to_table(columns).to_pylist()
    return rows


def compare(what: str, found: Iterable[object], expected: Iterable[object]) -> None:
    """Compare counts: nothing may be missing, and nothing may be there more often."""
    counts, wanted = Counter(found), Counter(expected)
    lost, extra = wanted - counts, counts - wanted
    problem = f"{what}: {lost.total()} lost, {extra.total()} extra of {wanted.total()}; ORBITLOG_SEED={SEED}"
    assert not lost, f"{problem}; lost: {list(lost)[:5]}"
    assert not extra, f"{problem}; extra: {list(extra)[:5]}"


def check(trial: Trial, servers: Servers, acknowledged: list[str]) -> None:
    """Compare topics, as their logs have them, with each other and with the table."""
    messages: dict[str, list[tuple[str, Message]]] = {}
    for store in servers.stores:
        for message in messages_of(store):
            if message.transaction_type.enters_queue:
                messages.setdefault(message.topic, []).append((store.name, message))
    sent = messages[TOPIC]
    lost = set(acknowledged) - {one.body.decode() for _, one in sent}
    assert not lost, f"{len(lost)} acknowledged messages are lost; ORBITLOG_SEED={SEED}"
    places = [f"{broker}/{one.queue_id}/{one.queue_offset}" for broker, one in sent]
    for name in {COPY, TRANSACTION} & set(trial.pipelines):
        copies = (one.body.decode() for _, one in messages.get(name, []))
        compare(name, copies, (f"copy of {place}" for place in places))
    if LAKE in trial.pipelines:
        rows = rows_of(trial.table)
        compare(LAKE, (f"{row['brokerName']}/{row['queueId']}/{row['queueOffset']}" for row in rows), places)
    for replay in range(trial.replays):
        plan = json.loads((trial.state_of(replay) / "replay.json").read_bytes())
        rows = rows_of(trial.table, int(plan["table"]["version"]))
        found = (one.body for _, one in messages[trial.topic_of(replay)])
        compare(f"replay {replay}", found, (row["body"] for row in rows))
    print(f"{len(sent)} messages, {trial.replays} replays: equal")


@pytest.mark.skipif(not KILLS, reason="takes minutes: `make cluster` runs it")
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")
def test_network_pipelines_with_killed_processes_lose_and_repeat_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("workers are found below /proc")
    print(f"ORBITLOG_SEED={SEED} ORBITLOG_KILLS={KILLS}")
    cluster = request.getfixturevalue("spark_cluster") if KILLS >= _MANY else None
    servers = Servers(tmp_path)
    trial = Trial(tmp_path, servers, cluster)
    try:
        servers.start()
        for topic in (TOPIC, COPY, TRANSACTION):
            servers.create_topic(topic)
        with Producer(servers.address, TOPIC) as producer:
            until = time.monotonic() + KILL_SECONDS
            while trial.kills.total() < KILLS and time.monotonic() < until:
                producer.allow(_MESSAGES_PER_TURN)
                trial.turn()
        assert trial.kills
        for name in trial.pipelines:
            trial.run(name)
        trial.end()
        servers.stop()
        check(trial, servers, producer.acknowledged)
    finally:
        trial.end()
        servers.kill()
    print(f"{trial.kills.total()} kills: {dict(trial.kills)}; ended by themselves: {dict(trial.finished)}")
