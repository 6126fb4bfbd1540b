"""Partition write: what one task of a write does, from its first mark to its report; it knows no Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.network.cluster_session import ClusterSession, session_of
from orbitlog.pipeline.sink.half_commit import HalfCommit
from orbitlog.pipeline.sink.row_ids import RowIds, WriteIdentity
from orbitlog.pipeline.sink.row_sender import RowSender
from orbitlog.pipeline.sink.side_tables import write_failed_rows, write_sent_rows
from orbitlog.pipeline.sink.sink_columns import FailedRow, SinkColumns, SinkRow
from orbitlog.pipeline.sink.sink_files import SinkFiles
from orbitlog.pipeline.sink.sink_marks import PartitionReport, SinkMarks
from orbitlog.pipeline.sink.sink_options import SinkOptions
from orbitlog.pipeline.sink.stored_check import StoredCheck

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 2048


class RowsChanged(OrbitlogError):
    """A repeated partition has other rows than the ones that were sent: neither skipping nor sending them is right."""


def marks_of(options: SinkOptions) -> SinkMarks:
    return SinkMarks(None if options.mark_path is None else SinkFiles(options.mark_path))


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
    session, marks = session_of(options.cluster), marks_of(options)
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
        check = StoredCheck(session, brokers)
    if brokers is None:
        marks.begin(identity, session.run(session.admin.brokers()))
    report = _send(session, options, columns, identity, batches, check)
    marks.finish(identity, report)
    return report


def _digest(columns: SinkColumns, identity: WriteIdentity, batches: Iterable[pa.RecordBatch]) -> str:
    ids = RowIds(identity)
    for batch in batches:
        for _ in columns.rows(batch, ids):
            pass
    return ids.digest


def _send(  # noqa: PLR0917 - all parts of a partition
    session: ClusterSession,
    options: SinkOptions,
    columns: SinkColumns,
    identity: WriteIdentity,
    batches: Iterable[pa.RecordBatch],
    check: StoredCheck | None,
) -> PartitionReport:
    ids = RowIds(identity)
    sender: RowSender = session.run(_opened(session, options, check))
    invalid: list[FailedRow] = []
    is_finished = False
    try:
        for batch in batches:
            rows: list[SinkRow] = []
            for row in columns.rows(batch, ids):
                if isinstance(row, FailedRow):
                    invalid.append(row)
                    continue
                rows.append(row)
                if len(rows) == _ROWS_AT_ONCE:
                    session.run(sender.send(rows))
                    rows = []
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


async def _opened(session: ClusterSession, options: SinkOptions, check: StoredCheck | None) -> RowSender:
    return RowSender(session, options, check)


def commit_write(options: SinkOptions, write_id: str, epoch: int, reports: Iterable[PartitionReport]) -> None:
    """Commit the half messages of an epoch, on the driver; then delete the marks of earlier epochs."""
    session, marks = session_of(options.cluster), marks_of(options)
    if options.is_transactional:
        is_repeated = marks.begin_commit(write_id, epoch)
        halves = [half for report in reports for half in report.halves]
        session.run(HalfCommit(session, options.producer_group).commit(halves, is_repeated=is_repeated))
    marks.delete_old(write_id, epoch)


def abort_write(options: SinkOptions, reports: Iterable[PartitionReport]) -> None:
    """Roll back the half messages of tasks that succeeded in a failed write."""
    session = session_of(options.cluster)
    halves = [half for report in reports for half in report.halves]
    # Tasks that are marked as done are not repeated by a stream: their half messages are needed for its next attempt.
    if options.is_transactional and options.mark_path is None and halves:
        session.run(HalfCommit(session, options.producer_group).roll_back(halves))
