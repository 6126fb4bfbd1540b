"""Finding kinds: severity, rank, consequence, remedy and planner of each kind, in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType

from orbitlog.storefiles.findings import Finding, FindingKind


class Severity(Enum):
    """ERROR: messages are lost or a broker does not start. WARNING: the log has what is needed to repair it."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Rank(IntEnum):
    """The order of findings in a report: each may be the cause of those of a later rank."""

    LOG_MISSING = 0
    LOG_END = 1
    LOG_DAMAGED = 2
    OTHER = 3


class DerivedPart(StrEnum):
    """A part of the store that is derived from the log, as `doctor rebuild` names it."""

    QUEUES = "queues"
    INDEX = "index"
    CHECKPOINT = "checkpoint"


class Planner(Enum):
    """What plans the steps of a repair, in the order in which `orbitlog.doctor.repair.planners` asks them."""

    LOCK = "lock"
    JOURNALS = "journals"
    PLACES = "places"
    DISPLACED = "displaced records"
    HEADERS = "headers"
    ORDER = "queue order"
    LOG = "log"
    TIMERS = "timers"
    CONFIG = "config"
    DERIVED = "derived files"
    OFFSETS = "offsets"
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class KindMeaning:
    """What a kind of finding means to an operator, and what repairs it.

    `command` has `{store}` for the path of the store. `planners` may each plan steps for it: one of them does.
    `follows_log` is set if the finding cannot be judged while a part of the log is missing. A finding that
    `stops_rebuild` does not stop the repair from rebuilding, if that is what it plans for the finding.
    """

    severity: Severity
    consequence: str
    command: str | None = None
    planners: tuple[Planner, ...] = ()
    part: DerivedPart | None = None
    stops_rebuild: bool = False
    follows_log: bool = False
    rank: Rank = Rank.OTHER


REPAIR = "orbitlog doctor repair {store}"
_ERROR, _WARNING, _NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


def _derived(part: DerivedPart, consequence: str) -> KindMeaning:
    return KindMeaning(
        _WARNING,
        consequence,
        f"orbitlog doctor rebuild {{store}} --{part}",
        # A unit that differs from the log may show a wrong field of the record: header repair comes first.
        (Planner.HEADERS, Planner.DERIVED) if part is DerivedPart.QUEUES else (Planner.DERIVED,),
        part=part,
        follows_log=True,
    )


MEANINGS: Mapping[FindingKind, KindMeaning] = MappingProxyType(
    {
        FindingKind.RECORD: KindMeaning(
            _ERROR,
            "Messages in this range cannot be served, and a Java broker that was not stopped cleanly truncates its log"
            " here and loses everything after it",
            REPAIR,
            (Planner.PLACES, Planner.DISPLACED, Planner.LOG),
            stops_rebuild=True,
            rank=Rank.LOG_DAMAGED,
        ),
        FindingKind.TORN_RECORD: KindMeaning(
            _ERROR,
            "Brokers of Orbitlog do not serve this record: after a crash they cut it off, and if it was flushed they"
            " refuse the store; a Java broker serves it without these properties. A repair cuts it off",
            REPAIR,
            (Planner.LOG,),
            stops_rebuild=True,
            rank=Rank.LOG_DAMAGED,
        ),
        FindingKind.PROPERTIES: KindMeaning(
            _NOTE,
            "The message is served as it is; no checksum covers properties, so a sector that a disk lost looks like"
            " this, and so does a message that was sent with zero bytes",
        ),
        FindingKind.SEGMENT: KindMeaning(
            _ERROR,
            "Messages in this range, if any, cannot be served; brokers refuse to start on a segment of the wrong size",
            REPAIR,
            (Planner.PLACES, Planner.LOG),
            stops_rebuild=True,
            rank=Rank.LOG_DAMAGED,
        ),
        FindingKind.LOG_END: KindMeaning(
            _ERROR,
            "Messages after the end of the log are lost unless there is a copy: put the log back from its other disk or"
            " from a backup. A broker does not start; a repair gives these messages up, and rebuilds what refers to"
            " them",
            REPAIR,
            (Planner.DERIVED,),
            stops_rebuild=True,
            rank=Rank.LOG_END,
        ),
        FindingKind.LOG: KindMeaning(
            _ERROR,
            "No message of this store can be served; put the log back from its other disk or from a backup",
            rank=Rank.LOG_MISSING,
            stops_rebuild=True,
        ),
        FindingKind.ENTRY: KindMeaning(
            _ERROR,
            "Other members of the group cannot read this entry, and a Java broker may truncate its log here when it"
            " starts",
            rank=Rank.LOG_DAMAGED,
        ),
        FindingKind.ENTRY_INDEX: KindMeaning(
            _ERROR,
            "The entries can be read, but a Java broker looks them up in this file, and may truncate its log here when"
            " it starts",
        ),
        FindingKind.UNCOMMITTED: KindMeaning(
            _NOTE,
            "The group may not have agreed on all entries of this store; the member with the highest committed index"
            " decides",
        ),
        FindingKind.QUEUE_ORDER: KindMeaning(
            _ERROR,
            "When queues are rebuilt, Java's broker logs [BUG]logic queue order maybe wrong, and consumers find"
            " messages at other offsets",
            REPAIR,
            (Planner.HEADERS, Planner.ORDER, Planner.LOG),
            stops_rebuild=True,
            follows_log=True,
            rank=Rank.LOG_DAMAGED,
        ),
        FindingKind.QUEUE_UNIT: _derived(
            DerivedPart.QUEUES,
            "Consumers of this queue miss messages or get wrong ones; the messages are in the log",
        ),
        FindingKind.QUEUE_FILE: _derived(
            DerivedPart.QUEUES,
            "Consumers of this queue miss messages, and brokers refuse to start on a file of the wrong size;"
            " the messages are in the log",
        ),
        FindingKind.INDEX: _derived(
            DerivedPart.INDEX, "Queries by key miss messages or find wrong ones; the messages are in the log"
        ),
        FindingKind.CHECKPOINT: _derived(
            DerivedPart.CHECKPOINT, "After a crash, recovery would start at the wrong position"
        ),
        FindingKind.CONFIG: KindMeaning(
            _ERROR,
            "A broker starts with an empty table and overwrites what is left of this one; Java's broker does not start"
            " if the backup is unreadable as well",
            REPAIR,
            (Planner.CONFIG,),
        ),
        FindingKind.CONFIG_BACKUP_IN_USE: KindMeaning(
            _WARNING, "Brokers read the backup, which is one change older", REPAIR, (Planner.CONFIG,)
        ),
        FindingKind.CONFIG_BACKUP_READ: KindMeaning(
            _NOTE, "The broker was killed while it replaced the file; the next one reads the backup"
        ),
        FindingKind.CONFIG_NOTE: KindMeaning(_NOTE, "Brokers do not need it"),
        FindingKind.PROGRESS_UNKNOWN: KindMeaning(
            _NOTE,
            "The offsets of consumer groups are lost: each group starts where its clients are configured to, at the"
            " end or at the beginning; `orbitlog offsets reset` sets them to a timestamp",
        ),
        FindingKind.TOPIC: KindMeaning(
            _WARNING,
            "Clients get the reply that the topic does not exist, though its messages are here",
            REPAIR,
            (Planner.CONFIG,),
        ),
        FindingKind.TOPIC_LIFE: KindMeaning(
            _NOTE, "Consumers get the messages that were sent since, as they should", follows_log=True
        ),
        FindingKind.QUEUE_COUNT: KindMeaning(
            _WARNING,
            "Clients do not know these queues, and do not consume their messages",
            REPAIR,
            (Planner.CONFIG,),
        ),
        FindingKind.QUEUE_COUNT_CONSUMED: KindMeaning(
            _NOTE, "Every consumer group has consumed the messages of these queues"
        ),
        FindingKind.OFFSET: KindMeaning(
            _WARNING,
            "Consumers of this group wait for messages that will not come, or start over",
            REPAIR,
            (Planner.OFFSETS, Planner.PROGRESS),
            follows_log=True,
        ),
        FindingKind.EARLIER_LIFE: KindMeaning(
            _NOTE,
            "The offset is from before the topic was deleted and created again; consumers of this group continue at"
            " the end of the queue, `orbitlog offsets reset` sets them elsewhere",
        ),
        FindingKind.RETIRED: KindMeaning(
            _NOTE,
            "Consumers start with the first message that exists; if the earlier segments were not deleted on purpose,"
            " put them back: the queues still have units for them",
        ),
        FindingKind.BEHIND: KindMeaning(_NOTE, "The next broker dispatches them from the log when it starts"),
        FindingKind.TIMER: KindMeaning(
            _ERROR,
            "Pending timer messages may be delivered late, twice or not at all, and a Java broker may not start;"
            " after a repair all of them are pending, and delivered ones are delivered once more",
            REPAIR,
            (Planner.TIMERS,),
            follows_log=True,
        ),
        FindingKind.TIMER_WHEEL: KindMeaning(_NOTE, "Brokers rebuild it from the timer log"),
        FindingKind.FOREIGN_SEGMENT: KindMeaning(
            _ERROR,
            "A Java broker does not start: NumberFormatException or IllegalArgumentException for the name or size of"
            " the file",
            REPAIR,
            (Planner.PLACES,),
        ),
        FindingKind.LAYOUT: KindMeaning(_NOTE, "Brokers ignore it"),
        FindingKind.UNCHECKED: KindMeaning(_NOTE, "Its files were not compared with the log"),
        FindingKind.LINK: KindMeaning(
            _ERROR,
            "Its target belongs to the store and was not checked; nothing is rebuilt or repaired until it is resolved:"
            " move the files into the store, or mount their disk in its place",
            rank=Rank.LOG_MISSING,
            # Only a link to nowhere, and only if the operator gives its segment up.
            planners=(Planner.PLACES,),
            stops_rebuild=True,
        ),
        FindingKind.UNREADABLE: KindMeaning(
            _ERROR,
            "A part of the log was not checked; nothing is rebuilt or repaired until it is readable",
            rank=Rank.LOG_MISSING,
            stops_rebuild=True,
        ),
        FindingKind.LOCK: KindMeaning(
            _ERROR, "No broker can lock the store; it has nothing that a store needs", REPAIR, (Planner.LOCK,)
        ),
        FindingKind.JOURNAL: KindMeaning(
            _ERROR,
            "Its repair can be neither finished nor undone; a repair quarantines it, unless it may contain files of"
            " the store",
            REPAIR,
            (Planner.JOURNALS,),
        ),
        FindingKind.REPAIR: KindMeaning(
            _ERROR,
            "Some of its changes were made; another run of the repair finishes it, orbitlog doctor undo undoes it",
            "orbitlog doctor repair {store} --apply",
        ),
        FindingKind.ABORT: KindMeaning(_NOTE, "The broker was not stopped cleanly; the next one recovers by itself"),
    }
)


def parts_of(findings: Iterable[Finding]) -> set[DerivedPart]:
    """Return the derived parts of the store that findings are about."""
    kinds = {finding.kind for finding in findings}
    if FindingKind.LOG_END in kinds:
        return set(DerivedPart)
    return {part for kind in kinds if (part := MEANINGS[kind].part) is not None}


def damage_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that keep a repair from rebuilding: another planner has to repair them first."""
    meant = ((finding, MEANINGS[finding.kind]) for finding in findings)
    return [one for one, meaning in meant if meaning.stops_rebuild and Planner.DERIVED not in meaning.planners]
