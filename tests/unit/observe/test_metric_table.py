"""The metric table against the families that an Apache broker 5.5.0 showed after traffic of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitlog.observe.metric_table import ALL
from tests.support.apache_metrics import ABSENT, SHARED_LABELS

TABLE = {metric.name: metric for metric in ALL}
OBSERVED = json.loads((Path(__file__).parents[2] / "support" / "apache_metrics.json").read_text())["families"]


@pytest.mark.parametrize("name", sorted(OBSERVED.keys() - ABSENT))
def test_family_has_apaches_type_labels_and_buckets(name: str) -> None:
    metric, observed = TABLE[name], OBSERVED[name]
    assert metric.kind == observed["type"] or (metric.kind, observed["type"]) == ("info", "gauge")
    fixed = {pair.partition("=")[0] for pair in metric.fixed.split(",") if pair}
    shared = SHARED_LABELS if metric.kind != "info" else set()
    assert {*metric.labels, *fixed, *shared} == set(observed["labels"])
    assert [*map(str, metric.buckets), "+Inf"] == observed.get("buckets", ["+Inf"])


def test_absent_families_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    assert all(f"`{name}`" in page for name in ABSENT)
