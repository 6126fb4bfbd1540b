"""Earlier pops: receipts of messages whose checkpoints are in the revive log.

A Java broker or an earlier run delivered them, or this run did and handed them over.

Their state is in the revive log: an acknowledgement is appended there, and a longer invisibility timeout is a new
checkpoint and an acknowledgement of the old one. Mirrors `AckMessageProcessor` and `ChangeInvisibleTimeProcessor`.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitlog.broker.pop.popped_queues import PopKey
from orbitlog.broker.pop.revive_log import ReviveLog
from orbitlog.broker.pop.revive_reader import SLACK_MS, ReviveReader
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.formats.records.pop_checkpoint import CheckPointKey, PopCheckPoint
from orbitlog.wire.pop_receipt import PopReceipt

_RENEWED_MAX = 100_000


class EarlierPops:
    """Acknowledges and extends by receipts that are not in the table of this run."""

    def __init__(
        self, state: BrokerState, log: ReviveLog, reader: ReviveReader, logged_to_ms: Callable[[], int]
    ) -> None:
        self._state = state
        self._log = log
        self._reader = reader
        self._logged_to_ms = logged_to_ms
        # Checkpoints appended here for an extended timeout, with the time at which their messages become visible.
        self._renewed: dict[CheckPointKey, int] = {}

    def acknowledge(self, key: PopKey, queue_offset: int, receipt: PopReceipt) -> None:
        """Append an acknowledgement if a checkpoint may wait for it; a late one is ignored, as in Java."""
        if self._is_open(key, receipt) and self._log.append_ack(key, queue_offset, receipt):
            self._reader.acknowledge(_point_key(key, receipt), queue_offset)

    def keep_longer(
        self, key: PopKey, queue_offset: int, receipt: PopReceipt, pop_timestamp_ms: int, visible_ms: int
    ) -> bool:
        """Append a new checkpoint, then acknowledge the old one; return False if the receipt is invalid or expired."""
        old_visible_ms = receipt.pop_timestamp_ms + receipt.invisible_ms
        if old_visible_ms <= self._state.now_ms() or not self._is_open(key, receipt):
            return False
        point = PopCheckPoint(
            *(*key, queue_offset, pop_timestamp_ms, visible_ms - pop_timestamp_ms, 1, (0,)),
            broker_name=receipt.broker_name or self._state.broker_name,
        )
        # In this order: a crash in between delivers the message twice; in the other order it would be lost.
        if not self._log.append_check_point(point, receipt.revive_queue_id):
            return False
        self._renew(point)
        self.acknowledge(key, queue_offset, receipt)
        return True

    def _renew(self, point: PopCheckPoint) -> None:
        if len(self._renewed) >= _RENEWED_MAX:
            known_to_ms = self._reader.known_to_ms
            self._renewed = {key: ms for key, ms in self._renewed.items() if ms + SLACK_MS >= known_to_ms}
        self._renewed[point.key] = point.visible_ms

    def _is_open(self, key: PopKey, receipt: PopReceipt) -> bool:
        """Return whether a receipt may belong to a checkpoint that is not settled."""
        is_earlier = receipt.pop_timestamp_ms <= self._logged_to_ms() or _point_key(key, receipt) in self._renewed
        visible_ms = receipt.pop_timestamp_ms + receipt.invisible_ms
        is_settled = visible_ms + SLACK_MS < self._reader.known_to_ms
        return is_earlier and not is_settled and self._log.is_usable and self._log.has_queue(receipt.revive_queue_id)


def _point_key(key: PopKey, receipt: PopReceipt) -> CheckPointKey:
    return CheckPointKey(*key, receipt.start_queue_offset, receipt.pop_timestamp_ms)
