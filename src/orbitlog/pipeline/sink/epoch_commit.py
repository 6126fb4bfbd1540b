"""Epoch commit: what the driver does after the tasks of a write, in a process that Spark starts for each epoch.

Importing the client takes longer than a commit without transactions, so it is imported only for half messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orbitlog.pipeline.sink.sink_marks import PartitionReport, marks_at

if TYPE_CHECKING:
    from orbitlog.pipeline.sink.sink_options import SinkOptions


def commit_write(options: SinkOptions, write_id: str, epoch: int, reports: Iterable[PartitionReport]) -> None:
    """Commit the half messages of an epoch; then delete the marks of earlier epochs."""
    marks = marks_at(options.mark_path)
    if options.is_transactional:
        from orbitlog.pipeline.network.cluster_session import session_of
        from orbitlog.pipeline.sink.half_commit import HalfCommit

        session = session_of(options.cluster)
        is_repeated = marks.begin_commit(write_id, epoch)
        halves = [half for report in reports for half in report.halves]
        session.run(HalfCommit(session, options.producer_group).commit(halves, is_repeated=is_repeated))
    marks.delete_old(write_id, epoch)


def abort_write(options: SinkOptions, reports: Iterable[PartitionReport]) -> None:
    """Roll back the half messages of tasks that succeeded in a failed write."""
    halves = [half for report in reports for half in report.halves]
    # Tasks that are marked as done are not repeated by a stream: their half messages are needed for its next attempt.
    if options.is_transactional and options.mark_path is None and halves:
        from orbitlog.pipeline.network.cluster_session import session_of
        from orbitlog.pipeline.sink.half_commit import HalfCommit

        session = session_of(options.cluster)
        session.run(HalfCommit(session, options.producer_group).roll_back(halves))
