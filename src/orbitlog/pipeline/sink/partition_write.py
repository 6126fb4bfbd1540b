"""Partition write: what one task of a write does, from its first mark to its report; it knows no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.network.cluster_session import ClusterSession, session_of
from orbitlog.pipeline.sink.encoded_rows import FailedRow
from orbitlog.pipeline.sink.row_encoding import RowEncoder
from orbitlog.pipeline.sink.row_ids import RowIds
from orbitlog.pipeline.sink.row_sender import RowSender
from orbitlog.pipeline.sink.side_tables import write_failed_rows, write_sent_rows
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.sink_marks import BegunMark, PartitionReport, marks_at
from orbitlog.pipeline.sink.sink_options import SinkOptions
from orbitlog.pipeline.sink.stored_check import StoredCheck
from orbitlog.pipeline.sink.write_identity import WriteIdentity

if TYPE_CHECKING:
    import pyarrow as pa


class RowsChanged(OrbitlogError):
    """A repeated partition has other rows than the ones that were sent: neither skipping nor sending them is right."""


def write_partition(
    options: SinkOptions,
    columns: SinkColumns,
    identity: WriteIdentity,
    batches: Iterable[pa.RecordBatch],
    *,
    is_retry: bool,
) -> PartitionReport:
    """Send the rows of a partition and return when all are acknowledged.

    A partition that is marked as done is skipped. If an earlier attempt may have sent rows (`is_retry`, or a
    mark), each row is looked up first, and only missing ones are sent.
    """
    session, marks = session_of(options.cluster), marks_at(options.mark_path)
    done = marks.done(identity)
    if done is not None:
        done.is_repeated = True
        if options.is_transactional or _digest(columns, identity, batches) == done.digest:
            return done
        raise RowsChanged(
            f"partition {identity.partition} of epoch {identity.epoch} was sent with other rows: a repeated epoch must"
            f" give the same ones; make the query deterministic, or delete {options.mark_path}/{identity.write_id} to"
            " send them and accept duplicates"
        )
    brokers = marks.begun(identity)
    check = None
    if not options.is_transactional and (brokers is not None or is_retry):
        check = StoredCheck(session, brokers or ())
    if brokers is None:
        brokers = sorted(session.run(session.retried(session.admin.brokers)))
        marks.begin(identity, brokers)
    sender = session.run(_opened(session, options, check, BegunMark(marks, identity, brokers)))
    report = _send(session, options, columns, identity, batches, sender)
    marks.finish(identity, report)
    return report


def _digest(columns: SinkColumns, identity: WriteIdentity, batches: Iterable[pa.RecordBatch]) -> str:
    ids = RowIds(identity)
    encoder = RowEncoder(columns, ids)
    for batch in batches:
        for _ in encoder.steps(batch):
            pass
    return ids.digest


def _send(  # noqa: PLR0917 - all parts of a partition
    session: ClusterSession,
    options: SinkOptions,
    columns: SinkColumns,
    identity: WriteIdentity,
    batches: Iterable[pa.RecordBatch],
    sender: RowSender,
) -> PartitionReport:
    ids = RowIds(identity)
    encoder = RowEncoder(columns, ids)
    invalid: list[FailedRow] = []
    is_finished = False
    try:
        for batch in batches:
            for rows in encoder.steps(batch):
                invalid += rows.failed
                session.run(sender.send(rows))
            if options.failed_rows_path is None:
                write_failed_rows(None, identity, invalid)
        session.run(sender.finish())
        is_finished = True
    finally:
        if not is_finished:
            session.run(sender.cancel())
    failed = [*invalid, *sender.failed]
    write_failed_rows(options.failed_rows_path, identity, failed)
    write_sent_rows(options.sent_rows_path, identity, sender.sent_rows)
    return PartitionReport(identity.partition, sender.sent, sender.found, len(failed), ids.digest, halves=sender.halves)


async def _opened(
    session: ClusterSession, options: SinkOptions, check: StoredCheck | None, begun: BegunMark
) -> RowSender:
    return RowSender(session, options, check, begun)
