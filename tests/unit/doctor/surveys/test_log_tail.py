"""Log tail: what is reported first about a log that ends in zeros, and what it takes to be reported."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.doctor.examination import examine
from orbitlog.doctor.finding_kinds import MEANINGS, Severity
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.store_state import STATE_FILE
from orbitlog.formats.records.message import Message
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.findings import FindingKind
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.sample_messages import sample_messages
from tests.support.repaired_stores import fingerprint

GEOMETRY = StoreGeometry(32 * 1024, 1220, index_layout=IndexLayout(307, 905))
CONFIG = StoreConfig(GEOMETRY)
NOW_MS = 1_790_000_000_000


@pytest.fixture(scope="module")
def sound_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that Orbitlog wrote and closed."""
    root = tmp_path_factory.mktemp("sound") / "store"
    clock = count(NOW_MS, 5)
    with MessageStore.open(root, CONFIG, lambda: next(clock)) as store:
        topics = {message.topic: store.append(message) for message in sample_messages(NOW_MS)}
    (root / "config").mkdir()
    table = TopicTable({topic: TopicConfig(topic) for topic in topics})
    (root / "config" / TOPICS.name).write_text(TOPICS.encode(table, COMPAT_5_5))
    return root


@pytest.fixture
def store(sound_store: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound_store, tmp_path / "store")


def messages_of(root: Path) -> list[Message]:
    return [message for message, _ in LogWalk(find_store_files(root).segments, GEOMETRY.segment_bytes).records()]


def zero_from(root: Path, physical_offset: int) -> None:
    """Write zeros from an offset to the end of the log, as lost pages read."""
    for segment in find_store_files(root).segments:
        position = max(physical_offset - segment.base, 0)
        if position < segment.size_bytes:
            content = segment.path.read_bytes()[:position]
            segment.path.write_bytes(content.ljust(segment.size_bytes, b"\0"))


def as_java(root: Path) -> None:
    (root / STATE_FILE).unlink()


def as_orbitlog(root: Path) -> None:
    assert (root / STATE_FILE).exists()


@pytest.mark.parametrize("writer", [as_java, as_orbitlog])
def test_log_that_ends_in_zeros_is_reported_before_what_follows_from_it(store: Path, writer: object) -> None:
    writer(store)  # type: ignore[operator]
    cut = messages_of(store)[-20].physical_offset
    zero_from(store, cut)
    first, *others = examine(store).problems
    assert (first.finding.kind, first.finding.physical_offset) == (FindingKind.LOG_END, cut)
    assert "queues have units for" in first.finding.reason
    assert first.severity is Severity.ERROR and first.command == f"orbitlog doctor repair {store}"
    assert {one.finding.kind for one in others} >= {FindingKind.QUEUE_UNIT, FindingKind.INDEX, FindingKind.CHECKPOINT}
    derived = [one for one in others if MEANINGS[one.finding.kind].part is not None]
    assert {one.command for one in derived} == {f"orbitlog doctor repair {store}"}, "a rebuild would drop units"


def test_nothing_is_rebuilt_from_a_log_that_ends_in_zeros(store: Path, tmp_path: Path) -> None:
    zero_from(store, messages_of(store)[-20].physical_offset)
    before = fingerprint(store)
    for arguments in ([], ["--queues"], ["--index", "--out", str(tmp_path / "out")], ["--queues", "--dry-run"]):
        result = CliRunner().invoke(cli, ["doctor", "rebuild", str(store), *arguments])
        assert result.exit_code == 1, result.output
        assert "the log ends here" in result.output
        assert fingerprint(store) == before
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("writer", [as_java, as_orbitlog])
def test_repair_gives_up_what_the_zeros_replaced_and_every_start_agrees(store: Path, writer: object) -> None:
    writer(store)  # type: ignore[operator]
    messages = messages_of(store)
    cut = messages[-20]
    # The zeros begin inside of properties, which no checksum of a record covers.
    zero_from(store, cut.physical_offset + cut.size_bytes - 4)
    assert {FindingKind.LOG_END, FindingKind.TORN_RECORD} <= {one.finding.kind for one in examine(store).problems}
    with pytest.raises(StoreLayoutError, match="orbitlog doctor repair"):
        MessageStore.open(store, CONFIG, lambda: NOW_MS)
    repaired = apply_repair(store)
    assert repaired.is_sound, repaired.problems
    for _ in range(3):
        MessageStore.open(store, CONFIG, lambda: NOW_MS).close()
        assert messages_of(store) == messages[:-20]
        assert examine(store).is_sound


def test_tail_that_a_crash_left_is_no_short_log(store: Path) -> None:
    """Pages of queues may be written back before those of the log: units alone prove nothing after a crash."""
    as_java(store)
    (store / tree.ABORT).touch()
    (store / tree.CHECKPOINT).unlink()
    zero_from(store, messages_of(store)[-1].physical_offset)
    kinds = {one.finding.kind for one in examine(store).problems}
    assert FindingKind.QUEUE_UNIT in kinds
    assert not kinds & {FindingKind.LOG_END, FindingKind.TORN_RECORD}


def test_findings_are_in_the_order_of_their_ranks(store: Path) -> None:
    messages = messages_of(store)
    zero_from(store, messages[-5].physical_offset)
    segment = find_store_files(store).segments[0].path
    content = bytearray(segment.read_bytes())
    content[messages[3].physical_offset + 4] ^= 1
    segment.write_bytes(content)
    kinds = [finding.kind for finding in examine(store).findings]
    assert {FindingKind.LOG_END, FindingKind.RECORD, FindingKind.QUEUE_UNIT} <= set(kinds)
    ranks = [MEANINGS[kind].rank for kind in kinds]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("name", [tree.CHECKPOINT, STATE_FILE])
def test_small_file_that_is_a_directory_or_a_link_is_a_finding_at_most(store: Path, tmp_path: Path, name: str) -> None:
    (store / name).rename(tmp_path / "moved")
    (store / name).mkdir()
    assert FindingKind.LOG_END not in {one.kind for one in examine(store).findings}
    (store / name).rmdir()
    (store / name).symlink_to(tmp_path / "moved")
    assert FindingKind.LOG_END not in {one.kind for one in examine(store).findings}
