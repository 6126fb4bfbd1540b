"""Runtime numbers: the values of GET_BROKER_RUNTIME_INFO, for tools and dashboards, under Java's keys.

Mirrors `AdminBrokerProcessor.prepareRuntimeInfo` and `StoreStatsService`. Orbitlog has no thread pools: the lengths of
their queues are 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.statistics import Counter
from orbitlog.formats import names
from orbitlog.storefiles.disk import RealDisk

_POOLS = ("send", "pull", "litePull", "query", "ack")
_POOL_CAPACITY = 10_000
_VERSIONS = {"4.9": ("V4_9_8", 409), "5.5": ("V5_5_0", 513)}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def runtime_numbers(state: BrokerState, delayed_to: Callable[[int], int]) -> dict[str, str]:
    """Return all values as text."""
    version_text, version = _VERSIONS[state.compat.name]
    numbers: dict[str, object] = {
        **_store_numbers(state),
        **_rates(state),
        **{f"limitReached_{key}": count for key, count in state.limits.reached.items()},
        **{f"slowRequest_{number}": text for number, text in enumerate(_slow_requests())},
        "brokerActive": str(not state.settings.is_slave).lower(),  # whether it delivers scheduled messages
        **_memory(),
        "brokerVersionDesc": version_text,
        "brokerVersion": version,
        "startAcceptSendRequestTimeStamp": 0,
        "pageCacheLockTimeMills": 0,
        "remainTransientStoreBufferNumbs": 0,
        "EndTransactionQueueSize": 0,
        "EndTransactionThreadPoolQueueCapacity": _POOL_CAPACITY,
        "timerReadBehind": 0,
        "timerOffsetBehind": 0,
        "timerCongestNum": 0,
        "timerEnqueueTps": 0.0,
        "timerDequeueTps": 0.0,
    }
    for pool in _POOLS:
        numbers |= {
            f"{pool}ThreadPoolQueueSize": 0,
            f"{pool}ThreadPoolQueueCapacity": _POOL_CAPACITY,
            f"{pool}ThreadPoolQueueHeadWaitTimeMills": 0,
        }
    for level in range(1, state.delay_levels.max_level + 1):
        end = state.max_offset(names.SCHEDULE_TOPIC, level - 1)
        if end:
            numbers[f"scheduleMessageOffset_{level}"] = f"{delayed_to(level)},{end}"
    return {key: str(value) for key, value in sorted(numbers.items())}


def _store_numbers(state: BrokerState) -> dict[str, object]:
    store = state.store
    usage = RealDisk().usage(state.root)
    return {
        "bootTimestamp": state.statistics.started_ms,
        "runtime": _elapsed(state.now_ms() - state.statistics.started_ms),
        "commitLogMinOffset": store.min_physical_offset,
        "commitLogMaxOffset": store.written_to,
        "commitLogDiskRatio": round(usage.used_ratio, 4),
        "consumeQueueDiskRatio": round(usage.used_ratio, 4),
        "commitLogDirCapacity": f"Total : {_bytes(usage.total_bytes)}, Free : {_bytes(usage.free_bytes)}.",
        "dispatchBehindBytes": store.written_to - store.dispatched_to,
        "dispatchMaxBuffer": 0,
        "remainHowManyDataToFlush": _bytes(store.written_to - store.flushed_to),
        "earliestMessageTimeStamp": _earliest_ms(state),
    }


def _rates(state: BrokerState) -> dict[str, object]:
    statistics, now_ms = state.statistics, state.now_ms()
    put, get = statistics.put_messages, statistics.get_messages
    found, missed = statistics.get_requests_found, statistics.get_requests_missed
    average = statistics.put_bytes / put.total if put.total else 0.0
    transferred = _three(get, now_ms)
    return {
        "putTps": _three(put, now_ms),
        "getTransferedTps": transferred,
        "getTransferredTps": transferred,
        "getFoundTps": _three(found, now_ms),
        "getMissTps": _three(missed, now_ms),
        "getTotalTps": _three(found, now_ms),
        "putMessageTimesTotal": put.total,
        "putMessageSizeTotal": statistics.put_bytes,
        "putMessageAverageSize": average,
        "putMessageEntireTimeMax": 0,
        "getMessageEntireTimeMax": 0,
        "putMessageDistributeTime": "",
        "msgPutTotalYesterdayMorning": statistics.put_today.yesterday_morning,
        "msgPutTotalTodayMorning": statistics.put_today.this_morning,
        "msgPutTotalTodayNow": put.total,
        "msgGetTotalYesterdayMorning": statistics.get_today.yesterday_morning,
        "msgGetTotalTodayMorning": statistics.get_today.this_morning,
        "msgGetTotalTodayNow": get.total,
    }


def _memory() -> dict[str, object]:
    """Return the resident memory, which Apache's brokers do not report; empty if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return {}
    return {"processResidentBytes": pages * os.sysconf("SC_PAGE_SIZE")}


def _three(counter: Counter, now_ms: int) -> str:
    """Return three rates; tools split the text at the blanks and take the first."""
    return " ".join(str(window.tps) for window in counter.windows(now_ms))


def _earliest_ms(state: BrokerState) -> int:
    message = state.store.read_at(state.store.min_physical_offset)
    return -1 if message is None else message.store_timestamp_ms


def _elapsed(elapsed_ms: int) -> str:
    seconds = elapsed_ms // 1000
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    minutes, seconds = divmod(seconds, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{count} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes everything")


def _slow_requests() -> list[str]:
    """Return the last slow requests; none if none was reported, and the module that keeps them is not loaded."""
    reports = sys.modules.get("orbitlog.remoting.slow_requests")
    return [] if reports is None else list(reports.RECENT)
