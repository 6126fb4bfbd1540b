"""Rounds of a cluster source, without a cluster."""

from __future__ import annotations

import asyncio

import pytest

from orbitlog.console.console_options import ClusterChoice
from orbitlog.console.sources.cluster_sample import ClusterSample
from orbitlog.console.sources.cluster_source import ClusterSource


class SlowEnds(ClusterSource):
    """Takes empty samples, numbered by their time, and reads ends until `gate` is set."""

    def __init__(self) -> None:
        super().__init__(ClusterChoice("shop", "127.0.0.1:9876"))
        self.reading_ends = asyncio.Event()
        self.gate = asyncio.Event()
        self._count = 0

    async def _take_sample(self, table_age_ms: int) -> None:
        self._count += 1
        self._sample = ClusterSample(self._count, (), (), {})

    async def _read_ends(self, count: int) -> None:
        self.reading_ends.set()
        await self.gate.wait()


def test_page_opened_while_ends_are_read_waits_for_the_next_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitlog.console.sources.cluster_source._SECONDS", 30.0)
    monkeypatch.setattr("orbitlog.console.sources.cluster_source.ROUND_SECONDS", 60.0)

    async def scenario() -> int:
        source = SlowEnds()
        sampling = asyncio.create_task(source._sample_for_ever())
        await source.reading_ends.wait()
        page = asyncio.create_task(source.sample())
        await asyncio.sleep(0)
        source.gate.set()
        try:
            async with asyncio.timeout(5):
                return (await page).as_of_ms
        finally:
            sampling.cancel()

    assert asyncio.run(scenario()) == 2
