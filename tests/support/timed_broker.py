"""A broker with a settable clock."""

from __future__ import annotations

from tests.support.broker_desk import Desk, records, until

START_MS = 1_800_000_000_000


class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


async def settled(desk: Desk) -> None:
    """Wait until everything that the clock allows has been turned out."""
    timed, state = desk.broker._timed, desk.broker.state

    def is_settled() -> bool:
        store = state.store
        if store.dispatched_to < store.written_to:
            return False
        next_ms = timed.step(state.now_ms())
        return store.dispatched_to == store.written_to and (next_ms is None or next_ms > state.now_ms())

    await until(is_settled)


async def bodies(desk: Desk, topic: str = "Orders") -> list[bytes]:
    return [message.body for message in records(await desk.pull(topic))]
