"""Actions of a group member: what its state machine asks of the process around it.

Actions are carried out in order, and each is complete before the next one starts: `CutLog` and `SaveEpochs` are durable
when the next action runs. A process that dies between two of them leaves a store from which the member restarts.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.replication.group.group_state import Proposal
from orbitlog.wire.replication.epoch_frames import EpochReport, Handshake, HandshakeAnswer


class ReadState(NamedTuple):
    """Read the coordinator's snapshot and call `observe`; on failure `read_failed`."""


class Propose(NamedTuple):
    """Send a proposal and call `proposal_answered` or `proposal_lost`."""

    proposal: Proposal


class Dial(NamedTuple):
    """Connect to the HA port of a member; call `disconnected` if that fails."""

    connection: int
    member_id: int


class HangUp(NamedTuple):
    """Close a connection; nothing is sent or received on it afterwards."""

    connection: int


class SendFrame(NamedTuple):
    """Send a frame without a body. Transfers are planned by `plan_transfer`."""

    connection: int
    frame: Handshake | HandshakeAnswer | EpochReport


class AppendLog(NamedTuple):
    """Append a master's bytes to the log as they are."""

    physical_offset: int
    body: bytes


class KeepTail(NamedTuple):
    """Copy a range of the log to a file of its own, synced, before it is cut."""

    last_epoch: int
    physical_offset: int
    end: int


class CutLog(NamedTuple):
    """Remove everything from an offset on, on disk: zero and sync it, so that it does not come back at a restart."""

    physical_offset: int


class FlushLog(NamedTuple):
    """Flush the log to its end."""


class SettleLog(NamedTuple):
    """Cut an incomplete record at the end, flush, and call `log_settled` with the end."""


class SaveEpochs(NamedTuple):
    """Write the epoch file, synced."""

    entries: tuple[EpochEntry, ...]


class RestartRecorded(NamedTuple):
    """Note on disk that a possible loss of bytes is dealt with, such as the boot id of the machine.

    Not earlier: a member that is killed before must still leave the in-sync set at its next start.
    """


class Confirmed(NamedTuple):
    """The confirm offset has grown: reads end there, and sends up to it are acknowledged by a master."""

    physical_offset: int


class AskElection(NamedTuple):
    """Ask a coordinator that elects masters itself for an election, then read the state."""


class Resign(NamedTuple):
    """Make a coordinator that elects masters itself depose this member."""


class RoleChanged(NamedTuple):
    """The member has another role, or is master of another epoch."""

    role: str
    epoch: int
    master: int | None
    reason: str


Action = (
    ReadState
    | Propose
    | Dial
    | HangUp
    | SendFrame
    | AppendLog
    | KeepTail
    | CutLog
    | FlushLog
    | SettleLog
    | SaveEpochs
    | RestartRecorded
    | Confirmed
    | AskElection
    | Resign
    | RoleChanged
)
