"""Official clients in processes of their own, driven line by line: commands in, JSON objects out.

The protocol is the same for every language, so that a scenario in Python tries any of them. A command is a number, a
verb and words `name=value` (percent-encoded), separated by tabs. Each is answered by an object that repeats the number
under `re`; what a consumer gets comes as objects with `event`, whenever it comes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from tests.interop.harness.processes import JsonObject

ANSWER_SECONDS_MAX = 60.0
START_SECONDS_MAX = 60.0
CLOSE_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0


class Refused(Exception):
    """A command ended with an exception in the client: its kind, the code that it carries, its text."""

    def __init__(self, answer: JsonObject) -> None:
        super().__init__(f"{answer['error']} {answer.get('code')}: {answer.get('message')}")
        self.kind: str = answer["error"]
        self.code: int = answer.get("code", -1)
        self.text: str = answer.get("message", "")


class Driver:
    """One process of a driver."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._changed = threading.Condition()
        self._answers: dict[str, JsonObject] = {}
        self._events: defaultdict[str, list[JsonObject]] = defaultdict(list)
        self._number = 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=log.parent,
                env=dict(environment),
            )
        self._reader = threading.Thread(target=self._read, name=f"reads {name}", daemon=True)
        self._reader.start()
        self.wait(lambda: bool(self._events["ready"]), START_SECONDS_MAX, "it is not ready")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop every thread of the process while the block runs; Linux reports when the last one has stopped."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            deadline = time.monotonic() + STOP_SECONDS_MAX
            while not all(map(_is_stopped, Path(f"/proc/{self._process.pid}/task").iterdir())):
                assert time.monotonic() < deadline, f"{self.name} does not stop"
                time.sleep(0.001)
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def call(self, verb: str, *, seconds_max: float = ANSWER_SECONDS_MAX, **words: object) -> JsonObject:
        """Run a command to its end; raises `Refused` if it ended with an error."""
        return self.begin(verb, **words)(seconds_max)

    def begin(self, verb: str, **words: object) -> Callable[[float], JsonObject]:
        """Start a command; what is returned waits for its answer."""
        with self._changed:
            self._number += 1
            number = str(self._number)
            line = "\t".join((number, verb, *(f"{name}={_word(value)}" for name, value in words.items())))
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

        def answer(seconds_max: float = ANSWER_SECONDS_MAX) -> JsonObject:
            self.wait(lambda: number in self._answers, seconds_max, f"no answer to {line!r}")
            found = self._answers.pop(number)
            if "error" in found:
                raise Refused(found)
            return found

        return answer

    def events(self, consumer: str) -> list[JsonObject]:
        """What came for a consumer (or a producer) so far."""
        with self._changed:
            return list(self._events[consumer])

    def wait(self, is_so: Callable[[], bool], seconds_max: float, otherwise: str) -> None:
        """Wait for something that a line of the process brings about."""
        deadline = time.monotonic() + seconds_max
        with self._changed:
            while not is_so():
                left = deadline - time.monotonic()
                if self._process.poll() is not None and not self._reader.is_alive():
                    raise AssertionError(f"{self.name} ended with {self._process.returncode}: {self._log_tail()}")
                if left <= 0:
                    raise AssertionError(f"{otherwise} after {seconds_max:g} s ({self.name}; its log: {self.log})")
                self._changed.wait(min(left, 1.0))

    def close(self) -> None:
        """End the process: its standard input closes, and it goes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # it may have died before
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith(b"{"):
                continue
            found = json.loads(line)
            with self._changed:
                if "re" in found:
                    self._answers[str(found["re"])] = found
                else:
                    self._events[found.get("consumer") or found.get("producer") or found["event"]].append(found)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] or "(it said nothing)"


def _is_stopped(thread: Path) -> bool:
    """Return whether a thread of a process is stopped: its state follows its name, which may hold blanks."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(str(value), safe="")
