"""Failed authentications by address: free, delayed, closed, forgotten after a minute, in a table of limited size."""

from orbitlog.access import failed_attempts
from orbitlog.access.failed_attempts import DELAY_S, WINDOW_MS, FailedAttempts


def test_failures_are_free_then_delayed_then_close_the_connection():
    attempts = FailedAttempts(2, lambda: 5)

    answers = [attempts.add("10.0.0.1") for _ in range(22)]

    assert answers == [0.0] * 2 + [DELAY_S] * 18 + [None] * 2
    assert (attempts.delayed_count, attempts.closed_count) == (18, 2)
    assert attempts.add("10.0.0.2") == 0.0


def test_failures_are_forgotten_after_a_minute():
    now = [0]
    attempts = FailedAttempts(1, lambda: now[0])
    attempts.add("10.0.0.1")
    now[0] = WINDOW_MS - 1
    assert attempts.add("10.0.0.1") == DELAY_S
    now[0] = WINDOW_MS
    assert attempts.add("10.0.0.1") == 0.0


def test_table_drops_the_address_that_failed_least_recently(monkeypatch):
    monkeypatch.setattr(failed_attempts, "ADDRESSES_MAX", 3)
    attempts = FailedAttempts(1, lambda: 0)
    for ip in ("a", "b", "c", "a", "d"):
        attempts.add(ip)

    assert len(attempts) == 3
    assert attempts.add("a") == DELAY_S
    assert attempts.add("b") == 0.0
