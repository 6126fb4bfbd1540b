"""Two name servers and two brokers in processes of their own, which can be killed, and a producer that survives it."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from orbitlog.client.connection.connect import connect
from orbitlog.errors import OrbitlogError
from orbitlog.testing.running_broker import SETTINGS
from tests.spark.conftest import ORBITLOG, wait_for
from tests.support.free_ports import free_port

BROKERS = ("broker-a", "broker-b")
QUEUES = 2
_READY_WITHIN_S = 60
_PAUSE_S = 0.005


class Server:
    """A process of `orbitlog` that prints a line when it serves; it can be killed and restarted at its port."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._words, self._log = words, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*ORBITLOG, *self._words, "--json"], stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self._process.stdout is not None
        limit = threading.Timer(_READY_WITHIN_S, self._process.kill)
        limit.start()
        line = self._process.stdout.readline()
        limit.cancel()
        assert line, self._log.read_text()[-2000:]
        assert json.loads(line)["ready"]

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=_READY_WITHIN_S)
            self._process = None


class Servers:
    """A cluster in which every server is a process; `address` lists both name servers."""

    def __init__(self, directory: Path) -> None:
        ports = [free_port(), free_port()]
        self.address = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.stores = [directory / name for name in BROKERS]
        log = directory / "servers.log"
        self.name_servers = [Server(["nameserver", "--port", str(port)], log) for port in ports]
        self.brokers = [
            Server(["broker", *self._settings(name), "--store", str(directory / name), "--port", str(free_port())], log)
            for name in BROKERS
        ]
        self._log = log

    def _settings(self, name: str) -> list[str]:
        settings = {**SETTINGS, "brokerName": name, "registerNameServerPeriod": "10000"}
        settings |= {"namesrvAddr": self.address.replace(",", ";"), "autoCreateTopicEnable": "false"}
        return [word for key, text in settings.items() for word in ("--set", f"{key}={text}")]

    def start(self) -> None:
        for server in (*self.name_servers, *self.brokers):
            server.start()

    def create_topic(self, topic: str) -> None:
        """Create a topic at both brokers, and wait until both name servers have its whole route."""
        with connect(f"rocketmq://{self.address.replace(',', ';')}") as mq:
            wait_for(lambda: len(mq.admin.brokers()) == len(BROKERS), self._log)
            mq.admin.create_topic(topic, QUEUES)
        for address in self.address.split(","):
            with connect(f"rocketmq://{address}") as mq:
                wait_for(lambda mq=mq: _brokers_of(mq, topic) == len(BROKERS), self._log)

    def stop(self) -> None:
        for server in (*self.brokers, *self.name_servers):
            server.stop()

    def kill(self) -> None:
        for server in (*self.brokers, *self.name_servers):
            server.kill()


def _brokers_of(mq: Any, topic: str) -> int:
    try:
        return len({queue.broker_name for queue in mq.admin.topic_offsets(topic)})
    except OrbitlogError:
        return 0


class Producer:
    """Sends numbered messages from a thread, whatever is killed; `acknowledged` are those that a broker confirmed.

    It sends as many as `allow` has allowed: without a bound, a slow machine would only work off the backlog.
    """

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._topic = address, topic
        self._ended = threading.Event()
        self._allowed = threading.Semaphore(0)
        self.acknowledged: list[str] = []
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.allow(1)
        self._thread.join()

    def allow(self, messages: int) -> None:
        self._allowed.release(messages)

    def _run(self) -> None:
        number = 0
        with connect(f"rocketmq://{self._address.replace(',', ';')}") as mq:
            while self._allowed.acquire() and not self._ended.is_set():
                body = f"message {number}"
                number += 1
                try:
                    mq.send(self._topic, body)
                except OrbitlogError:
                    continue  # it may be stored all the same: the log decides
                self.acknowledged.append(body)
                time.sleep(_PAUSE_S)
