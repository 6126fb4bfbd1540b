"""Replay of dead letters: sends each letter as a new message and records it, or plans the replay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbitlog.client.admin.administration import Administration
from orbitlog.client.admin.dead_letters import DeadLetters, LetterFilter, paced, target_topic
from orbitlog.client.admin.replay_record import ReplayRecord
from orbitlog.client.consumer.received import Received

REPLAY_FIELDS = ("msgId", "toTopic", "newMsgId", "toQueueId", "toQueueOffset")


@dataclass(frozen=True, slots=True)
class LetterReplay:
    """The letters to replay, their target, and the file that records them.

    Without `to_origin` and `to_topic` letters go to the retry topic of the group.
    """

    group: str
    wanted: LetterFilter
    record_path: Path
    to_origin: bool
    to_topic: str | None
    rate: float | None
    limit: int | None

    async def plan(self, admin: Administration) -> list[dict[str, Any]]:
        """Return a row for each letter that a replay would send; send none."""
        record = ReplayRecord(self.record_path)
        rows: list[dict[str, Any]] = []
        async for letter in DeadLetters(admin).letters(self.group, self.wanted):
            if len(rows) == self.limit:
                break
            stored = letter.stored
            if record.find((stored.topic, letter.broker_name, stored.queue_id, stored.queue_offset)) is None:
                planned = dict.fromkeys(REPLAY_FIELDS)
                rows.append({**planned, "msgId": letter.message_id, "toTopic": self._target(letter)})
        return rows

    async def run(self, admin: Administration) -> list[dict[str, Any]]:
        """Send the letters that are not recorded yet; return a row for each."""
        dead_letters, pace = DeadLetters(admin), paced(self.rate)
        rows: list[dict[str, Any]] = []
        with ReplayRecord(self.record_path) as record:
            # A send of an interrupted replay may have arrived without being recorded: look before sending more.
            await dead_letters.settle(record)
            async for letter in dead_letters.letters(self.group, self.wanted):
                if len(rows) == self.limit:
                    break
                line = await dead_letters.replay(letter, self._target(letter), record)
                if line is not None:
                    rows.append({field: getattr(line, field) for field in REPLAY_FIELDS})
                    await anext(pace)
        return rows

    def _target(self, letter: Received) -> str:
        return target_topic(letter, self.group, to_origin=self.to_origin, to_topic=self.to_topic)
