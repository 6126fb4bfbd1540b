"""Batches by template have the frames of their headers."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import types as T

from orbitlog.formats.message_queue import MessageQueue
from orbitlog.pipeline.sink.batch_frames import BatchFrames, batch_header
from orbitlog.pipeline.sink.encoded_rows import RequestRows
from orbitlog.pipeline.sink.row_encoding import RowEncoder
from orbitlog.pipeline.sink.row_ids import RowIds
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.write_identity import WriteIdentity
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, encode_command

SCHEMA = T.StructType([T.StructField("body", T.StringType())])


def test_batch_by_template_equals_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_123_456_789)
    encoder = RowEncoder(SinkColumns(SCHEMA, "T"), RowIds(WriteIdentity("w", 0, 0)))
    rows = RequestRows()
    for body in (["a", "b"], ["c"]):
        for step in encoder.steps(pa.RecordBatch.from_pydict({"body": body})):
            for run in step.runs():
                rows.add(run)
    frames = BatchFrames("group")
    for queue in (MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 2_101_234_567)):
        for opaque in (1, 77):
            header = batch_header(queue, "group")
            body = b"".join(rows.members())
            command = Command(RequestCode.SEND_BATCH_MESSAGE, opaque, ext_fields=header.to_ext_fields(), body=body)
            assert frames.frame(queue, rows, opaque) == encode_command(command)
    assert rows.size_bytes == len(b"".join(rows.members()))
