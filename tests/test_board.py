"""Dashboard of deploy/: equal to its generator, with known metrics and variables that are used."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from orbitlog.observe.metric_table import ALL
from tools import generate_board

KNOWN = {metric.name for metric in ALL} | {"up"}
BOARD = json.loads(generate_board.TARGET.read_text())


def test_file_is_the_one_that_the_generator_writes() -> None:
    assert generate_board.TARGET.read_text() == generate_board.text(), "run python tools/generate_board.py"


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells and place["x"] + place["w"] <= 24, panel["title"]
        cells |= own


def test_every_variable_is_used_and_every_used_one_declared() -> None:
    text = json.dumps(BOARD)
    declared = {variable["name"] for variable in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"}
    assert used == declared


@pytest.mark.parametrize("query", list(generate_board.queries()), ids=lambda query: query.expr[:60])
def test_queries_use_known_metrics(query: generate_board.Query) -> None:
    names = re.findall(r"\b(?:rocketmq|orbitlog|process)_\w+|\bup\b", query.expr)
    assert names
    for name in names:
        assert name in KNOWN or re.sub(r"_(bucket|sum|count)$", "", name) in KNOWN, name


def test_prometheus_is_looked_for_without_being_installed(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PROMETHEUS_DIR": str(tmp_path), "SYSTEM_PACKAGES": "no"}
    tool = Path(__file__).parents[1] / "tools" / "find_prometheus"
    missing = subprocess.run([tool, "--install"], env=environment, capture_output=True, text=True)
    programs = tmp_path / "usr" / "bin"
    programs.mkdir(parents=True)
    for name in ("prometheus", "promtool"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    found = subprocess.run([tool], env=environment, capture_output=True, text=True)
    assert found.returncode == 0 and found.stdout.strip().endswith("/bin")
    assert missing.returncode == 0 or "install the package prometheus" in missing.stderr
