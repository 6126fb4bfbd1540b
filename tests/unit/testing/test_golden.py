from collections.abc import Callable

import pytest

from orbitlog.testing.golden import GoldenStore

GoldenCopy = Callable[[GoldenStore], GoldenStore]


@pytest.fixture(params=["golden_497", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    return request.getfixturevalue(request.param)


def test_extraction_gives_the_recorded_files_sizes_and_times(golden: GoldenStore) -> None:
    for recorded in golden.manifest["files"]:
        status = (golden.store / recorded["path"]).stat()
        assert status.st_size == recorded["size"]
        assert status.st_mtime_ns // 1_000_000 == recorded["mtimeMs"], recorded["path"]
    assert golden.changed_files() == []


def test_a_copy_is_equal_with_its_times_and_independent(golden: GoldenStore, golden_copy: GoldenCopy) -> None:
    first, second = golden_copy(golden), golden_copy(golden)
    checkpoint = first.store / "checkpoint"
    assert checkpoint.stat().st_mtime_ns == (golden.store / "checkpoint").stat().st_mtime_ns

    checkpoint.write_bytes(b"\0" * 4096)
    (first.store / "new").touch()
    (first.store / "config" / "topics.json").unlink()

    assert first.changed_files() == ["checkpoint", "config/topics.json", "new"]
    assert second.changed_files() == golden.changed_files() == []
