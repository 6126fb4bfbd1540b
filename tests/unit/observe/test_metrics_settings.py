"""Settings of metrics: Java's names and numbers, honoured or refused."""

from __future__ import annotations

import pytest

from orbitlog.observe import metrics_settings as keys
from orbitlog.settings.setting import SettingError


@pytest.mark.parametrize(("text", "kind"), [("PROM", "PROM"), ("2", "PROM"), ("DISABLE", "DISABLE"), ("0", "DISABLE")])
def test_exporter_by_name_and_number(text: str, kind: str) -> None:
    assert keys.EXPORTER.check(text, "a test") == kind


@pytest.mark.parametrize("text", ["OTLP_GRPC", "1", "LOG", "3", "prom", ""])
def test_exporter_that_is_not_supported_refused(text: str) -> None:
    with pytest.raises(SettingError, match=f"metricsExporterType={text} from a test"):
        keys.EXPORTER.check(text, "a test")


def test_labels_parsed() -> None:
    assert keys.label_pairs(keys.LABELS.check("env:prod, zone:a:1", "a test")) == (("env", "prod"), ("zone", "a:1"))


@pytest.mark.parametrize("text", ["env", "env:", "1env:x", 'e"v:x', ",".join(f"l{n}:x" for n in range(33))])
def test_invalid_labels_refused(text: str) -> None:
    with pytest.raises(SettingError):
        keys.LABELS.check(text, "a test")


def test_delta_refused() -> None:
    with pytest.raises(SettingError, match="only grow"):
        keys.IN_DELTA.check("true", "a test")
