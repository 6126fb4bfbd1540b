"""Marks of the sink: which partitions were begun, at which brokers, and which are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from orbitlog.pipeline.sink.sink_marks import BegunMark, PartitionReport, marks_at
from orbitlog.pipeline.sink.write_identity import WriteIdentity

ONE = WriteIdentity("write", 4, 2)


def test_begun_mark_names_a_broker_that_registered_later(tmp_path: Path) -> None:
    marks = marks_at(str(tmp_path))
    assert marks.begun(ONE) is None
    marks.begin(ONE, ["broker-a"])
    begun = BegunMark(marks, ONE, ["broker-a"])
    begun.add("broker-a")
    assert marks.begun(ONE) == ["broker-a"]
    begun.add("broker-b")
    assert marks.begun(ONE) == ["broker-a", "broker-b"]


def test_done_partition_keeps_its_report_until_two_epochs_later(tmp_path: Path) -> None:
    marks = marks_at(str(tmp_path))
    report = PartitionReport(2, sent=3, found=1, digest="4:0")
    marks.finish(ONE, report)
    assert marks.done(ONE) == report
    marks.delete_old("write", 5)
    assert marks.done(ONE) == report
    marks.delete_old("write", 6)
    assert marks.done(ONE) is None


def test_marks_without_a_directory_record_nothing() -> None:
    marks = marks_at(None)
    marks.begin(ONE, ["broker-a"])
    marks.finish(ONE, PartitionReport(2))
    assert marks.begun(ONE) is None
    assert marks.done(ONE) is None
