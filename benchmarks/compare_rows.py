"""Rows of `make compare`: jobs for the official client, and the values to take from the response to each.

A ratio compares Orbitlog with Apache's broker: more is better in every row. Targets are ratios.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.broker_pairs import ACCESS_CONTROL, TLS

TOPIC = "Compare"
BACKLOG_TOPIC = "Backlog"  # its own: the messages consumed are the same in every setting, whichever rows ran before
WARM_UP_TOPIC = "WarmUp"
SYNC_FLUSH = ("flushDiskType=SYNC_FLUSH",)
MANY_TOPICS = 1000
HELD_CONSUMERS = 50

START = "start to first acknowledged send"
MEMORY = "idle memory, name server and broker"


@dataclass(frozen=True)
class Row:
    """One line of the comparison."""

    name: str
    value: str = "rate"  # or p50, p99, p999 in milliseconds, or cpu: seconds of the broker for a million messages
    target: float | None = None

    @property
    def unit(self) -> str:
        return {"rate": "msg/s", "cpu": "s", "seconds": "s", "memory": "MB", "load": "% of a core"}.get(
            self.value, "ms"
        )

    def ratio(self, apache: float, ours: float) -> float:
        return ours / apache if self.value == "rate" else apache / ours


# Measured without a job.
APART = (
    Row(START, "seconds", 10.0),
    Row(MEMORY, "memory", 8.0),
)


@dataclass(frozen=True)
class Job:
    """One job of the client, which gives one row or several; some need other jobs before and after them."""

    words: str
    rows: tuple[Row, ...]
    settings: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def warm_up(*, is_quick: bool) -> tuple[str, ...]:
    """Return the jobs that a new client runs before its first row, whichever rows were chosen.

    Java compiles a method after some ten thousand calls. Without this the first rows, and every row of a short run,
    measure the interpreter of the client: its consumers, which take most of the CPU time of a consume or latency row.
    The counts do not follow `--scale`, because the compiler needs as many calls for a short run as for a long one.
    """
    share = 0.01 if is_quick else 1.0

    def count(messages: int) -> int:
        return max(640, int(messages * share) // 32 * 32)

    backlog = count(320_000)
    return (
        f"topics {WARM_UP_TOPIC} 1 8",
        f"sync {WARM_UP_TOPIC} 16 128 {count(64_000)}",
        f"async {WARM_UP_TOPIC} 1000 128 {count(160_000)}",
        f"batch {WARM_UP_TOPIC} 8 128 {backlog} 32",
        *(f"consume {WARM_UP_TOPIC} {backlog}" for _ in range(3)),
        f"latency {WARM_UP_TOPIC} 5000 128 {2 if is_quick else 8}",
    )


def jobs(scale: float) -> list[Job]:
    def count(messages: int) -> int:
        return max(640, int(messages * scale) // 32 * 32)

    def seconds(wanted: int) -> int:
        return max(2, int(wanted * scale))

    return [
        *(job for size in (128, 1024) for job in _sends(size, count)),
        Job(
            f"consume {BACKLOG_TOPIC} {count(1_500_000)}",
            (Row("backlog consumed", target=1.0), Row("CPU of the broker, a million consumed", "cpu", 1.0)),
            # A run of this row alone has no backlog from earlier rows.
            before=(f"batch {BACKLOG_TOPIC} 8 128 {count(1_500_000)} 32",),
        ),
        _latency(1000, seconds(10)),
        _latency(10_000, seconds(8)),
        Job(
            f"idle {seconds(10)}",
            (Row(f"{HELD_CONSUMERS} consumers waiting, no messages: load", "load", 1.0),),
            before=(f"hold Held {HELD_CONSUMERS}",),
        ),
        Job(
            f"latency Held 100 128 {seconds(10)}",
            (Row(f"{HELD_CONSUMERS} groups consuming 100 msg/s each: p99", "p99", 1.0),),
            after=("release",),
        ),
        Job(
            f"query {TOPIC} key {count(1_000)}",
            (Row("query by key: p50", "p50", 1.0),),
            before=(f"sync {TOPIC} 16 128 {count(1_000)}",),
        ),
        # Last, because they leave Apache's broker with work that would count in later rows.
        Job(
            f"transactions Decided 16 128 {count(40_000)}",
            (Row("transactions committed and visible, 16 threads, 128 B", target=1.0),),
            before=("topics Decided 1 8",),
        ),
        Job(
            f"sync Many* 16 128 {count(100_000)}",
            (Row(f"sync send to {MANY_TOPICS:,} topics x 4 queues, 16 threads", target=1.3),),
            before=(f"topics Many {MANY_TOPICS} 4",),
        ),
        *(
            Job(
                f"sync {TOPIC} {threads} 128 {count(messages)}",
                (Row(f"sync send with sync flush, {_threads(threads)}, 128 B", target=1.0),),
                settings=SYNC_FLUSH,
            )
            for threads, messages in ((1, 3_000), (16, 20_000), (64, 40_000))
        ),
        *_with_access_control(count),
        *_with_tls(count),
    ]


def _with_access_control(count: Callable[[int], int]) -> list[Job]:
    suffix = ", with access control"
    return [
        Job(
            f"sync {TOPIC} 16 128 {count(120_000)}",
            (Row(f"sync send, 16 threads, 128 B{suffix}", target=1.3),),
            settings=ACCESS_CONTROL,
        ),
        Job(
            f"sync {TOPIC} 64 1024 {count(160_000)}",
            (
                Row(f"sync send, 64 threads, 1 KB{suffix}", target=1.3),
                Row(f"CPU of the broker, a million sync sends, 64 threads, 1 KB{suffix}", "cpu", 2.0),
            ),
            settings=ACCESS_CONTROL,
        ),
        Job(
            f"consume {BACKLOG_TOPIC} {count(1_500_000)}",
            (Row(f"backlog consumed{suffix}", target=1.0),),
            settings=ACCESS_CONTROL,
            before=(f"batch {BACKLOG_TOPIC} 8 128 {count(1_500_000)} 32",),
        ),
    ]


def _with_tls(count: Callable[[int], int]) -> list[Job]:
    suffix = ", with TLS"
    return [
        Job(
            f"sync {TOPIC} 16 128 {count(120_000)}",
            (Row(f"sync send, 16 threads, 128 B{suffix}", target=1.3),),
            settings=TLS,
        ),
        Job(
            f"sync {TOPIC} 64 1024 {count(160_000)}",
            (
                Row(f"sync send, 64 threads, 1 KB{suffix}", target=1.3),
                Row(f"CPU of the broker, a million sync sends, 64 threads, 1 KB{suffix}", "cpu", 1.0),
            ),
            settings=TLS,
        ),
        Job(
            f"consume {BACKLOG_TOPIC} {count(1_500_000)}",
            (Row(f"backlog consumed{suffix}", target=1.0),),
            settings=TLS,
            before=(f"batch {BACKLOG_TOPIC} 8 128 {count(1_500_000)} 32",),
        ),
    ]


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _sends(size: int, count: Callable[[int], int]) -> list[Job]:
    size_text = f"{size} B" if size < 1024 else f"{size // 1024} KB"
    rate = f"sync send, {{}}, {size_text}"
    return [
        Job(
            f"sync {TOPIC} 1 {size} {count(20_000)}",
            (
                Row(rate.format(_threads(1)), target=1.0),
                Row(f"sync send, 1 thread, {size_text}: p50", "p50", 1.0),
                Row(f"sync send, 1 thread, {size_text}: p99", "p99", 1.0),
            ),
        ),
        Job(f"sync {TOPIC} 16 {size} {count(120_000)}", (Row(rate.format(_threads(16)), target=1.3),)),
        Job(
            f"sync {TOPIC} 64 {size} {count(160_000)}",
            (
                Row(rate.format(_threads(64)), target=1.3),
                Row(f"CPU of the broker, a million sync sends, 64 threads, {size_text}", "cpu", 2.0),
            ),
        ),
        Job(
            f"async {TOPIC} 1000 {size} {count(300_000)}",
            (Row(f"async send, 1,000 in flight, {size_text}", target=1.3),),
        ),
        Job(
            f"batch {TOPIC} 8 {size} {count(640_000)} 32",
            (
                Row(f"batches of 32, 8 threads, {size_text}", target=1.2),
                Row(f"CPU of the broker, a million in batches, {size_text}", "cpu", 1.0),
            ),
        ),
        # Java's client allows 65,535 unwritten one-way requests; with more it blocks for ever, even in a later job.
        Job(f"oneway {TOPIC} 4 {size} {min(count(200_000), 20_000)}", (Row(f"one-way, 4 threads, {size_text}"),)),
    ]


def _latency(per_second: int, seconds: int) -> Job:
    title = f"end to end at {per_second:,} msg/s"
    rows = (Row(f"{title}: p50", "p50", 1.0), Row(f"{title}: p99", "p99", 1.0), Row(f"{title}: p99.9", "p999"))
    return Job(f"latency Latency {per_second} 128 {seconds}", rows)
