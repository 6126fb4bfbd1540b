"""What PySpark's collection after every task has to look through."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from orbitlog.pipeline import warm_up
from orbitlog.pipeline.warm_up import freeze_what_stays


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    gc.collect()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_many_objects_that_stay_are_frozen_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "_LOOKED_THROUGH_MAX", len(gc.get_objects(generation=2)) + 10_000)
    freeze_what_stays()
    assert gc.get_freeze_count() == 0
    came_to_stay = [[number] for number in range(20_000)]
    gc.collect()
    freeze_what_stays()
    assert gc.get_freeze_count() > len(came_to_stay)
