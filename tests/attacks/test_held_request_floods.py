"""Floods of long polls: honest ones are held, those of the greediest connection give way, and none costs n * n."""

from __future__ import annotations

from collections.abc import Callable

from orbitlog.broker.pulling.held_pulls import HeldPull, HeldPulls
from orbitlog.broker.pulling.held_requests import HeldRequests
from orbitlog.settings.limits import HELD_PER_CONNECTION, HELD_REQUESTS, Limits
from orbitlog.testing.running_broker import RunningBroker
from tests.support.raw_peer import RawPeer, raw_frame
from tests.support.raw_requests import HELD_PULL
from tests.support.work_counters import steps_of


class Owner:
    """Stands in for a connection."""

    def __init__(self, address: str) -> None:
        self.remote_address = (address, 1)


def pull_of(owner: Owner, queue_id: int = 0, until_ms: int = 10_000_000) -> HeldPull[str]:
    return HeldPull("T", queue_id, 5, until_ms, None, owner, "request")


def table(**limits: int) -> tuple[HeldPulls[str], Limits]:
    counted = Limits(limits)
    counts = HeldRequests(counted)
    held: HeldPulls[str] = HeldPulls(counts)
    counts.add_displacer(lambda owner, count: len(held.take_newest(owner, count)))
    return held, counted


def test_five_thousand_consumers_of_a_hundred_queues_are_held() -> None:
    assert HELD_REQUESTS.default >= 5_000 * 100
    assert HELD_PER_CONNECTION.default >= 100


def test_greediest_connection_gives_way() -> None:
    held, limits = table(heldRequestsMax=100)
    greedy, honest = Owner("6.6.6.6"), Owner("10.0.0.1")
    first = pull_of(honest)
    assert held.hold(first)
    accepted = sum(held.hold(pull_of(greedy)) for _ in range(200))
    assert accepted == 99
    assert all(held.hold(pull_of(honest)) for _ in range(20))
    assert len(held.take_owner(honest)) == 21
    assert limits.reached[HELD_REQUESTS.key] > 0


def test_many_connections_of_one_address_count_together() -> None:
    held, _ = table(heldRequestsMax=100)
    honest = Owner("10.0.0.1")
    assert all(held.hold(pull_of(honest)) for _ in range(10))
    for _ in range(300):
        held.hold(pull_of(Owner("6.6.6.6")))
    assert len(held.take_owner(honest)) == 10


def test_overdue_pulls_are_taken_in_one_pass() -> None:
    steps = []
    for count in (500, 2_000):
        held, _ = table()
        owner = Owner("1.1.1.1")
        for _ in range(count):
            held.hold(pull_of(owner))
        steps.append(steps_of(lambda held=held: held.take_overdue("T", 0, 6)))
    assert steps[1] < 5 * steps[0]


def test_timer_and_closing_connection_do_not_look_at_the_pulls_of_others() -> None:
    held, _ = table()
    crowd, leaving = Owner("1.1.1.1"), Owner("2.2.2.2")
    for number in range(5_000):
        held.hold(pull_of(crowd, number))
    held.hold(pull_of(leaving, until_ms=100))
    assert steps_of(lambda: held.take_expired(50)) < 100
    assert steps_of(lambda: held.take_owner(leaving)) < 100


def test_pull_over_the_limit_is_answered_at_once(start_target: Callable[..., RunningBroker]) -> None:
    target = start_target(heldRequestsPerConnectionMax="10")
    with RawPeer(target.broker_address) as peer:
        peer.send(b"".join(raw_frame(11, HELD_PULL, opaque=number) for number in range(1, 15)))
        answers = [peer.receive() for _ in range(4)]
        assert [(answer.opaque, answer.code) for answer in answers] == [(number, 19) for number in range(11, 15)]


def test_held_pulls_delay_no_other_connection(start_target: Callable[..., RunningBroker]) -> None:
    target = start_target()
    with RawPeer(target.broker_address) as attacker, RawPeer(target.broker_address) as honest:
        attacker.send(b"".join(raw_frame(11, HELD_PULL, bytes(4_000), opaque=number) for number in range(1, 2_000)))
        attacker.ask(28)
        assert honest.ask(28).code == 0
