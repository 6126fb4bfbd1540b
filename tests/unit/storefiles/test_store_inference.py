"""Infers from its files how a store was created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings, load_settings
from orbitlog.storefiles.store_files import OffsetFile, find_store_files
from orbitlog.storefiles.store_inference import (
    common_size,
    infer_compat,
    infer_geometry,
    infer_index_layout,
    infer_rules,
    signs_of_5x,
)
from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]
NOTHING_GIVEN = StoreSettings()


@pytest.mark.parametrize("name", ["golden_497", "golden_550_crash"])
def test_golden_stores_show_the_settings_of_their_brokers(name: str, request: pytest.FixtureRequest) -> None:
    golden: GoldenStore = request.getfixturevalue(name)
    config = {key: golden.manifest["brokerConfig"][key] for key in golden.manifest["brokerConfig"]}
    geometry = infer_geometry(find_store_files(golden.store), NOTHING_GIVEN)
    assert geometry.segment_bytes == int(config["mappedFileSizeCommitLog"])
    assert geometry.queue_file_bytes == int(config["mappedFileSizeConsumeQueue"])
    assert geometry.index_layout == IndexLayout(int(config["maxHashSlotNum"]), int(config["maxIndexNum"]))


def test_versions(golden_497: GoldenStore, golden_550_crash: GoldenStore, tmp_path: Path) -> None:
    assert infer_compat(find_store_files(golden_497.store), NOTHING_GIVEN).name == "4.9"
    assert infer_compat(find_store_files(golden_550_crash.store), NOTHING_GIVEN).name == "5.5"
    (tmp_path / "commitlog").mkdir()
    assert infer_compat(find_store_files(tmp_path), NOTHING_GIVEN).name == "5.5"
    given = load_settings(None, ["compat=5.5", "messageDelayLevel=1s 2s"])
    rules = infer_rules(find_store_files(golden_497.store), given)
    assert (rules.compat.name, rules.delay_levels.max_level) == ("5.5", 2)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("timerwheel", bytes(6400)),
        ("timerlog/00000000000000000000", bytes(100)),
        ("abort.bak", b""),
        ("epochFileCheckpoint", b""),
        ("batchconsumequeue/T/0/00000000000000000000", bytes(46)),
        ("config/timermetrics", b"{}"),
        ("config/topics.json", b'{"topicConfigTable":{"a":{"attributes":{}}}}'),
        ("config/topics.json", b'{"dataVersion":{"stateVersion":0}}'),
        ("config/consumerOffset.json", b'{"dataVersion":{}}'),
        ("checkpoint", bytes(47) + b"\1" + bytes(4048)),
        (
            "commitlog/00000000000000000000",
            encode_message(make_message("%RETRY%" + "x" * 150, b"b")).ljust(65536, b"\0"),
        ),
    ],
)
def test_each_sign_of_5x_is_enough(golden_497: GoldenStore, golden_copy: Copy, path: str, content: bytes) -> None:
    root = golden_copy(golden_497).store
    assert list(signs_of_5x(find_store_files(root))) == []
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)
    assert infer_compat(find_store_files(root), NOTHING_GIVEN).name == "5.5"


def files_of(*sizes: int, step: int) -> list[OffsetFile]:
    return [OffsetFile(Path(str(number)), number * step, size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ([], None),
        (files_of(0, step=8), None),
        (files_of(100, step=100), 100),
        (files_of(100, 100, 40, step=100), 100),
        (files_of(40, 100, step=100), 100),
        (files_of(150, 100, step=100), 100),
        (files_of(0, 0, 100, step=100), 100),
    ],
)
def test_the_common_size(files: list[OffsetFile], size: int | None) -> None:
    assert common_size(files) == size


def test_given_settings_win_and_defaults_fill_in(golden_497: GoldenStore, tmp_path: Path) -> None:
    given = load_settings(None, ["mappedFileSizeCommitLog=4096", "mappedFileSizeConsumeQueue=40", "maxHashSlotNum=7"])
    geometry = infer_geometry(find_store_files(golden_497.store), given)
    assert (geometry.segment_bytes, geometry.queue_file_bytes) == (4096, 40)
    assert geometry.index_layout == IndexLayout(7, 20_000_000)
    (tmp_path / "commitlog").mkdir()
    assert infer_geometry(find_store_files(tmp_path), NOTHING_GIVEN) == StoreGeometry()


def test_a_layout_in_spite_of_damaged_files(golden_497: GoldenStore, golden_copy: Copy) -> None:
    root = golden_copy(golden_497).store
    paths = sorted((root / "index").iterdir())
    paths[0].write_bytes(paths[0].read_bytes()[:5000])
    paths[1].write_bytes(b"")
    paths[2].write_bytes(b"\xff" * paths[2].stat().st_size)
    layout = infer_index_layout(find_store_files(root).index_files, NOTHING_GIVEN)
    assert layout == IndexLayout(200, 400)
    for path in paths:
        path.write_bytes(b"")
    assert infer_index_layout(find_store_files(root).index_files, NOTHING_GIVEN) is None
