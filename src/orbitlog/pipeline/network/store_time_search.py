"""Store time search: finds the first message of a queue stored at or after a time, whatever the broker's own search.

Brokers of different versions answer a search by time differently: the nearest message, the first one at or after the
time, the last one if all are older. Their answer is taken as a hint, and verified with the store times of messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

StoreTimeAt = Callable[[int], Awaitable[int | None]]
"""Returns the store time (ms) of the first message at or after an offset; None after the last one."""


async def first_at_or_after(store_time_at: StoreTimeAt, earliest: int, latest: int, time_ms: int, hint: int) -> int:
    """Return the smallest offset whose message was stored at or after `time_ms`, or `latest`.

    Store times ascend within a queue. From the hint the search widens in doubling steps, then halves.
    """

    async def is_late(offset: int) -> bool:
        if offset >= latest:
            return True
        stored_ms = await store_time_at(offset)
        return stored_ms is None or stored_ms >= time_ms

    low, high = earliest, latest  # every offset before low is too early, high is late enough
    probe = min(max(hint, earliest), latest)
    step = 1
    if await is_late(probe):
        high = probe
        while low < high:
            probe = max(high - step, low)
            if not await is_late(probe):
                low = probe + 1
                break
            high, step = probe, step * 2
    else:
        low = probe + 1
        while low < high:
            probe = min(low - 1 + step, high)
            if await is_late(probe):
                high = probe
                break
            low, step = probe + 1, step * 2
    while low < high:
        middle = (low + high) // 2
        if await is_late(middle):
            high = middle
        else:
            low = middle + 1
    return low
