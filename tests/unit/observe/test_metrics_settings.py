"""Settings of metrics: Java's names and numbers, honoured or refused."""

from __future__ import annotations

import pytest

from orbitlog.observe import metrics_settings as keys
from orbitlog.settings.setting import SettingError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *(("PROM", "PROM"), ("2", "PROM"), ("DISABLE", "DISABLE"), ("0", "DISABLE"), ("OTLP_GRPC", "OTLP_GRPC")),
        *(("1", "OTLP_GRPC"), ("LOG", "LOG"), ("3", "LOG"), ("OTLP_HTTP", "OTLP_HTTP")),
    ],
)
def test_exporter_by_name_and_number(text: str, kind: str) -> None:
    assert keys.EXPORTER.check(text, "a test") == kind


@pytest.mark.parametrize("text", ["4", "prom", "OTLP", ""])
def test_unknown_exporter_refused(text: str) -> None:
    with pytest.raises(SettingError, match=f"metricsExporterType={text} from a test"):
        keys.EXPORTER.check(text, "a test")


@pytest.mark.parametrize("text", ["http://127.0.0.1:4317", "collector:4317", "https://h/otlp", ""])
def test_collector_addresses(text: str) -> None:
    assert keys.GRPC_TARGET.check(text, "a test") == text


@pytest.mark.parametrize("text", ["ftp://h", "http://", "http://user@h", "http://h:port", "http://h:70000"])
def test_invalid_collector_addresses_refused(text: str) -> None:
    with pytest.raises(SettingError):
        keys.HTTP_TARGET.check(text, "a test")


@pytest.mark.parametrize("text", ["a:b\n", "a", "ä:b", ":b"])
def test_invalid_headers_refused(text: str) -> None:
    with pytest.raises(SettingError):
        keys.GRPC_HEADERS.check(text, "a test")


def test_export_without_its_package_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {keys.EXPORTER: keys.OTLP_GRPC, keys.GRPC_TARGET: "http://h:1"}
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(SettingError, match=r"orbitlog\[grpc\]"):
        keys.check_export(lambda setting: values[setting])


def test_labels_parsed() -> None:
    assert keys.label_pairs(keys.LABELS.check("env:prod, zone:a:1", "a test")) == (("env", "prod"), ("zone", "a:1"))


@pytest.mark.parametrize("text", ["env", "env:", "1env:x", 'e"v:x', ",".join(f"l{n}:x" for n in range(33))])
def test_invalid_labels_refused(text: str) -> None:
    with pytest.raises(SettingError):
        keys.LABELS.check(text, "a test")
