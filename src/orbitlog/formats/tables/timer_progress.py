"""config/orbitlogTimers.json: progress of timer message delivery. Java ignores it and uses `timercheck` instead.

`timer_check_crc` is the CRC of `timercheck` as it was when this was saved: where it is another one, a Java broker has
used the store since, and what it says counts.
"""

from __future__ import annotations

from dataclasses import field

from orbitlog.formats.tables.json_records import LONG, JsonFile, JsonRecord, java, json_record


@json_record
class TimerProgress(JsonRecord):
    """Everything that was to be looked at up to `done_to_ms` was, of messages before `queue_offset`.

    No message before `first_pending` is pending, so they are not read again.
    """

    done_to_ms: int = field(default=0, metadata=java("doneToMs", LONG))
    queue_offset: int = field(default=0, metadata=java("queueOffset", LONG))
    first_pending: int = field(default=0, metadata=java("firstPending", LONG))
    timer_check_crc: int = field(default=0, metadata=java("timerCheckCrc", LONG))


TIMER_PROGRESS = JsonFile("orbitlogTimers.json", TimerProgress)
