"""A Java process in which Apache's brokers open one store after the other: they judge what the doctor repaired."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.harness.cluster import STEADY, TOP_LOGGER, Ports
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.processes import JsonObject, java_command

OPEN_SECONDS_MAX = 180.0
CLOSING_MAX = 3
STORES_IN_PROCESS = 30
_HOST = "127.0.0.1"
_LOGBACK = f"""<configuration>
  <appender name="err" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target><encoder><pattern>%-5level %logger - %msg%n</pattern></encoder>
  </appender>
  <{TOP_LOGGER} level="WARN"><appender-ref ref="err"/></{TOP_LOGGER}>
</configuration>
"""
# Not of clients, sockets and transactions: brokers of 4.9.7 write many of those, most likely the ones that are being
# closed. An error there that a repair caused is not seen here; what is served and found is compared all the same.
_ERROR = re.compile(r"ERROR (?!io\.netty|RocketmqTransaction|RocketmqRemoting|RocketmqClient|\S*\.client\.)")
# What one that is being closed says; a lost delayed message that is dropped; and a delay level whose first messages
# went with the log's first segment: it goes on with those that are there.
_EXPECTED = re.compile(
    r"MessageRocksDBStorage flush timer wal failed"
    r"|the real topic of schedule msg is RMQ_SYS_TRANS_HALF_TOPIC, discard the msg.*ORBITLOG_LOST="
    r"|schedule CQ offset invalid|correct delay offset"
)


@dataclass
class Judge:
    """The process, with a name server for all brokers in it; a new one now and then, for brokers leave much behind."""

    packages: ApachePackages
    directory: Path
    _running: Driver | None = None
    _name_server: int = 0
    _opened: int = 0
    _closing: list[tuple[Path, Callable[[float], JsonObject]]] = field(default_factory=list)

    def _driver(self) -> Driver:
        if self._running is not None and self._opened % STORES_IN_PROCESS == 0:
            self.close()
        if self._running is None:
            home = self.directory / "home"
            logback = home / "conf" / "logback.xml"
            logback.parent.mkdir(parents=True, exist_ok=True)
            logback.write_text(_LOGBACK)
            options = [f"-D{name}={logback}" for name in ("rmq.logback.configurationFile", "logback.configurationFile")]
            options.append("-XX:MaxDirectMemorySize=2g")
            command = [*java_command(self.packages, home, options=options), "ClientShell"]
            log = self.directory / "judge.log"
            self._running = Driver(f"judge-{self.packages.version}", command, log, os.environ)
            self._name_server = Ports.find().name_server
            self._running.call("nameServerInside", port=self._name_server)
        return self._running

    @contextmanager
    def serving(self, store: Path, settings: Mapping[str, object]) -> Iterator[JudgedStore]:
        """Open a broker over a store; it is closed behind the block, which takes seconds, and the store removed."""
        driver = self._driver()
        self._opened += 1
        name = f"judged-{self._opened}"
        given = {
            **STEADY,
            "brokerName": name,
            "listenPort": Ports.find().broker,
            "bindAddress": _HOST,
            "namesrvAddr": f"{_HOST}:{self._name_server}",
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            # Every thread that writes keeps a buffer of this size, and there are many.
            "maxMessageSize": 1 << 17,
            **settings,
        }
        conf = self.directory / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        log_bytes = driver.log.stat().st_size
        driver.call("openBroker", seconds_max=OPEN_SECONDS_MAX, name=name, conf=conf)
        try:
            yield JudgedStore(driver, name, log_bytes)
        finally:
            self._closing.append((store, driver.begin("closeBroker", name=name)))
        if len(self._closing) > CLOSING_MAX:
            self._wait_for_oldest()

    def close(self) -> None:
        while self._closing:
            self._wait_for_oldest()
        if self._running is not None:
            self._running.close()
            self._running = None

    def _wait_for_oldest(self) -> None:
        store, is_closed = self._closing.pop(0)
        is_closed(OPEN_SECONDS_MAX)
        shutil.rmtree(store)


@dataclass(frozen=True)
class JudgedStore:
    """A broker that runs in the judge's process."""

    driver: Driver
    name: str
    _log_bytes_before: int

    def pulled(self, topic: str, queue_id: int) -> JsonObject:
        """Every message of a queue, through a client; places where the broker gave none under `gaps`."""
        return self.driver.call("brokerQueue", name=self.name, topic=topic, queueId=queue_id)

    def stored(self, topic: str, queue_id: int) -> JsonObject:
        """The same for a queue that clients may not pull, from the broker's store."""
        return self.driver.call("storedQueue", name=self.name, topic=topic, queueId=queue_id)

    def found_by_key(self, keys: Sequence[tuple[str, str]]) -> list[set[int]]:
        """Where the index leads to, for each topic and key."""
        lines = "\n".join(f"{topic}\t{key}" for topic, key in keys)
        answer = self.driver.call("storedKeys", name=self.name, keys=lines) if keys else {"commitLogOffsets": []}
        return [set(places) for places in answer["commitLogOffsets"]]

    def errors(self) -> list[str]:
        """What the brokers of the process complained of since this one was opened."""
        with self.driver.log.open("rb") as log:
            log.seek(self._log_bytes_before)
            lines = log.read().decode(errors="replace").splitlines()
        return [line for line in lines if _ERROR.match(line) and not _EXPECTED.search(line)]
