"""A driver process that runs jobs on Spark, and can be killed with what it started, or have its workers killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from typing import Any

from tests.spark.conftest import Cluster, environment
from tests.spark.found_processes import PLANS_STREAMS, parent, processes
from tests.spark.live_store import REPOSITORY

ANSWERS_WITHIN_S = 300
DRIVER, WORKER, EXECUTOR = "driver", "worker", "executor"
_STDERR_SHOWN = 2000
_RUNS_TASKS = b"pyspark.daemon\0pyspark.worker\0"


class Driver:
    """A process that runs jobs on Spark; all that it starts is of its session, and killed by `kill`."""

    def __init__(self, master: str, cluster: Cluster | None, module: str = "tests.spark.kill_driver") -> None:
        command = [sys.executable, "-m", module, master]
        self._cluster = cluster
        self._stderr = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
        )
        answer = self.answer(ANSWERS_WITHIN_S)
        assert answer == "ready", f"the driver did not start, it answered {answer!r}: {self._end_of_stderr()}"

    def _end_of_stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read()[-_STDERR_SHOWN:]

    def begin(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def answer(self, timeout_s: float) -> str | None:
        """Return the answer to a job, or None if it does not come in time."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        return self._process.stdout.readline().strip() if ready else None

    def kill(self) -> None:
        """Kill the driver and its JVM; Python workers are left to find out for themselves."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._stderr.close()

    @property
    def victims(self) -> list[str]:
        """What can be killed."""
        return [DRIVER, WORKER] if self._cluster is None else [DRIVER, WORKER, EXECUTOR]

    def find(self, victim: str) -> list[int]:
        """Find Python workers, or the executors of a cluster.

        Workers are those that run tasks, and those that plan a query beside the driver.
        """
        own = self._process.pid
        planners = processes(lambda pid, words: PLANS_STREAMS in words and os.getsid(pid) == own)
        if self._cluster is None:
            return planners + processes(lambda pid, words: _RUNS_TASKS in words and os.getsid(pid) == own)
        hosts = {worker.pid for worker in self._cluster.workers}
        executors = processes(lambda pid, words: b"CoarseGrainedExecutorBackend" in words and parent(pid) in hosts)
        if victim == EXECUTOR:
            return executors
        return planners + processes(lambda pid, words: _RUNS_TASKS in words and parent(pid) in executors)
