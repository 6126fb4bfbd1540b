"""Following: a group member while it is slave. Finds the common point with its master, cuts its log there and appends.

The master's epochs are taken over as the log reaches them, and saved before the first byte of each: a byte whose epoch
is not on disk would pass for one of the epoch before it.
"""

from __future__ import annotations

from orbitlog.replication.group.actions import (
    AppendLog,
    CutLog,
    Dial,
    FlushLog,
    HangUp,
    KeepTail,
    SaveEpochs,
    SendFrame,
)
from orbitlog.replication.group.epoch_history import EpochHistory, adopted
from orbitlog.replication.group.member_context import MemberContext
from orbitlog.wire.replication.epoch_frames import EpochReport, Handshake, HandshakeAnswer, TransferHead


class Following:
    """The connection of a slave to the master of one epoch."""

    def __init__(self, context: MemberContext, master: int, epoch: int) -> None:
        self._context = context
        self.master = master
        self.epoch = epoch
        self.reason = ""
        """Why this slave does not follow; empty if it does, or is about to."""
        self._connection: int | None = None
        self._master_history: EpochHistory | None = None
        self._confirm_target = 0
        self._redial_s = 0.0
        self._reported_to = -1
        self._dial()

    @property
    def is_following(self) -> bool:
        """Return whether the handshake is done and bytes may arrive."""
        return self._master_history is not None

    # Connection

    def _dial(self) -> None:
        self._connection = self._context.next_connection()
        self._context.actions.append(Dial(self._connection, self.master))

    def tick(self) -> None:
        """Dial after a pause if there is no connection."""
        if self._connection is None and self._context.now_s >= self._redial_s and not self.reason:
            self._dial()

    def connected(self, connection: int) -> None:
        """Identify this member to the master."""
        if connection == self._connection:
            handshake = Handshake(self._context.member_id, self._context.limits.is_observer)
            self._context.actions.append(SendFrame(connection, handshake))

    def disconnected(self, connection: int) -> None:
        """Dial again after a pause; the state is read meanwhile, because there may be a new master."""
        if connection == self._connection:
            self._forget()
            self._context.read_state()

    def close(self) -> None:
        """Close the connection: nothing is appended or reported afterwards."""
        if self._connection is not None:
            self._context.actions.append(HangUp(self._connection))
        self._forget()

    def _forget(self) -> None:
        self._connection = None
        self._master_history = None
        self._reported_to = -1
        self._redial_s = self._context.now_s + self._context.limits.redial_s

    def _refuse(self) -> None:
        self.close()
        self._context.read_state()

    # Handshake

    def answered(self, connection: int, answer: HandshakeAnswer) -> None:
        """Cut this log at the last byte that it shares with the master's, and report its end."""
        if connection != self._connection or self._master_history is not None:
            return
        if answer.last_epoch < self.epoch:
            # A deposed master that does not know it yet.
            self._refuse()
            return
        log = self._context.log
        history = EpochHistory(answer.entries)
        common = self._common_point(history, answer.end)
        if common is None:
            self.reason = (
                f"the log has no epoch in common with that of master {self.master}; restart with an empty store"
            )
            self.close()
            return
        self.epoch = answer.last_epoch
        self._master_history = history
        self._cut(common)
        self._save(adopted(answer.entries, common))
        if log.acks_flushed and log.flushed_to < log.end:
            # The master sends from the first report on, which therefore is the end of the log.
            self._context.actions.append(FlushLog())
            log.flushed_to = log.end
        self._report()

    def _common_point(self, master_history: EpochHistory, master_end: int) -> int | None:
        """Return the end of the shared bytes; None if the two logs may be of different groups.

        Without a shared epoch nothing is shared. A log of which nothing was ever confirmed is then given up as a whole.
        """
        log = self._context.log
        if log.is_empty:
            return log.end
        common = log.history.common_point(log.end, master_history, master_end)
        entries = master_history.entries
        if common is None and log.confirmed_to <= log.start and entries:
            return log.start if entries[0].start_physical_offset <= log.start else None
        return common

    def _cut(self, common: int) -> None:
        log, actions = self._context.log, self._context.actions
        if common < log.end:
            actions.append(KeepTail(log.history.last_epoch, common, log.end))
            self._context.cut(common)
            actions.append(CutLog(common))

    def _save(self, history: EpochHistory) -> None:
        if self._context.set_history(history):
            self._context.actions.append(SaveEpochs(history.entries))

    # Bytes

    def transfer(self, connection: int, head: TransferHead, body: bytes) -> None:
        """Append a master's bytes; a gap, or an epoch that the handshake did not state, closes the connection."""
        history = self._master_history
        if connection != self._connection or history is None:
            return
        log = self._context.log
        if head.epoch > history.last_epoch or (head.physical_offset != log.end and not log.is_empty):
            self._refuse()
            return
        if head.body_bytes:
            if log.is_empty:
                log.start = log.end = log.flushed_to = head.physical_offset
            self._append(history, head.physical_offset, body)
        self._confirm(head.confirm_offset)

    def _append(self, history: EpochHistory, physical_offset: int, body: bytes) -> None:
        end = physical_offset + len(body)
        # An epoch that starts at `end` has no byte here yet; one that starts at `physical_offset` must be on disk.
        self._save(history.up_to(end - 1))
        self._context.log.end = end
        self._context.actions.append(AppendLog(physical_offset, body))
        self._report()

    def flushed(self) -> None:
        """Report bytes that count only when they are flushed."""
        if self._master_history is not None:
            self._report()

    def _report(self) -> None:
        reported_to = self._context.log.reported_to
        if reported_to != self._reported_to and self._connection is not None:
            self._reported_to = reported_to
            self._context.actions.append(SendFrame(self._connection, EpochReport(reported_to)))

    def _confirm(self, confirm_offset: int) -> None:
        """Raise the confirm offset to one that the master stated, when this log has reached it.

        A target is kept until it is reached, so that a slave that lags makes progress. The end of a slave's log
        may be inside a record and is not a confirm offset.
        """
        if self._confirm_target <= self._context.log.confirmed_to:
            self._confirm_target = confirm_offset
        if self._confirm_target <= self._context.log.end:
            self._context.confirm(self._confirm_target)
