from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.errors import FormatError, LimitExceeded, RequestRefused
from orbitlog.nameserver.kv_configs import EMPTY_NAMESPACES_MAX, KvConfigs
from orbitlog.settings.limits import Limits


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


def test_number_of_values_is_limited() -> None:
    limits = Limits({"kvConfigsMax": 2})
    configs = KvConfigs(limits=limits)
    configs.put("N", "a", "v")
    configs.put("M", "b", "v")
    configs.put("M", "b", "w")
    with pytest.raises(RequestRefused, match="kvConfigsMax"):
        configs.put("M", "c", "v")
    with pytest.raises(LimitExceeded):
        configs.put("N", "a", "v" * (64 * 1024 + 1))
    assert limits.reached["kvConfigsMax"] == 1
    configs.delete("N", "a")
    configs.put("M", "c", "v")


def test_size_of_all_values_is_limited() -> None:
    limits = Limits({"kvConfigBytesMax": 1_000})
    configs = KvConfigs(limits=limits)
    configs.put("N", "a", "v" * 900)
    with pytest.raises(RequestRefused, match="kvConfigBytesMax"):
        configs.put("N", "b", "v" * 200)
    configs.put("N", "a", "v" * 700)
    configs.put("N", "b", "v" * 200)
    assert limits.reached["kvConfigBytesMax"] == 1


def test_number_of_empty_namespaces_that_are_kept_is_limited() -> None:
    configs = KvConfigs()
    for number in range(EMPTY_NAMESPACES_MAX + 50):
        configs.put(f"N{number}", "a", "v")
        configs.delete(f"N{number}", "a")
    kept = [number for number in range(EMPTY_NAMESPACES_MAX + 50) if configs.namespace(f"N{number}") is not None]
    assert kept == list(range(EMPTY_NAMESPACES_MAX))
