from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.errors import BadField, FormatError
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.timer_checkpoint import TimerCheckpoint
from orbitlog.formats.tables.config_files import (
    CONFIG_CODECS,
    ChosenConfig,
    ConfigSource,
    choose_config,
    config_codec,
)
from orbitlog.formats.tables.topic_config import TopicConfig, TopicTable, decode_topics, encode_topics
from orbitlog.testing.golden import GoldenStore
from tests.support.damage import gives_value_or_format_error


@pytest.fixture
def golden_files(golden_497: GoldenStore, golden_550_crash: GoldenStore) -> list[tuple[Path, Compat]]:
    return [
        (path, compat)
        for golden, compat in ((golden_497, COMPAT_4_9), (golden_550_crash, COMPAT_5_5))
        for path in sorted((golden.store / "config").iterdir())
    ]


def test_every_golden_file_goes_through_its_codec_unchanged(golden_files: list[tuple[Path, Compat]]) -> None:
    assert len(golden_files) == 28
    for path, compat in golden_files:
        codec, raw = config_codec(path.name), path.read_bytes()
        value = codec.decode(raw)
        assert isinstance(value, codec.kind)
        assert codec.encode(value, compat) == raw, path.name
        assert getattr(value, "unknown", {}) == {}, path.name


def test_every_golden_file_has_a_json_form(golden_files: list[tuple[Path, Compat]]) -> None:
    for path, _ in golden_files:
        shown = config_codec(path.name).to_json(path.read_bytes())
        assert isinstance(shown, dict)
        if path.name == "timercheck":
            assert shown["lastTimerQueueOffset"] == 29
            assert shown["dataVersion"] == {"counter": 58, "stateVersion": 0, "timestamp": 1794732333308}


def test_damaged_files_are_a_value_or_a_format_error(golden_files: list[tuple[Path, Compat]]) -> None:
    for path, _ in golden_files:
        raw = path.read_bytes()
        if len(raw) < 500:
            gives_value_or_format_error(config_codec(path.name).decode, raw)
        else:
            gives_value_or_format_error(config_codec(path.name).decode, raw[:60] + raw[-200:], step=3)


def test_names() -> None:
    assert len(CONFIG_CODECS) == 14
    assert config_codec("topics.json.bak") is config_codec("topics.json")
    assert config_codec("timercheck").kind is TimerCheckpoint
    with pytest.raises(BadField, match=r"topics\.json"):
        config_codec("broker.conf")


GOOD, OTHER, BAD = b'{"a":{0:1}}', b'{"b":2}', b'{"a":'


@pytest.mark.parametrize("missing", [None, b""])
def test_file_is_used_first_and_the_backup_if_it_is_missing(missing: bytes | None) -> None:
    assert choose_config(GOOD, OTHER) == ChosenConfig(ConfigSource.MAIN, {"a": {0: 1}})
    assert choose_config(GOOD, missing) == ChosenConfig(ConfigSource.MAIN, {"a": {0: 1}})
    assert choose_config(GOOD, BAD) == ChosenConfig(ConfigSource.MAIN, {"a": {0: 1}})
    assert choose_config(missing, OTHER) == ChosenConfig(ConfigSource.BACKUP, {"b": 2})
    assert choose_config(BAD, OTHER) == ChosenConfig(ConfigSource.BACKUP, {"b": 2})
    assert choose_config(missing, missing) is None


@pytest.mark.parametrize(("main", "backup"), [(None, BAD), (b"", BAD), (BAD, BAD), (BAD, None), (BAD, b"")])
def test_damage_without_a_way_out_is_an_error(main: bytes | None, backup: bytes | None) -> None:
    with pytest.raises(FormatError, match="line 1 column 6"):
        choose_config(main, backup)


def test_json_file_that_is_not_a_table_is_not_used() -> None:
    table = TopicTable({"T": TopicConfig("T")})
    backup = encode_topics(table, COMPAT_5_5).encode()
    assert choose_config(b'{"topicConfigTable":5}', backup, decode_topics) == ChosenConfig(ConfigSource.BACKUP, table)
    assert choose_config(backup, None, decode_topics) == ChosenConfig(ConfigSource.MAIN, table)


def test_bytes_that_are_not_utf_8_read_as_java_reads_them() -> None:
    chosen = choose_config(b'{"a":"\xff"}', None)
    assert chosen is not None
    assert chosen.value == {"a": "\ufffd"}
