"""The process that dispatches beside a broker: restarted when it dies, given dispatch when it asks, given up.

Small programs stand for Spark here; `tests/spark` kills a real one.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.cli.serve.dispatch_process import DispatchProcess

SECONDS_MAX = 60


class Broker:
    """Records requests; does not get dispatch back at once if there are refusals."""

    def __init__(self, refusals: int = 0) -> None:
        self.asked: list[str] = []
        self._refusals = refusals

    def hand_over_dispatch(self) -> None:
        self.asked.append("hand over")

    def take_back_dispatch(self) -> bool:
        self.asked.append("take back")
        return len(self.asked) > self._refusals


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not holds():  # noqa: ASYNC110 (a log is looked at)
            await asyncio.sleep(0.01)


def dispatching(broker: Broker, output_path: Path, program: str, pauses_s: tuple[float, ...]) -> DispatchProcess:
    command = (sys.executable, "-c", program)
    return DispatchProcess(broker, output_path.parent, output_path, command=command, pauses_s=pauses_s)


def test_one_that_ends_again_and_again_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker, output_path = Broker(refusals=1), tmp_path / "dispatch.log"
    spark = dispatching(broker, output_path, "import sys; print('no java', flush=True); sys.exit(3)", (0.0, 0.01))

    async def run() -> None:
        await spark.start()
        await until(lambda: "3 times in a row" in caplog.text)
        await spark.stop()

    asyncio.run(run())
    assert output_path.read_text().splitlines() == ["no java"] * 3
    assert broker.asked == ["take back"] * 4, (
        "it comes back each time, and is never given to a process that has not asked"
    )
    assert "has ended (exit status 3); the broker takes dispatch back" in caplog.text
    assert "restarting Spark dispatch in 0.01 s (attempt 2 of 2)" in caplog.text and str(output_path) in caplog.text


def test_dispatch_is_handed_over_when_the_next_one_asks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker, output_path, flag = Broker(), tmp_path / "dispatch.log", tmp_path / "first-has-died"
    program = f"""
import os, pathlib, time
flag = pathlib.Path({str(flag)!r})
if not flag.exists():
    flag.touch()
    print("waiting: this one is not there any more", flush=True)
    os.kill(os.getpid(), 9)
print("waiting: the broker dispatches", flush=True)
time.sleep({SECONDS_MAX})
"""
    spark = dispatching(broker, output_path, program, (0.0,))

    async def run() -> None:
        await spark.start()
        await until(lambda: "hand over" in broker.asked)
        await spark.stop()

    asyncio.run(run())
    assert broker.asked == ["take back", "hand over"], "it was asked for once, by the second"
    assert "killed by signal 9" in caplog.text and "handing dispatch over" in caplog.text


def test_process_asked_to_end_is_not_restarted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker, output_path = Broker(), tmp_path / "dispatch.log"
    spark = dispatching(broker, output_path, "print('done')", (0.0,))

    async def run() -> None:
        await spark.start()
        await until(lambda: "exited with status 0 and is not restarted" in caplog.text)
        await spark.stop()

    asyncio.run(run())
    assert output_path.read_text() == "done\n" and "take back" in broker.asked


def test_stopping_while_it_waits_to_start_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spark = dispatching(Broker(), tmp_path / "dispatch.log", "raise SystemExit(1)", (float(SECONDS_MAX),))

    async def run() -> None:
        await spark.start()
        await until(lambda: "restarting Spark dispatch in" in caplog.text)
        await asyncio.wait_for(spark.stop(), SECONDS_MAX / 2)

    asyncio.run(run())
