"""Settings from broker.conf and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.settings import store_settings as table
from orbitlog.settings.properties_file import parse_properties, read_properties
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.settings.setting import SettingError, split_assignment
from orbitlog.settings.store_settings import StoreSettings, check_setting, load_settings, similar_keys


def test_defaults_are_those_of_java() -> None:
    settings = load_settings(None, [])
    assert settings.value(table.SEGMENT_BYTES) == 1073741824
    assert settings.value(table.QUEUE_FILE_BYTES) == 6_000_000
    assert settings.value(table.EXT_QUEUE_FILE_BYTES) == 50331648
    assert (settings.value(table.SLOT_COUNT), settings.value(table.ENTRY_COUNT)) == (5_000_000, 20_000_000)
    assert settings.value(table.DELAY_LEVELS).max_level == 18
    assert settings.value(table.MULTI_DISPATCH) is False
    assert settings.value(table.COMPAT) is COMPAT_5_5
    assert settings.index_layout is None
    assert all(settings.given(setting) is None for setting in (table.SEGMENT_BYTES, table.SLOT_COUNT))


def test_every_default_can_be_written_and_every_setting_states_what_it_means() -> None:
    for key, setting in table.SETTINGS.items():
        assert setting.key == key
        assert setting.help
        if isinstance(setting.default, int):
            assert setting.parse(str(setting.default).lower()) == setting.default


def test_a_file_and_what_wins_over_it(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(
        b"# a broker\nbrokerName = br\xc3\xb6ker\nmappedFileSizeCommitLog=65536\nmaxHashSlotNum=200\ncompat=5.5\n"
    )
    settings = load_settings(conf, ["compat=4.9", "maxIndexNum=400", "enableMultiDispatch=TRUE"])
    assert settings.given(table.SEGMENT_BYTES) == 65536
    assert settings.value(table.COMPAT) is COMPAT_4_9
    assert settings.value(table.MULTI_DISPATCH) is True
    assert settings.index_layout == IndexLayout(200, 400)
    assert settings.unknown == () and settings.warnings == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mappedFileSizeCommitLog", "0"),
        ("mappedFileSizeCommitLog", "100"),
        ("mappedFileSizeCommitLog", "1G"),
        ("mappedFileSizeCommitLog", ""),
        ("mappedFileSizeCommitLog", "-1"),
        ("mappedFileSizeCommitLog", "99999999999999999999"),
        ("mappedFileSizeConsumeQueue", "1001"),
        ("maxIndexNum", "1"),
        ("messageDelayLevel", "1x 2y"),
        ("enableMultiDispatch", "yes"),
        ("fileReservedTime", "-1"),
        ("deleteWhen", "24"),
        ("deleteWhen", "04;"),
        ("deleteWhen", "004"),
        ("cleanFileForciblyEnable", "1"),
        ("compat", "6.0"),
    ],
)
def test_a_bad_value_names_key_value_and_source(key: str, value: str, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{key}={value}\n")
    for source, load in (
        (str(conf), lambda: load_settings(conf, [])),
        ("the command line", lambda: load_settings(None, [f"{key}={value}"])),
    ):
        with pytest.raises(SettingError) as caught:
            load()
        sentence = str(caught.value)
        assert sentence.startswith(f"{key}={value} from {source}: ")
        assert len(sentence.splitlines()) == 1


@pytest.mark.parametrize("text", ["novalue", "=x", " =x"])
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(SettingError, match="is not key=value"):
        split_assignment(text)


def test_an_assignment_keeps_further_equal_signs() -> None:
    assert split_assignment("a = b=c ") == ("a", "b=c")
    check_setting("messageDelayLevel", "1s 2m", "here")


def test_load_settings_reports_only_what_concerns_a_store(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "brokerName=a\nbrokerRole=SYNC_MASTER\naclEnable=true\nhaListenPort=1\nvipChannelEnable=false\naclEnabled=true\n"
        "storePathRootDir=/data\nstorePathCommitLog=/data/commitlog\nenableDLegerCommitLog=true\nqqqq=1\n"
    )
    settings = load_settings(conf, ["listenPort=1"])
    assert settings.unknown == ("aclEnabled", "qqqq", "listenPort")
    assert [sentence.partition(" ")[0] for sentence in settings.warnings] == ["enableDLegerCommitLog=true"]


def test_load_settings_log_elsewhere_under_a_mistyped_key_is_refused(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("storePathRootDir=/data\nstorePathCommitlog=/b\n")
    with pytest.raises(SettingError, match="storePathCommitlog=/b from "):
        load_settings(conf, [])


def test_typing_errors_get_a_hint() -> None:
    assert similar_keys("MappedFileSizeCommitlog") == ["mappedFileSizeCommitLog"]
    assert similar_keys("brokerName") == []
    assert StoreSettings().unknown == ()


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a = b \r\nc:d\rE f", {"a": "b", "c": "d", "E": "f"}),
        ("# no\n! no\n   # no\n\n a=b", {"a": "b"}),
        ("a=one, \\\n    two", {"a": "one, two"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b c", {"a b": "c"}),
        ("a=\\u00e9\\t\\x", {"a": "é\tx"}),
        ("a=b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=#b", {"a": "#b"}),
        ("a=b\\", {"a": "b"}),
        ("a=1\\\n#b", {"a": "1#b"}),
    ],
)
def test_properties_as_java_reads_them(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


@pytest.mark.parametrize("line", ["brokerName=\\u00zz", "storePathRootDir=C:\\users\\x", "a=b\\\\\\u12", "k\\uq=1"])
def test_malformed_escape_in_a_file_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"brokerId=0\n{line}\n")
    with pytest.raises(SettingError, match=r"broker.conf: malformed \\u escape; write a backslash as two"):
        load_settings(path, [])


def test_escaped_backslash_before_a_letter_is_not_an_escape(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("messageDelayLevel=1s\\\\u0020\n")
    assert read_properties(path) == {"messageDelayLevel": "1s\\u0020"}


def test_blanks_at_the_end_of_a_path_are_refused(tmp_path: Path) -> None:
    assert parse_properties("storePathRootDir=/data \nbrokerId=0 \n") == {"storePathRootDir": "/data ", "brokerId": "0"}
    path = tmp_path / "broker.conf"
    path.write_text("storePathCommitLog=/data \n")
    with pytest.raises(SettingError, match="blanks"):
        load_settings(path, [])


def test_retention_from_settings() -> None:
    assert load_settings(None, []).retention == RetentionPolicy()
    given = ["fileReservedTime=48", "deleteWhen=04;16", "diskMaxUsedSpaceRatio=60", "diskSpaceCleanForciblyRatio=99"]
    given += ["diskSpaceWarningLevelRatio=80", "cleanFileForciblyEnable=false", "deleteFileBatchMax=3"]
    assert load_settings(None, given).retention == RetentionPolicy(48, (4, 16), 60, 85, 80, False, 3)
