"""Model link: one simulated connection between a slave and a master. Frames arrive in order, or the link breaks."""

from __future__ import annotations

from collections import deque

from orbitlog.wire.replication.epoch_frames import EpochReport, EpochTransfer, Handshake, HandshakeAnswer

Frame = Handshake | HandshakeAnswer | EpochReport | EpochTransfer | None
"""None: the other side has closed the connection."""


class ModelLink:
    """A connection with one queue of frames for each direction.

    `slave_run` and `master_run` number the runs of the processes that hold its ends; 0: not accepted yet.
    """

    __slots__ = (
        "master",
        "master_connection",
        "master_run",
        "slave",
        "slave_connection",
        "slave_run",
        "to_master",
        "to_slave",
    )

    def __init__(self, number: int, slave: int, slave_run: int, slave_connection: int, master: int) -> None:
        self.slave = slave
        self.slave_run = slave_run
        self.slave_connection = slave_connection
        self.master = master
        self.master_run = 0
        self.master_connection = number
        self.to_master: deque[Frame] = deque()
        self.to_slave: deque[Frame] = deque()

    def close_end(self, member_id: int) -> None:
        """Close one end; the other one learns of it after the frames that are under way."""
        if member_id == self.slave:
            self.slave_run = -1
            self.to_slave.clear()
            self.to_master.append(None)
        else:
            self.master_run = -1
            self.to_master.clear()
            self.to_slave.append(None)

    @property
    def is_over(self) -> bool:
        return (self.slave_run < 0 and self.master_run < 0) or (
            self.slave_run < 0 and self.master_run == 0 and not self.to_master
        )
