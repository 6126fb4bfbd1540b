"""The tour without Spark: every statement holds, and no file is moved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from orbitlog.cli.tour.tour_derived import compare_derived
from orbitlog.cli.tour.tour_picture import draw_report
from orbitlog.cli.tour.tour_report import TourReport
from orbitlog.doctor.examination import examine

PROGRAM = [sys.executable, "-c", "from orbitlog.cli.main import main; main()"]


def tour(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, "demo", *words], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A tour of a machine that has neither Java nor etcd."""
    kept = tmp_path_factory.mktemp("tour") / "kept"
    nowhere = str(tmp_path_factory.mktemp("no-java"))
    ran = tour(
        "--orders", "25", "--keep", str(kept), "--svg", str(kept) + ".svg", "--json", JAVA_HOME=nowhere, PATH=nowhere
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return kept, ran


@pytest.mark.xdist_group("tour")
def test_all_but_spark_is_shown_and_holds(done: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, ran = done
    report = json.loads(ran.stdout)
    assert report["holds"] and report["leftOut"] == ["the Spark part", "the failover"]
    shown = {each["name"]: each for each in report["shown"]}
    wanted = [
        *("up", "sent", "consumed", "delayed", "transactions", "console", "killed", "doctor", "checked", "access"),
    ]
    assert list(shown) == wanted and all(each["holds"] for each in shown.values())
    assert shown["sent"]["messages"] == shown["consumed"]["messages"] == 4 * (25 * 4 - 5 - 3)
    assert shown["consumed"]["outOfOrder"] == 0 and shown["delayed"]["delaySeconds"] >= 1
    assert shown["transactions"]["seen"] == ["paid"]
    assert shown["killed"]["acknowledged"] >= 1000 and shown["killed"]["missing"] == 0
    assert shown["doctor"]["files"] >= 9 and shown["doctor"]["different"] == []
    assert shown["access"]["ownTopic"] and not shown["access"]["otherTopic"] and not shown["access"]["unsigned"]
    assert {"Orders", "Payments", "Reminders"} <= set(shown["console"]["topics"])
    assert "skipped: the Spark part: Spark needs Java" in ran.stderr
    assert "skipped: the failover: etcd is not installed" in ran.stderr


@pytest.mark.xdist_group("tour")
def test_result_equals_the_report(done: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    kept, ran = done
    report = json.loads(ran.stdout)
    store = Path(report["places"]["store"])
    assert store.is_relative_to(kept) and all(Path(place).exists() for place in report["places"].values())
    examined = examine(store)
    (told,) = [each for each in report["shown"] if each["name"] == "checked"]
    assert examined.is_sound and examined.check.messages == told["messages"]
    assert not compare_derived(Path(report["places"]["derived before"]), store).different


@pytest.mark.xdist_group("tour")
def test_the_picture_is_of_this_run(done: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    kept, _ = done
    drawn = Path(str(kept) + ".svg").read_text()
    ElementTree.fromstring(drawn)
    assert drawn.startswith("<svg") and "no&#160;message&#160;lost&#160;by&#160;kill&#160;-9" in drawn
    outside = drawn.replace("http://www.w3.org/2000/svg", "").replace("http://127.0.0.1:", "")  # the console's address
    assert str(kept) not in drawn and "http" not in outside


def test_nothing_is_overwritten(run: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep me")
    ran = run("demo", "--keep", tmp_path)
    assert (ran.exit_code, len(ran.sentences)) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_does_not_hold_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = TourReport(as_json=False)
    report.show("one", "a thing", "went well")
    report.show("other", "another", "2 are missing", holds=False, missing=2)
    places = {"store": str(tmp_path / "store")}
    report.write_end(places)
    said = capsys.readouterr().out
    assert "FAILED: 2 are missing" in said and "NOT all as expected" in said
    assert report.as_object(places)["holds"] is False
    draw_report(report, places, tmp_path / "tour.svg")
    assert "NOT" in (tmp_path / "tour.svg").read_text()


def test_picture_has_every_line_within_its_width_and_the_times(tmp_path: Path) -> None:
    report = TourReport(as_json=False)
    report.begin("an act")
    report.show("one", "a <thing>", f"{tmp_path}/store " + "x" * 200)
    report.leave_out("another", "no reason")
    draw_report(report, {"store": str(tmp_path / "store")}, tmp_path / "tour.svg")
    drawn = ElementTree.parse(tmp_path / "tour.svg").getroot()
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    texts = [element for element in drawn if element.tag.endswith("}text")]
    assert all(
        float(text.attrib["x"]) + float(text.attrib.get("textLength", 0)) <= width and float(text.attrib["y"]) < height
        for text in texts
    )
    shown = ["".join(text.itertext()).replace("\xa0", " ") for text in texts]
    assert {"an act", "a <thing>", "another", "skipped", "took", "0.0 s"} <= set(shown)
    assert any(text.startswith("DIR/store xxx") and text.endswith("…") for text in shown)


def test_a_lost_or_changed_file_is_noticed(tmp_path: Path) -> None:
    for side in ("left", "right"):
        for queue in ("0", "1"):
            directory = tmp_path / side / "consumequeue" / "Orders" / queue
            directory.mkdir(parents=True)
            (directory / f"{0:020d}").write_bytes(bytes(20))
    assert compare_derived(tmp_path / "left", tmp_path / "right").different == ()
    changed = tmp_path / "right" / "consumequeue" / "Orders" / "0" / f"{0:020d}"
    changed.write_bytes(bytes(19) + b"\1")
    (tmp_path / "left" / "consumequeue" / "Orders" / "1" / f"{0:020d}").unlink()
    compared = compare_derived(tmp_path / "left", tmp_path / "right")
    assert len(compared.different) == 2
