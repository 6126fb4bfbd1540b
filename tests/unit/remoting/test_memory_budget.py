"""Memory budget: one sum of all kinds of bytes, with shares of connections and addresses."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from orbitlog.remoting.memory_budget import HELD_REQUEST_BYTES, ConnectionMemory, MemoryBudget, MemoryLimits
from orbitlog.settings.limits import MEMORY_BYTES, MEMORY_PER_ADDRESS, MEMORY_PER_CONNECTION, Limits
from tests.support.work_counters import steps_of

LIMITS = MemoryLimits(total=10_000, per_address=6_000, per_connection=4_000)


class Server:
    """A budget and its connections, without sockets."""

    def __init__(self, limits: MemoryLimits = LIMITS) -> None:
        self.counters = Limits()
        self.budget = MemoryBudget(limits, self.counters)
        self.aborted: list[ConnectionMemory] = []

    def connect(self, address: str = "10.0.0.1") -> ConnectionMemory:
        memory = ConnectionMemory(self.budget)
        connection = Mock(peer=f"{address}:1")
        connection.abort.side_effect = lambda: self.aborted.append(memory)
        self.budget.connect(connection, memory, address)
        return memory

    def may_work(self, memory: ConnectionMemory) -> bool:
        return not self.budget.is_full and memory.working_bytes <= memory.address.work_per_connection


def test_all_kinds_of_bytes_are_one_sum_and_end_with_the_connection() -> None:
    server = Server()
    memory = server.connect()
    memory.add_work(1_000)
    memory.count_received(200)
    memory.count_received(300)
    memory.count_unsent(50)
    memory.add_held(1)
    assert server.budget.bytes == memory.address.bytes == 1_350 + HELD_REQUEST_BYTES
    server.budget.disconnect(memory)
    assert server.budget.bytes == server.budget.working_bytes == memory.address.bytes == 0
    assert memory.connection is None, "a connection is freed at once"
    server.budget.disconnect(memory)
    assert server.budget.bytes == 0 and not server.aborted


def test_work_of_one_connection_over_its_share_pauses_it_alone() -> None:
    server = Server()
    greedy, other = server.connect(), server.connect()
    greedy.add_work(4_001)
    assert not server.may_work(greedy) and server.may_work(other)
    server.budget.note_paused(greedy)
    assert server.counters.reached[MEMORY_PER_CONNECTION.key] == 1
    greedy.remove_work(4_001)
    assert server.may_work(greedy)


def test_work_of_one_address_over_its_share_pauses_the_connections_with_more_than_their_part() -> None:
    server = Server()
    greedy = [server.connect("6.6.6.6") for _ in range(3)]
    modest, stranger = server.connect("6.6.6.6"), server.connect("10.0.0.1")
    for memory in greedy:
        memory.add_work(2_100)
    assert not any(map(server.may_work, greedy))
    assert server.may_work(modest) and server.may_work(stranger)
    assert server.counters.reached[MEMORY_PER_ADDRESS.key] == 1
    called = Mock()
    server.budget.on_room(called)
    greedy[0].remove_work(2_100)
    called.assert_called_once_with()
    assert all(map(server.may_work, greedy))


def test_work_over_the_budget_pauses_all_until_a_quarter_is_free() -> None:
    server = Server()
    first, second, third = (server.connect(f"10.0.0.{number}") for number in range(3))
    for memory in (first, second, third):
        memory.add_work(3_500)
    idle = server.connect("10.0.0.9")
    assert server.budget.is_full and not server.may_work(idle)
    assert server.counters.reached[MEMORY_BYTES.key] == 1
    first.remove_work(2_000)
    assert server.budget.is_full
    first.remove_work(1_000)
    assert server.may_work(idle) and not server.aborted


def test_frames_that_wait_never_stop_work_for_ever() -> None:
    """Paused connections keep frames: if they alone could fill the budget, no request would ever be handled."""
    server = Server()
    waiting = [server.connect(f"10.0.0.{number}") for number in range(4)]
    for memory in waiting:
        memory.count_received(1_200)
    worker = server.connect("10.0.0.9")
    worker.add_work(3_000)
    worker.add_work(3_000)
    assert server.budget.is_full and not server.aborted
    worker.remove_work(3_000)
    worker.remove_work(3_000)
    assert not server.budget.is_full


@pytest.mark.parametrize("kind", ["count_received", "count_unsent"])
def test_kept_bytes_over_the_share_of_an_address_close_its_largest(kind: str) -> None:
    server = Server()
    honest = server.connect("10.0.0.1")
    getattr(honest, kind)(3_000)
    hostile = [server.connect("6.6.6.6") for _ in range(8)]
    for number, memory in enumerate(hostile):
        getattr(memory, kind)(500 + 100 * number)
    assert server.aborted and honest not in server.aborted
    assert hostile[0] not in server.aborted, "the largest go first"
    assert honest.address.bytes == 3_000 and hostile[0].address.bytes <= LIMITS.per_address
    assert server.counters.reached[MEMORY_PER_ADDRESS.key] == len(server.aborted)


def test_held_requests_count_like_other_bytes() -> None:
    server = Server()
    hostile = [server.connect("6.6.6.6") for _ in range(4)]
    for memory in hostile:
        memory.add_held(3)
    assert server.aborted and server.budget.bytes <= LIMITS.per_address
    for closed in server.aborted:
        closed.add_held(-3)
        server.budget.disconnect(closed)
    assert server.budget.bytes == 3 * (4 - len(server.aborted)) * HELD_REQUEST_BYTES, (
        "what ends after the closing is not removed twice"
    )


def test_kept_bytes_of_many_addresses_close_the_address_with_most() -> None:
    server = Server()
    for number in range(5):
        server.connect(f"10.0.0.{number}").count_received(1_000)
    hostile = server.connect("6.6.6.6"), server.connect("6.6.6.6")
    for memory in hostile:
        memory.count_received(2_900)
    assert server.aborted and set(server.aborted) <= set(hostile)
    assert server.counters.reached[MEMORY_BYTES.key] == len(server.aborted)


def test_connection_that_keeps_more_than_its_share_is_closed() -> None:
    server = Server()
    memory = server.connect()
    memory.count_unsent(4_001)
    assert server.aborted == [memory] and server.counters.reached[MEMORY_PER_CONNECTION.key] == 1


def test_bytes_are_counted_without_a_look_at_other_connections() -> None:
    def steps(connection_count: int) -> int:
        server = Server(MemoryLimits())
        memory, *_ = [server.connect(f"10.0.0.{number % 100}") for number in range(connection_count)]

        def work() -> None:
            memory.add_work(600)
            memory.count_received(10)
            memory.remove_work(600)

        return steps_of(work)

    assert steps(10) == steps(1_000)
