"""config/orbitlogPops.json: POP messages in flight, delivered and not yet acknowledged. Java ignores it.

It is saved together with consumerOffset.json, whose offsets stop before the first of these messages. So a
broker without this file redelivers them, and none is lost.
"""

from __future__ import annotations

from dataclasses import field

from orbitlog.formats.tables.json_records import (
    INT,
    LONG,
    TEXT,
    JsonFile,
    JsonRecord,
    java,
    json_record,
    list_of,
    record,
)


@json_record
class PoppedQueueProgress(JsonRecord):
    """One queue of one group; the lists belong together. `start_offsets` is empty in files of older versions."""

    topic: str = field(metadata=java("topic", TEXT))
    group: str = field(metadata=java("group", TEXT))
    queue_id: int = field(metadata=java("queueId", INT))
    committed: int = field(metadata=java("committed", LONG))
    next_to_pop: int = field(metadata=java("nextToPop", LONG))
    queue_offsets: tuple[int, ...] = field(default=(), metadata=java("queueOffsets", list_of(LONG)))
    pop_times_ms: tuple[int, ...] = field(default=(), metadata=java("popTimesMs", list_of(LONG)))
    visible_times_ms: tuple[int, ...] = field(default=(), metadata=java("visibleTimesMs", list_of(LONG)))
    start_offsets: tuple[int, ...] = field(default=(), metadata=java("startOffsets", list_of(LONG)))


@json_record
class PopProgress(JsonRecord):
    """All of them."""

    queues: tuple[PoppedQueueProgress, ...] = field(
        default=(), metadata=java("queues", list_of(record(PoppedQueueProgress)))
    )


POP_PROGRESS = JsonFile("orbitlogPops.json", PopProgress, pretty=False)
