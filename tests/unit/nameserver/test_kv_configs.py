from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.errors import FormatError, LimitExceeded
from orbitlog.nameserver import kv_configs
from orbitlog.nameserver.kv_configs import KvConfigs


def test_values_by_namespace_and_key() -> None:
    configs = KvConfigs()
    assert configs.get("N", "k") is None
    assert configs.namespace("N") is None
    configs.put("N", "k", "v")
    configs.put("N", "k", "w")
    assert configs.get("N", "k") == "w"
    assert configs.namespace("N") == {"k": "w"}
    configs.delete("N", "k")
    configs.delete("N", "k")
    configs.delete("M", "k")
    assert configs.get("N", "k") is None
    assert configs.namespace("N") == {}


def test_values_are_saved_in_the_file_of_java(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kvConfig.json"
    configs = KvConfigs(path)
    configs.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4;broker-b:4")
    assert path.read_bytes() == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4;broker-b:4"}}}'
    assert KvConfigs(path).get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4;broker-b:4"
    configs.delete("ORDER_TOPIC_CONFIG", "T")
    assert KvConfigs(path).namespace("ORDER_TOPIC_CONFIG") == {}
    assert [each.name for each in path.parent.iterdir()] == ["kvConfig.json"]


def test_file_in_the_format_of_java_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{\n\t\t"N":{"k":"v"}\n\t},\n\t"more":1\n}')
    assert KvConfigs(path).get("N", "k") == "v"


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"N":')
    with pytest.raises(FormatError):
        KvConfigs(path)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 513])
def test_names_are_checked(name: str) -> None:
    configs = KvConfigs()
    for namespace, key in ((name, "k"), ("N", name)):
        with pytest.raises(FormatError):
            configs.put(namespace, key, "v")
    assert configs.namespace("N") is None


def test_number_of_values_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_configs, "ENTRIES_MAX", 2)
    configs = KvConfigs()
    configs.put("N", "a", "v")
    configs.put("M", "b", "v")
    configs.put("M", "b", "w")
    with pytest.raises(LimitExceeded):
        configs.put("M", "c", "v")
    with pytest.raises(LimitExceeded):
        configs.put("N", "a", "v" * (64 * 1024 + 1))
