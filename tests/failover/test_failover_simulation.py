"""Replica groups under faults, simulated from seeds; `make failover` runs it for long."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from orbitlog.testing.failover.failover_ledger import InvariantViolation
from orbitlog.testing.failover.failover_runs import FailedRun, run_decisions, run_seed, shrunk
from tests.failover.mutants import FIRST_SEEDS, TABLE_MUTANTS

STEPS = int(os.environ.get("ORBITLOG_FAILOVER_STEPS", "60000"))
FIRST_SEED = int(os.environ.get("ORBITLOG_FAILOVER_SEED", "0"))
RUN_DECISIONS = 2000
MUTANT_DECISIONS = 1500
# Seeds after the first one that a mutant may need when the order of random draws has changed.
MUTANT_SEEDS_MAX = 1500


def test_group_keeps_its_invariants_under_random_faults() -> None:
    steps = epochs = kept_tails = 0
    seed = FIRST_SEED
    while steps < STEPS:
        outcome = run_seed(seed, RUN_DECISIONS)
        if isinstance(outcome, FailedRun):
            pytest.fail(f"{shrunk(outcome).report()}\nreproduce: ORBITLOG_FAILOVER_SEED={seed} make failover")
        steps += outcome.steps
        epochs += outcome.epochs
        kept_tails += outcome.kept_tails
        seed += 1
    print(f"{steps} steps in {seed - FIRST_SEED} runs, {epochs} epochs, {kept_tails} kept tails, no violation")
    assert epochs > seed - FIRST_SEED, "no run had a failover"
    assert kept_tails, "no returning master had a tail to give up"


def test_group_keeps_acknowledged_changes_of_tables_under_random_faults() -> None:
    steps = changes = 0
    seed = FIRST_SEED
    while steps < STEPS // 4:
        outcome = run_seed(seed, RUN_DECISIONS, with_tables=True)
        if isinstance(outcome, FailedRun):
            pytest.fail(f"{shrunk(outcome).report()}\nreproduce: ORBITLOG_FAILOVER_SEED={seed} make failover")
        steps += outcome.steps
        changes += outcome.acknowledged_changes
        seed += 1
    print(f"{steps} steps with tables in {seed - FIRST_SEED} runs, {changes} acknowledged changes, no violation")
    assert changes > seed - FIRST_SEED, "hardly a change was acknowledged"


@pytest.mark.parametrize("mutant", TABLE_MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutant_of_tables_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    assert any(
        isinstance(run_seed(seed, MUTANT_DECISIONS, with_tables=True), FailedRun) for seed in range(MUTANT_SEEDS_MAX)
    )


@pytest.mark.parametrize("mutant", FIRST_SEEDS, ids=lambda mutant: mutant.__name__)
def test_mutant_is_found(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    first = FIRST_SEEDS[mutant]
    assert any(
        isinstance(run_seed(seed, MUTANT_DECISIONS), FailedRun) for seed in range(first, first + MUTANT_SEEDS_MAX)
    )


def test_failed_run_is_reproducible_and_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = next(iter(FIRST_SEEDS))
    mutant(monkeypatch)
    failed = run_seed(FIRST_SEEDS[mutant], MUTANT_DECISIONS)
    assert isinstance(failed, FailedRun)
    assert run_seed(FIRST_SEEDS[mutant], MUTANT_DECISIONS) == failed
    short = shrunk(failed)
    assert len(short.decisions) < 60
    assert str(failed.seed) in short.report()
    with pytest.raises(InvariantViolation):
        run_decisions(short.setup, short.decisions)
