"""Failover runs: random decisions from a seed, the check that a group recovers, and the reduction of a failed run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import NamedTuple

from orbitlog.testing.failover.failover_ledger import InvariantViolation
from orbitlog.testing.failover.group_simulation import Decision, GroupSimulation, Kind, Setup

RECOVERY_ROUNDS_MAX = 400
# Relative frequencies of ordinary steps and of faults. Faults are scaled by a factor of the run.
_WORK = {
    Kind.DELIVER: 34.0,
    Kind.PUMP: 14.0,
    Kind.TICK: 16.0,
    Kind.APPEND: 6.0,
    Kind.SERVE: 10.0,
    Kind.ANSWER: 10.0,
    Kind.FLUSH: 3.0,
    Kind.START: 2.0,
    Kind.HEARTBEAT: 1.0,
    Kind.RESUME: 1.0,
    Kind.UNBLOCK: 1.0,
}
_TABLES = {Kind.CHANGE: 1.5, Kind.FETCH: 9.0, Kind.SAVE: 9.0, Kind.REPORT: 9.0}
_FAULTS = {
    Kind.LOSE: 1.0,
    Kind.KILL: 0.3,
    Kind.POWER: 0.5,
    Kind.BREAK: 0.5,
    Kind.BLOCK: 0.5,
    Kind.EXPIRE: 3.0,
    Kind.PAUSE: 0.3,
    Kind.HAND_OVER: 0.4,
    Kind.OUTAGE: 0.2,
    Kind.DOOM: 0.4,
    Kind.WIPE: 0.3,
}


class FailedRun(NamedTuple):
    """A run that broke an invariant."""

    seed: int
    setup: Setup
    decisions: list[Decision]
    problem: str

    def report(self) -> str:
        """Return seed, problem and decisions, a line each."""
        lines = [f"seed {self.seed}, {self.setup}: {self.problem}", f"{len(self.decisions)} decisions:"]
        lines += [f"  {decision.kind.name} {decision.choice}" for decision in self.decisions]
        return "\n".join(lines)


class RunCounts(NamedTuple):
    """What a run covered; `steps` counts decisions that had an effect."""

    steps: int
    epochs: int
    confirmed_bytes: int
    kept_tails: int
    acknowledged_changes: int = 0


def setup_of(random: Random) -> Setup:
    """Draw a group."""
    nodes = random.choice((3, 3, 4, 5))
    return Setup(nodes, random.random() < 0.4, random.choice((1, 1, 2)))


def decisions_of(random: Random, steps: int, *, with_tables: bool = False) -> Iterator[Decision]:
    """Yield random decisions. Each run has faults of some kinds only, at a rate of its own."""
    rate = random.choice((0.2, 0.5, 1.0, 2.0))
    weights = _WORK | _TABLES if with_tables else dict(_WORK)
    for kind, weight in _FAULTS.items():
        if random.random() < 0.75:
            weights[kind] = weight * rate * random.choice((0.3, 1.0, 3.0))
    kinds = list(weights)
    bounds = list(accumulate(weights.values()))
    getrandbits = random.getrandbits
    for kind in random.choices(kinds, cum_weights=bounds, k=steps):
        yield Decision(kind, getrandbits(12))


def run_decisions(setup: Setup, decisions: list[Decision]) -> GroupSimulation:
    """Run decisions on a new group, then let it recover; raise `InvariantViolation`."""
    simulation = GroupSimulation(setup)
    step = simulation.step
    for decision in decisions:
        step(decision)
    recover(simulation)
    return simulation


def recover(simulation: GroupSimulation) -> None:
    """End all faults and drive the group; raise unless a master serves and every member has its log, within a bound."""
    simulation.blocked.clear()
    simulation.step(Decision(Kind.OUTAGE, 0))
    for index, node in enumerate(simulation.nodes):
        node.actions_left = -1
        simulation.step(Decision(Kind.RESUME, index))
        simulation.step(Decision(Kind.START, index))
    for index in range(len(simulation.links)):
        # A silent connection times out. One to a process that has ended would stay open for ever.
        simulation.step(Decision(Kind.BREAK, index))
    target = -1
    for round_number in range(RECOVERY_ROUNDS_MAX):
        _fair_round(simulation, round_number)
        leader = next(
            (node for node in simulation.nodes if node.member is not None and node.member.accepts_sends), None
        )
        if leader is None:
            continue
        if target < 0 or len(leader.disk.data) < target:
            simulation.step(Decision(Kind.APPEND, leader.member_id - 1))
            target = len(leader.disk.data)
        elif len(simulation.ledger.confirmed) >= target and all(
            node.disk.data == leader.disk.data for node in simulation.nodes
        ):
            return
    state = simulation.record.state
    raise InvariantViolation(f"(e) no master serves after {RECOVERY_ROUNDS_MAX} rounds without faults: {state}")


def _fair_round(simulation: GroupSimulation, round_number: int) -> None:
    """Give every part of a group a turn. Clocks move by half a second."""
    for index in range(len(simulation.nodes)):
        simulation.step(Decision(Kind.TICK, index + (8 << 4)))
        simulation.step(Decision(Kind.FLUSH, index))
        if simulation.tables is not None:
            for kind, choice in ((Kind.FETCH, index), (Kind.SAVE, index), (Kind.REPORT, 1)):
                simulation.step(Decision(kind, choice))
    for _ in range(len(simulation.requests)):
        simulation.step(Decision(Kind.SERVE, 0))
    for _ in range(len(simulation.answers)):
        simulation.step(Decision(Kind.ANSWER, 0))
    for index in range(len(simulation.links)):
        simulation.step(Decision(Kind.PUMP, (index << 3) + 7))
        if round_number % 8 == 7:
            simulation.step(Decision(Kind.HEARTBEAT, index))
    for _ in range(4):
        for index in range(len(simulation.links)):
            simulation.step(Decision(Kind.DELIVER, index << 1))
            simulation.step(Decision(Kind.DELIVER, (index << 1) + 1))


def run_seed(seed: int, steps: int, *, with_tables: bool = False) -> RunCounts | FailedRun:
    """Run one seed; return what it covered, or the failed run."""
    random = Random(seed)  # noqa: S311 # reproducible, not secret
    setup = setup_of(random)._replace(copies_tables=with_tables)
    decisions = list(decisions_of(random, steps, with_tables=with_tables))
    try:
        simulation = run_decisions(setup, decisions)
    except (InvariantViolation, AssertionError) as error:
        return FailedRun(seed, setup, decisions, _described(error))
    state = simulation.record.state
    return RunCounts(
        simulation.effective_steps,
        state.epoch if state is not None else 0,
        len(simulation.ledger.confirmed),
        sum(len(node.disk.kept_tails) for node in simulation.nodes),
        0 if simulation.tables is None else len(simulation.tables.acknowledged),
    )


def shrunk(failed: FailedRun) -> FailedRun:
    """Remove decisions from a failed run while it still fails, in ever smaller chunks."""
    decisions, problem = failed.decisions, failed.problem
    chunk = max(len(decisions) // 2, 1)
    while chunk:
        start = 0
        while start < len(decisions):
            candidate = decisions[:start] + decisions[start + chunk :]
            still = _problem_of(failed.setup, candidate)
            if still:
                decisions, problem = candidate, still
            else:
                start += chunk
        chunk //= 2
    return failed._replace(decisions=decisions, problem=problem)


def _problem_of(setup: Setup, decisions: list[Decision]) -> str:
    try:
        run_decisions(setup, decisions)
    except (InvariantViolation, AssertionError) as error:
        return _described(error)
    return ""


def _described(error: AssertionError) -> str:
    return str(error) or f"an assertion of the state machine failed: {error!r}"
