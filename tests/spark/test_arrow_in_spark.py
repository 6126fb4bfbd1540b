"""The installed Spark starts with the Java that set-up found, and takes the kernels' Arrow batches as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orbitlog.testing.golden import GoldenStore

COLUMNS = ["physical_offset", "topic", "queue_id", "tags", "properties", "body"]


def decode_segments(batches: Iterator[object]) -> Iterator[object]:
    """Read the segments whose paths come in, in a Spark worker."""
    from orbitlog.kernels.arrow_batches import ArrowDecoder

    for batch in batches:
        for path in batch.to_pydict()["path"]:  # type: ignore[attr-defined]
            segment = Path(path)
            yield from ArrowDecoder(COLUMNS).decode(segment.read_bytes(), base_physical_offset=int(segment.name))


def test_a_golden_log_as_a_table(spark, golden_497: GoldenStore) -> None:
    segments = sorted((golden_497.store / "commitlog").iterdir())
    paths = spark.createDataFrame([(str(path),) for path in segments], "path string")
    schema = "physical_offset long, topic string, queue_id int, tags string, properties map<string,string>, body binary"
    rows = paths.mapInArrow(decode_segments, schema).orderBy("physical_offset").collect()
    expected = golden_497.manifest["messages"]
    assert [row.physical_offset for row in rows] == [message["commitLogOffset"] for message in expected]
    assert [row.topic for row in rows] == [message["topic"] for message in expected]
    assert [row.tags for row in rows] == [message["tags"] for message in expected]
    assert [row.properties for row in rows] == [message["properties"] for message in expected]


def test_workers_do_not_look_through_what_is_loaded_after_every_task(spark, golden_497: GoldenStore) -> None:
    from orbitlog.pipeline.runtime.spark_runner import run_tasks

    path = str(min((golden_497.store / "commitlog").iterdir()))

    def look(_: int) -> dict[str, int]:
        import gc
        from pathlib import Path

        from orbitlog.kernels.arrow_batches import ArrowDecoder

        objects = len(gc.get_objects())
        rows = sum(batch.num_rows for batch in ArrowDecoder().decode(Path(path).read_bytes()))
        return {"objects": objects, "rows": rows}

    # The first call of a kernel loads ten times as much; the tasks behind it find it frozen.
    found = [report for _ in range(3) for report in run_tasks(spark, look, [1, 2])]
    assert all(report["rows"] for report in found)
    assert max(report["objects"] for report in found) < 25_000
