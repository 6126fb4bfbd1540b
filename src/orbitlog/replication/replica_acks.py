"""Replica acknowledgements: up to which offset enough slaves have the log, and whether a send may wait for them.

Pure: no I/O and no clock. Mirrors Java's `GroupTransferService`, with stricter rules for what counts. An
acknowledgement counts up to the bytes that were sent on that connection, so that stray bytes on the HA port are no
acknowledgement, and a slave's end never decreases.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.errors import WireError


@dataclass(slots=True)
class ReplicaProgress:
    """One connected slave: the range that was sent to it, and what it has acknowledged."""

    requested_from: int
    sent_to: int
    acked_to: int = -1
    is_observer: bool = False
    """Whether it reports less than it asked for: it follows the log, and acknowledges nothing."""

    def acknowledge(self, physical_offset: int) -> None:
        """Take a report of the slave's end; raise `WireError` if a slave that follows this log cannot have it.

        The offset that the slave asked for does not count: nothing shows that the bytes before it are this log's.
        """
        if physical_offset > self.sent_to:
            raise WireError(f"HA report: end {physical_offset} is past {self.sent_to}, the end of what it was sent")
        if physical_offset < self.acked_to:
            raise WireError(f"HA report: end {physical_offset} is before {self.acked_to}, which it reported earlier")
        self.is_observer = physical_offset < self.requested_from
        if physical_offset > self.requested_from:
            self.acked_to = physical_offset

    def lag_bytes(self, end: int) -> int:
        """Return the bytes before `end` that the slave has not acknowledged, of those it asked for."""
        return end - max(self.acked_to, self.requested_from)


class ReplicaAcks:
    """Acknowledgements of the connected slaves of one master.

    `copies_needed` counts the master: 2 means that one slave must have a message. `replicated_to` never decreases: what
    a slave had when it acknowledged stays on its disk after it disconnects.
    """

    def __init__(self, copies_needed: int, lag_bytes_max: int) -> None:
        assert copies_needed >= 2, "a master that waits for no slave needs no acknowledgements"
        self._slaves_needed = copies_needed - 1
        self._lag_bytes_max = lag_bytes_max
        self._replicas: list[ReplicaProgress] = []
        self.replicated_to = 0

    def join(self, replica: ReplicaProgress) -> None:
        """Count a slave from now on."""
        self._replicas.append(replica)

    def leave(self, replica: ReplicaProgress) -> None:
        """Stop counting a slave; does nothing if it never joined."""
        self._replicas = [other for other in self._replicas if other is not replica]

    def update(self) -> bool:
        """Recompute `replicated_to` after an acknowledgement; return whether it grew."""
        acked = sorted((replica.acked_to for replica in self._replicas), reverse=True)
        if len(acked) < self._slaves_needed or acked[self._slaves_needed - 1] <= self.replicated_to:
            return False
        self.replicated_to = acked[self._slaves_needed - 1]
        return True

    def has_enough_slaves(self, end: int) -> bool:
        """Return whether enough slaves are connected, and near enough to `end`, that a send may wait for them."""
        if end <= self.replicated_to:
            return True
        near = sum(
            not replica.is_observer and replica.lag_bytes(end) < self._lag_bytes_max for replica in self._replicas
        )
        return near >= self._slaves_needed
