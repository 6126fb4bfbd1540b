"""CommitLog directories from settings: what Java reads, in its order, and what cannot be meant is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.settings.setting import SettingError
from orbitlog.settings.store_settings import StoreSettings, load_settings
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_paths import StorePaths, ignored_paths

ROOT = Path("/r")


def settings(**texts: object) -> StoreSettings:
    return load_settings(None, [f"{key}={text}" for key, text in texts.items()])


def test_default_log_directory_is_below_the_root() -> None:
    paths = StorePaths.of(ROOT, settings())
    assert paths.log_directories == paths.writable == (ROOT / "commitlog",)
    assert not paths.is_configured and paths.as_settings() == {}


def test_directories_are_sorted_as_java_sorts_texts() -> None:
    # "/a/" sorts after "/a-b", which the paths "/a" and "/a-b" do not.
    paths = StorePaths.of(ROOT, settings(storePathCommitLog="/c,/a/,/a-b"))
    assert paths.commitlog == (Path("/a-b"), Path("/a"), Path("/c"))
    assert [paths.directory_of(number) for number in range(4)] == [Path("/a-b"), Path("/a"), Path("/c"), Path("/a-b")]


def test_full_directories_are_left_out_unless_all_are_full() -> None:
    paths = StorePaths.of(ROOT, settings(storePathCommitLog="/a,/b,/c"))
    assert [paths.directory_of(number, [Path("/b")]) for number in range(3)] == [Path("/a"), Path("/c"), Path("/a")]
    assert paths.directory_of(1, paths.commitlog) == Path("/b")


def test_read_only_directories_belong_to_the_log_and_get_nothing() -> None:
    given = settings(storePathCommitLog="/a,/b", readOnlyCommitLogStorePaths="/b,/c")
    paths = StorePaths.of(ROOT, given)
    assert paths.writable == (Path("/a"),)
    assert paths.log_directories == (Path("/a"), Path("/b"), Path("/c"))
    assert paths.directory_of(1) == Path("/a")
    again = StorePaths.of(ROOT, StoreSettings(paths.as_settings()))
    assert again == paths


def test_comma_after_one_directory_has_read_only_directories_read() -> None:
    given = settings(storePathCommitLog="/a,", readOnlyCommitLogStorePaths="/c")
    assert StorePaths.of(ROOT, given).log_directories == (Path("/a"), Path("/c"))


def test_read_only_directory_that_java_would_not_read_is_refused_if_it_has_segments(tmp_path: Path) -> None:
    given = settings(storePathCommitLog=tmp_path / "a", readOnlyCommitLogStorePaths=tmp_path / "c")
    assert StorePaths.of(tmp_path, given).log_directories == (tmp_path / "a",)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "00000000000000000000").write_bytes(b"")
    with pytest.raises(StoreLayoutError, match="only if storePathCommitLog has a comma"):
        StorePaths.of(tmp_path, given)
    with pytest.raises(StoreLayoutError, match="only if storePathCommitLog has a comma"):
        StorePaths.of(tmp_path, settings(readOnlyCommitLogStorePaths=tmp_path / "c"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/a,,/b", "empty directory name"),
        (",/b", "empty directory name"),
        ("/a, /b", "blanks around /b"),
        ("~/log", "does not expand"),
        ("${user.home}/log", "contains ${user.home}, which Java does not expand"),
        ("$HOME/log", "contains $HOME, which Java does not expand"),
        ('"/data/log"', "has quotation marks"),
        (",", "names no directory"),
    ],
)
def test_list_that_java_would_read_in_another_way_is_refused(text: str, told: str) -> None:
    with pytest.raises(SettingError, match=re.escape(told)):
        settings(storePathCommitLog=text)


def test_relative_paths_start_at_the_working_directory() -> None:
    paths = StorePaths.of(ROOT, settings(storePathCommitLog="$1/log"))
    assert paths.commitlog == (Path.cwd() / "$1" / "log",)


def test_one_directory_under_two_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    for other in (f"{tmp_path}/a/", tmp_path / "link"):
        with pytest.raises(SettingError, match="are the same directory"):
            StorePaths.of(tmp_path, settings(storePathCommitLog=f"{tmp_path}/a,{other}"))
    assert len(StorePaths.of(tmp_path, settings(storePathCommitLog="/a,/a,")).commitlog) == 1


def test_no_writable_directory_is_refused() -> None:
    with pytest.raises(SettingError, match="no segment can be"):
        StorePaths.of(ROOT, settings(storePathCommitLog="/a,/b", readOnlyCommitLogStorePaths="/b,/a"))


def test_settings_that_no_broker_reads_are_named_with_the_path_that_is_used(tmp_path: Path) -> None:
    given = settings(storePathConsumeQueue=tmp_path / "q", storePathIndex=tmp_path / "index", abortFile="/x/abort")
    (queues, abort) = ignored_paths(tmp_path, given)
    assert (queues.key, abort.key) == ("storePathConsumeQueue", "abortFile")
    assert queues.sentence.startswith(f"storePathConsumeQueue={tmp_path / 'q'} is not read")
    assert str(tmp_path / "consumequeue") in queues.sentence and "abortFile" in abort.sentence


def test_queues_where_only_an_ignored_setting_looks_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    given = settings(storePathConsumeQueue=tmp_path / "q")
    (tmp_path / "q" / "Topic" / "0").mkdir(parents=True)
    with pytest.raises(StoreLayoutError, match="do not read this setting; move the files"):
        StorePaths.of(root, given)
    (root / "consumequeue" / "Topic").mkdir(parents=True)
    assert StorePaths.of(root, given).root == root


def test_segments_of_all_directories_are_listed_by_base(tmp_path: Path) -> None:
    for name, bases in (("a", (0, 200)), ("b", (100,))):
        (tmp_path / name).mkdir()
        for base in bases:
            (tmp_path / name / f"{base:020d}").write_bytes(bytes(100))
    (tmp_path / "a" / "notes").write_bytes(b"")
    (tmp_path / "b" / f"{300:020d}").symlink_to(tmp_path / "a" / f"{0:020d}")
    (tmp_path / "link").symlink_to("b")
    given = settings(storePathCommitLog=f"{tmp_path / 'a'},{tmp_path / 'link'}")
    root = tmp_path / "store"
    root.mkdir()
    store = find_store_files(root, given)
    assert [segment.base for segment in store.segments] == [0, 100, 200]
    # A directory that the operator names may be a link; a link inside that leads out is not followed.
    assert sorted(entry.path.name for entry in store.foreign) == [f"{300:020d}", "notes"]
    (tmp_path / "a" / f"{200:020d}").rename(tmp_path / "a" / f"{100:020d}")
    with pytest.raises(StoreLayoutError, match="are the same segment") as refusal:
        find_store_files(root, given)
    assert str(tmp_path / "a") in str(refusal.value) and str(tmp_path / "link") in str(refusal.value)


def test_log_below_the_root_beside_a_configured_one_is_refused(tmp_path: Path) -> None:
    below = tmp_path / "store" / "commitlog"
    below.mkdir(parents=True)
    (below / f"{0:020d}").write_bytes(bytes(100))
    with pytest.raises(StoreLayoutError, match="if not, move it away"):
        find_store_files(tmp_path / "store", settings(storePathCommitLog=tmp_path / "elsewhere"))
    found = find_store_files(tmp_path / "store", settings(storePathCommitLog=f"{tmp_path / 'elsewhere'},{below}"))
    assert len(found.segments) == 1
