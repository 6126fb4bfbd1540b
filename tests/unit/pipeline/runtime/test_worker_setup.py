"""What PySpark's collection after every task has to look through."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from orbitlog.pipeline.runtime import worker_setup
from orbitlog.pipeline.runtime.worker_setup import freeze_loaded_objects

# What only a broker or the report before a move calls, and what only the tests of CRCs do.
NOT_OF_JOBS = {"copy_records", "put_records", "count_lacking", "crc32_of"}


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    gc.collect()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_many_objects_that_stay_are_frozen_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_setup, "_UNFROZEN_OBJECTS_MAX", len(gc.get_objects(generation=2)) + 10_000)
    freeze_loaded_objects()
    assert gc.get_freeze_count() == 0
    came_to_stay = [[number] for number in range(20_000)]
    gc.collect()
    freeze_loaded_objects()
    assert gc.get_freeze_count() > len(came_to_stay)


NOT_COMPILED = """
import importlib, pkgutil
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher
import orbitlog.kernels
from orbitlog.pipeline.runtime.worker_setup import _run_kernels

_run_kernels()
for module in pkgutil.walk_packages(orbitlog.kernels.__path__, "orbitlog.kernels."):
    for name, value in vars(importlib.import_module(module.name)).items():
        is_kernel = isinstance(value, Dispatcher) and not isinstance(value._cache, NullCache)
        if is_kernel and value.__module__ == module.name and not value.signatures:
            print(name)
"""


def test_no_kernel_of_a_job_is_left_to_be_compiled_in_a_worker() -> None:
    done = subprocess.run([sys.executable, "-c", NOT_COMPILED], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == NOT_OF_JOBS
