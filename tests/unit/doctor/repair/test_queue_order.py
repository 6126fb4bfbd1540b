"""Queues rebuilt in the order of their messages in the log."""

from __future__ import annotations

import pytest

from orbitlog.doctor.repair.queue_order import Gap, Room, Run, solve_order
from orbitlog.doctor.surveys.lost_messages import LogRange
from orbitlog.kernels.arrays import np

NOTHING_LOST = Room(())


def runs(*found: tuple[int, list[int]]) -> list[Run]:
    return [Run(first, np.array(places, np.int64)) for first, places in found]


@pytest.mark.parametrize("said", [1 << 40 | 2, 1 << 60, 1000, -5, 0])
def test_a_message_between_two_gets_the_one_offset_that_is_free(said: int) -> None:
    line = solve_order(runs((0, [100, 200]), (said, [300]), (3, [400, 500])), NOTHING_LOST, log_start=0)
    assert line is not None
    assert (line.moved, line.gaps) == ({300: 2}, [])


def test_of_several_free_offsets_the_nearest_in_bits_is_taken_and_the_others_are_gaps() -> None:
    room = Room((LogRange(210, 420), LogRange(510, 720)))
    line = solve_order(runs((0, [100]), (1 << 33 | 2, [450]), (5, [800])), room, log_start=0)
    assert line is not None
    assert line.moved == {450: 2}
    assert line.gaps == [Gap(1, 2, 100, 450), Gap(3, 5, 450, 800)]


def test_where_nothing_can_have_been_lost_before_a_message_it_follows_at_once() -> None:
    room = Room((LogRange(510, 720),))
    line = solve_order(runs((0, [100]), (7, [450]), (4, [800])), room, log_start=0)
    assert line is not None
    assert (line.moved, line.gaps) == ({450: 1}, [Gap(2, 4, 450, 800)])


def test_a_gap_needs_room_for_what_is_lost() -> None:
    with_gap = runs((0, [100]), (3, [800]))
    line = solve_order(with_gap, Room((LogRange(200, 400),)), log_start=0)
    assert line is not None
    assert line.gaps == [Gap(1, 3, 100, 800)]
    # Otherwise their place is unknown, and nothing is changed.
    assert solve_order(with_gap, NOTHING_LOST, log_start=0) is None
    assert solve_order(runs((0, [100, 200]), (3, [800, 900])), NOTHING_LOST, log_start=0) is None


def test_an_offset_that_no_loss_explains_is_wrong() -> None:
    line = solve_order(runs((0, [100]), (1 << 40, [800])), NOTHING_LOST, log_start=0)
    assert line is not None
    assert (line.moved, line.gaps) == ({800: 1}, [])


def test_messages_after_the_last_true_one_follow_it() -> None:
    line = solve_order(runs((0, [100, 200, 300]), (2, [400])), NOTHING_LOST, log_start=0)
    assert line is not None
    assert line.moved == {400: 3}


def test_the_first_message_of_a_log_that_lost_its_beginning_may_have_any_offset() -> None:
    line = solve_order(runs((1 << 60, [5100]), (41, [5200, 5300])), NOTHING_LOST, log_start=5000)
    assert line is not None
    assert (line.moved, line.gaps) == ({5100: 40}, [])


def test_a_topic_that_was_made_again_is_not_touched() -> None:
    again = runs((0, [100, 200, 300, 400, 500]), (0, [600, 700, 800, 900]))
    assert solve_order(again, NOTHING_LOST, log_start=0) is None


def test_more_messages_than_offsets_are_not_touched() -> None:
    assert solve_order(runs((0, [100, 200]), (1, [300]), (2, [400, 500])), NOTHING_LOST, log_start=0) is None
