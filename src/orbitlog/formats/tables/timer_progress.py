"""config/orbitlogTimers.json: progress of timer message delivery. Java ignores it and uses `timercheck` instead.

`timer_check_crc` is the CRC of `timercheck` when this file was saved. If it differs, a Java broker has used the store
since, and `timercheck` is authoritative.
"""

from __future__ import annotations

from dataclasses import field

from orbitlog.formats.tables.json_records import LONG, JsonFile, JsonRecord, java, json_record


@json_record
class TimerProgress(JsonRecord):
    """Messages before `queue_offset` that were due up to `done_to_ms` are delivered.

    Reading resumes at `first_pending`: no earlier message is pending.
    """

    done_to_ms: int = field(default=0, metadata=java("doneToMs", LONG))
    queue_offset: int = field(default=0, metadata=java("queueOffset", LONG))
    first_pending: int = field(default=0, metadata=java("firstPending", LONG))
    timer_check_crc: int = field(default=0, metadata=java("timerCheckCrc", LONG))


TIMER_PROGRESS = JsonFile("orbitlogTimers.json", TimerProgress)
