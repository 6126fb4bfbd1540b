"""Alert rules of deploy/: known metrics, runbooks that exist, and promtool's own checks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from orbitlog.observe.metric_table import ALL
from tests.support.prometheus_server import prometheus_directory

ROOT = Path(__file__).parents[1]
RULES = ROOT / "deploy" / "prometheus"
ALERTS = (RULES / "orbitlog-alerts.yml").read_text()
KNOWN = {metric.name for metric in ALL}


def promtool(*words: str) -> None:
    ran = subprocess.run([prometheus_directory() / "promtool", *words], cwd=RULES, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["orbitlog-alerts.yml", "orbitlog-rules.yml"])
def test_rules_use_known_metrics(name: str) -> None:
    text = (RULES / name).read_text()
    used = set(re.findall(r"(?<![:\w])(?:rocketmq|orbitlog)_\w+(?![:\w])", text))
    assert used
    for metric in used:
        assert metric in KNOWN or re.sub(r"_(bucket|sum|count)$", "", metric) in KNOWN, metric


def test_every_alert_has_a_runbook_and_two_cases() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    cases = (RULES / "orbitlog-alerts-test.yml").read_text()
    names = re.findall(r"- alert: (\w+)", ALERTS)
    assert names
    for name in names:
        assert f"\n## {name}\n" in page
        assert f"runbook_url: docs/alerts.md#{name.lower()}\n" in ALERTS
        assert cases.count(f'alertname="{name}"') == 2


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", "orbitlog-alerts.yml", "orbitlog-rules.yml")


def test_alerts_fire_and_stay_silent() -> None:
    promtool("test", "rules", "orbitlog-alerts-test.yml")
