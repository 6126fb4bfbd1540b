"""An official client as a scenario sees it: a driver at a system, and whatever it started closed at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from tests.interop.harness.drivers import ANSWER_SECONDS_MAX, Driver, Refused
from tests.interop.harness.processes import JsonObject
from tests.interop.harness.systems import System

ARRIVES_SECONDS_MAX = 60.0
POLL_SECONDS = 0.2


@dataclass
class Push:
    """A consumer that is called back."""

    client: Client
    name: str
    closed: bool = False

    @property
    def messages(self) -> list[JsonObject]:
        """All that came, in order; a message that was refused and came again is there twice."""
        return [event for event in self.client.driver.events(self.name) if event["event"] == "message"]

    def wait_for(self, count: int, seconds_max: float = ARRIVES_SECONDS_MAX) -> list[JsonObject]:
        """Wait until N different messages came."""
        self.wait(lambda: len(self.bodies()) >= count, seconds_max, f"{count} messages at {self.name}")
        return self.messages

    def wait(self, is_so: Callable[[], bool], seconds_max: float, what: str) -> None:
        try:
            self.client.driver.wait(is_so, seconds_max, what)
        except AssertionError as failure:
            came = [(one["queueId"], one["queueOffset"], one.get("body")) for one in self.messages[-5:]]
            raise AssertionError(f"{failure}; {len(self.messages)} came, last {came}") from None

    def bodies(self) -> set[tuple[str, str]]:
        """Which messages came: their bodies with the ids of their senders."""
        return {(one["bodySha256"], one.get("uniqueId") or one["msgId"]) for one in self.messages}

    def per_queue(self) -> Counter[int]:
        return Counter(one["queueId"] for one in self.messages)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.client.driver.call("closePush", name=self.name)


@dataclass
class Client:
    """Commands of a driver at one system."""

    driver: Driver
    system: System
    # Distinguishes topics and groups of one test from those of all others.
    mark: str = field(default_factory=lambda: uuid4().hex[:8])
    _closing: list[tuple[str, str]] = field(default_factory=list)
    _pushing: list[Push] = field(default_factory=list)
    _names: int = 0

    @property
    def language(self) -> str:
        return self.driver.name.partition("-")[0]

    def call(self, verb: str, *, seconds_max: float = ANSWER_SECONDS_MAX, **words: object) -> JsonObject:
        return self.driver.call(verb, seconds_max=seconds_max, nameServer=self.system.name_server_address, **words)

    def mqadmin(self, command: str, *, seconds_max: float = ANSWER_SECONDS_MAX) -> str:
        """What Apache's admin tool prints; words by blanks."""
        words = [*command.split(" "), "-n", self.system.name_server_address]
        arguments = {f"argument.{at}": word for at, word in enumerate(words)}
        answer = self.driver.call("mqadmin", seconds_max=seconds_max, **arguments)
        return str(answer["printed"] + answer["complained"])

    def topic(self, name: str, *, queues: int = 4, **words: object) -> str:
        """Make a topic, and wait until its route is known."""
        topic = f"{name}_{self.mark}"
        wanted = {"topic": topic, "queues": queues, "brokerAddress": self.system.broker_address, **words}

        def is_created() -> bool:
            try:
                self.call("createTopic", **wanted)
            except Refused as refused:
                # Java's client keeps the connection to a killed broker for a while, and does not try another one.
                if refused.kind == "RemotingConnectException":
                    return False
                raise
            return True

        self.eventually(is_created, f"{topic} is created")
        return topic

    def group(self, name: str) -> str:
        return f"{name}_{self.mark}"

    def producer(self, verb: str = "producer", **words: object) -> str:
        words.setdefault("group", self.group("producers"))
        return self._start(verb, "closeProducer", **words)

    def send(self, producer: str, topic: str, **words: object) -> list[JsonObject]:
        """Send and return what was acknowledged."""
        verb = str(words.pop("verb", "send"))
        sent = self.call(verb, producer=producer, topic=topic, **words)["sent"]
        assert isinstance(sent, list)
        return sent

    def push(self, topic: str, group: str, **words: object) -> Push:
        push = Push(self, self._new_name())
        self.call("push", name=push.name, topic=topic, group=group, **words)
        self._pushing.append(push)
        return push

    def pull_consumer(self, group: str) -> str:
        return self._start("pullConsumer", "closePull", group=group)

    def lite(self, topic: str, group: str, **words: object) -> str:
        return self._start("lite", "closeLite", topic=topic, group=group, **words)

    def end(self, name: str) -> None:
        """Close a producer or a consumer that asks, before the test ends."""
        closing = next(one for one in self._closing if one[1] == name)
        self._closing.remove(closing)
        self.call(closing[0], name=name)

    def eventually(self, ask: Callable[[], bool], what: str, seconds_max: float = ARRIVES_SECONDS_MAX) -> None:
        """Ask again and again: a server may answer a send a moment before its message is seen everywhere."""
        deadline = time.monotonic() + seconds_max
        while not ask():
            assert time.monotonic() < deadline, f"not within {seconds_max:g} s: {what}"
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        for push in self._pushing:
            self._close_quietly(push.close)
        for verb, name in reversed(self._closing):
            self._close_quietly(lambda verb=verb, name=name: self.call(verb, name=name))
        self._pushing.clear()
        self._closing.clear()

    def _close_quietly(self, close: Callable[[], object]) -> None:
        try:
            close()
        except Refused:
            # The server may be gone by now, on purpose.
            return
        except (AssertionError, BrokenPipeError):
            # The C++ client now and then dies of its own shutdown, at any broker; the next test gets a new process.
            if self.driver.is_alive:
                raise

    def _start(self, verb: str, closing: str, **words: object) -> str:
        name = self._new_name()
        self.call(verb, name=name, **words)
        self._closing.append((closing, name))
        return name

    def _new_name(self) -> str:
        self._names += 1
        return f"{self.mark}_{self._names}"
