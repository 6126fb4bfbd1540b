from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.errors import StoreClosed, StoreError
from orbitlog.store.availability import Availability


def test_is_limited_follows_full_disk_failure_and_close() -> None:
    availability = Availability(Path("store"))
    assert not availability.is_limited
    availability.note_full_disk("the disk is full")
    assert availability.is_limited
    availability.note_full_disk("")
    assert not availability.is_limited
    availability.close()
    availability.note_full_disk("")
    assert availability.is_limited
    with pytest.raises(StoreClosed):
        availability.check_open()


def test_a_failed_sync_is_permanent() -> None:
    availability = Availability(Path("store"))
    with pytest.raises(StoreError, match=r"sync failed .*read-only until a restart"), availability.failing_for_good():
        raise OSError("no such device")
    assert availability.is_limited
    availability.note_full_disk("")
    assert availability.is_limited
    with pytest.raises(StoreError, match="no such device"), availability.failing_for_good():
        raise AssertionError("not reached")
