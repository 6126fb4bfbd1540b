"""Conditions: the states of a server that an operator has to know, in one table.

Each is logged once when it begins and once when it ends. Metrics, `/healthz` and readiness read the same table. The
parts of a server report through `set`, which may be called at any rate.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

log = logging.getLogger(__name__)

SUBJECTS_MAX = 1_000
"""Active subjects of one condition: more are logged, and not kept."""
QUIET_MS = 60_000
"""A limit counts as no longer reached after this time without an event."""


class Condition(NamedTuple):
    """A kind of condition: its stable name, and the words of its two log lines."""

    name: str
    title: str
    effect: str
    """Consequence while it lasts; part of the first line."""
    ended: str = ""
    """Consequence of its end; part of the second line."""
    is_error: bool = False
    blocks: bool = False
    """Whether a server with it is not ready."""
    shows_subject: bool = True
    """Whether pages without access control may show the subject."""


DISK_FULL = Condition("disk_full", "disk full", "sends are refused", "sends are accepted", is_error=True, blocks=True)
READ_ONLY = Condition("read_only", "read-only", "sends are refused", is_error=True, blocks=True)
FENCED = Condition("fenced", "fenced", "sends are refused", "sends are accepted", blocks=True)
LIMIT_REACHED = Condition("limit_reached", "limit reached", "clients are refused or delayed")
QUOTA_REACHED = Condition("quota_reached", "quota reached", "the account is slowed down", shows_subject=False)
NAME_SERVER_LOST = Condition(
    "name_server_lost", "name server lost", "registration is retried", "this broker is registered"
)
REPLICA_LOST = Condition("replica_lost", "replica lost", "the log has one copy less", "the slave follows")
TOO_FEW_REPLICAS = Condition(
    "too_few_replicas",
    "too few replicas",
    "sends are answered with SLAVE_NOT_AVAILABLE",
    "sends wait for slaves",
    is_error=True,
)
MASTER_LOST = Condition("master_lost", "master lost", "the log is not copied", "the log is copied")
COORDINATOR_LOST = Condition(
    "coordinator_lost", "coordinator lost", "no failover, and the lease ends", "the lease is renewed", is_error=True
)
DISPATCH_LAG = Condition("dispatch_lag", "dispatch lag", "consumers get messages late", "queues are current")
FLUSH_LAG = Condition("flush_lag", "flush lag", "more unflushed bytes than usual", "the log is flushed")
CERTIFICATE_EXPIRING = Condition(
    "certificate_expiring", "certificate expires soon", "clients will refuse it", "it was replaced", is_error=True
)
STEP_FAILING = Condition("step_failing", "background step fails", "it is retried", is_error=True)
EXPORT_FAILING = Condition("export_failing", "metrics export fails", "values are dropped", "values are exported")
BROKER_LOST = Condition("broker_lost", "broker lost", "its routes are removed", "it has registered")

ALL: tuple[Condition, ...] = tuple(value for value in globals().values() if isinstance(value, Condition))


class Active(NamedTuple):
    """A condition that lasts."""

    condition: Condition
    subject: str
    since_s: float
    """Seconds since 1970."""


class Conditions:
    """The conditions of one server. Used in the thread of the event loop alone."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._active: dict[tuple[str, str], Active] = {}
        self.began = {condition.name: 0 for condition in ALL}
        """How often each condition has begun."""

    def set(self, condition: Condition, reason: str, subject: str = "", *, error: BaseException | None = None) -> bool:
        """Begin a condition for a reason, or end it with an empty one; return whether that is a change."""
        key = condition.name, subject
        active = self._active.get(key)
        if bool(reason) is (active is not None):
            return False
        if active is None:
            self._begin(condition, reason, subject, error)
        else:
            del self._active[key]
            self._log_end(active)
        return True

    def end(self, condition: Condition, subject: str = "", detail: str = "") -> None:
        """End a condition if it lasts; `detail` is part of the line."""
        active = self._active.pop((condition.name, subject), None)
        if active is not None:
            self._log_end(active, detail)

    def expire(self, condition: Condition, seconds_max: float) -> None:
        """End those that have lasted longer: their subject is not expected to come back."""
        now_s = self._now_s()
        for active in self:
            if active.condition is condition and now_s - active.since_s >= seconds_max:
                self.end(condition, active.subject, "no longer expected")

    def is_active(self, condition: Condition, subject: str = "") -> bool:
        return (condition.name, subject) in self._active

    def __iter__(self) -> Iterator[Active]:
        """Iterate over the active conditions, the longest first."""
        return iter(list(self._active.values()))

    def changed(self, event: str, text: str) -> None:
        """Log a change that has no end, such as another role."""
        log.warning("%s", text, extra={"event": event})

    def _begin(self, condition: Condition, reason: str, subject: str, error: BaseException | None) -> None:
        self.began[condition.name] += 1
        if sum(name == condition.name for name, _ in self._active) < SUBJECTS_MAX:
            self._active[condition.name, subject] = Active(condition, subject, self._now_s())
        log.log(
            logging.ERROR if condition.is_error else logging.WARNING,
            "%s: %s: %s",
            _titled(condition, subject),
            condition.effect,
            reason,
            exc_info=error,
            extra=_extra(condition, subject, state="begin"),
        )

    def _log_end(self, active: Active, detail: str = "") -> None:
        condition, subject, since_s = active
        seconds = max(self._now_s() - since_s, 0.0)
        tail = "".join(f", {text}" for text in (condition.ended, detail) if text)
        log.warning(
            "%s: ended after %.1f s%s",
            _titled(condition, subject),
            seconds,
            tail,
            extra=_extra(condition, subject, state="end", duration_ms=int(seconds * 1000)),
        )


class ReachedCounters:
    """Conditions that are counters: they begin with an increment, and end after a quiet minute."""

    def __init__(self, conditions: Conditions, condition: Condition, counts: Mapping[str, int]) -> None:
        self._conditions = conditions
        self._condition = condition
        self._counts = dict(counts)
        # By key: when it was reached last, and its counter when that began.
        self._active: dict[str, tuple[int, int]] = {}

    def check(self, now_ms: int, counts: Mapping[str, int]) -> None:
        """Compare the counters with those of the last call."""
        for key, count in counts.items():
            before = self._counts.get(key, 0)
            if count > before:
                if key not in self._active:
                    self._conditions.set(self._condition, f"{count} times since the start", key)
                self._active[key] = now_ms, self._active.get(key, (0, before))[1]
                self._counts[key] = count
        for key, (last_ms, first_count) in list(self._active.items()):
            if now_ms - last_ms >= QUIET_MS:
                del self._active[key]
                self._conditions.end(self._condition, key, f"{self._counts[key] - first_count} times in all")


def _titled(condition: Condition, subject: str) -> str:
    return f"{condition.title}: {subject}" if subject else condition.title


def _extra(condition: Condition, subject: str, **fields: object) -> dict[str, object]:
    """Return what a record carries for JSON lines and for the limit of repeated lines."""
    shown = {"subject": subject} if subject else {}
    return {"event": condition.name, "fields": {**shown, **fields}}
