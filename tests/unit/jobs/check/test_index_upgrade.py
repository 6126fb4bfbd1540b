"""An upgrade from 4.9 to 5.5 leaves index entries without keys for tags: sound, and checked entry by entry."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout, decode_header
from orbitlog.formats.records.message import Message
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.jobs.check.index_upgrade import untagged_before
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.inferred_rules import sampled_rules
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.sample_messages import sample_messages

START_MS = 1_790_000_000_000
LAYOUT = IndexLayout(307, 905)


def written(root: Path, *turns: tuple[Compat, int, int]) -> Path:
    """Write messages from one number to another with the rules of each version in turn."""
    clock = count(START_MS, 5)
    messages = [message for message in sample_messages(START_MS) if message.topic != "SCHEDULE_TOPIC_XXXX"]
    for compat, first, stop in turns:
        config = StoreConfig(StoreGeometry(32 * 1024, 1220, index_layout=LAYOUT), DeriveRules(compat))
        with MessageStore.open(root, config, lambda: next(clock)) as store:
            for message in messages[first:stop]:
                store.append(message)
    table = TopicTable({message.topic: TopicConfig(message.topic) for message in messages})
    (root / "config").mkdir()
    (root / "config" / TOPICS.name).write_text(TOPICS.encode(table, COMPAT_5_5))
    return root


@pytest.mark.parametrize("before", [3, 150, 290])
@pytest.mark.parametrize("split_bytes", [10_000, 1 << 20])
def test_upgraded_index_is_sound(before: int, split_bytes: int, tmp_path: Path) -> None:
    root = written(tmp_path / "store", (COMPAT_4_9, 0, before), (COMPAT_5_5, before, 300))
    store = find_store_files(root)
    assert untagged_before(store, StoreSettings(), sampled_rules(store, StoreSettings())) > 0
    found = examine(root, split_bytes=split_bytes)
    assert found.is_sound, [str(one) for one in found.problems]
    assert found.check.keys > 500


@pytest.mark.parametrize("number", [0, -1])
def test_damage_of_an_upgraded_index_is_found(number: int, tmp_path: Path) -> None:
    root = written(tmp_path / "store", (COMPAT_4_9, 0, 200), (COMPAT_5_5, 200, 500))
    assert examine(root).is_sound
    path = sorted((root / "index").iterdir())[number]
    data = bytearray(path.read_bytes())
    data[LAYOUT.entry_position(7) + 2] ^= 1
    assert decode_header(data).key_count > 7
    path.write_bytes(data)
    assert {one.finding.kind for one in examine(root).problems} == {"index"}


def test_missing_keys_for_tags_are_not_taken_for_an_upgrade(tmp_path: Path) -> None:
    """4.9 after 5.5: no upgrade leaves this."""
    root = written(tmp_path / "store", (COMPAT_5_5, 0, 150), (COMPAT_4_9, 150, 160), (COMPAT_5_5, 160, 300))
    assert {one.finding.kind for one in examine(root).problems} == {"index"}


@pytest.mark.parametrize("compat", [COMPAT_4_9, COMPAT_5_5])
def test_store_of_one_version_has_no_boundary(compat: Compat, tmp_path: Path) -> None:
    root = written(tmp_path / "store", (compat, 0, 100))
    store = find_store_files(root)
    assert untagged_before(store, StoreSettings(), sampled_rules(store, StoreSettings())) == 0
    shutil.rmtree(root / "index")
    store = find_store_files(root)
    assert untagged_before(store, StoreSettings(), sampled_rules(store, StoreSettings())) == 0


def test_messages_without_tags_do_not_hide_the_boundary(tmp_path: Path) -> None:
    def untagged(message: Message) -> Message:
        raw = b"\x02".join(one for one in message.properties_raw.split(b"\x02") if not one.startswith(b"TAGS"))
        return message._replace(properties_raw=raw)

    root, clock = tmp_path / "store", count(START_MS, 5)
    messages = list(sample_messages(START_MS))
    for compat, part in ((COMPAT_4_9, messages[:40]), (COMPAT_5_5, messages[40:300])):
        config = StoreConfig(StoreGeometry(32 * 1024, 1220, index_layout=LAYOUT), DeriveRules(compat))
        with MessageStore.open(root, config, lambda: next(clock)) as store:
            for number, message in enumerate(part):
                store.append(message if number in (30, 250) else untagged(message))
    found = examine(root)
    assert "index" not in {one.kind for one in found.findings}, [str(one) for one in found.problems]
