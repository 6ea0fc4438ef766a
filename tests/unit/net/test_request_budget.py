"""The budget of large requests: which pool a frame takes from, what waits, what must go."""

from __future__ import annotations

import pytest

from odradek.net.request_budget import (
    ORDINARY_BYTES,
    PARKED_SECONDS,
    PROGRESS_BYTES,
    STALL_SECONDS,
    STEP_BYTES,
    RequestBudget,
    Share,
)

MEBIBYTE = 1 << 20
LARGEST = 100 * MEBIBYTE
LIMIT = 256 * MEBIBYTE


def made() -> RequestBudget:
    return RequestBudget(LIMIT, LARGEST)


def filled_with_large_frames(budget: RequestBudget, *, received: bool = True) -> list[Share]:
    """As many as find room, each of which has filled what it was granted."""
    shares = []
    while True:
        share = budget.begin(None, LARGEST)
        shares.append(share)
        for _ in range(10):
            if not budget.request_room(share, 0.0):
                return shares
            share.received_bytes = share.granted_bytes if received else 0


@pytest.mark.check(45)
def test_what_is_announced_and_not_sent_costs_one_step() -> None:
    budget = made()
    assert budget.request_room(budget.begin(None, LARGEST), 0.0)
    assert budget.held_bytes == STEP_BYTES


def test_an_ordinary_frame_gets_all_its_room_at_once() -> None:
    budget = made()
    share = budget.begin(None, ORDINARY_BYTES)
    assert budget.request_room(share, 0.0)
    assert share.granted_bytes == ORDINARY_BYTES


def test_unfinished_large_frames_leave_room_for_ordinary_ones() -> None:
    budget = made()
    filled_with_large_frames(budget)
    assert budget.waiting_count
    for _ in range(10):
        assert budget.request_room(budget.begin(None, ORDINARY_BYTES), 0.0)


def test_newcomers_leave_room_for_those_who_have_sent_a_frame_whole_and_these_for_brokers() -> None:
    budget = made()

    def fill(**kind: bool) -> None:
        while budget.request_room(budget.begin(None, ORDINARY_BYTES, **kind), 0.0):
            pass

    filled_with_large_frames(budget)
    fill()
    assert budget.request_room(budget.begin(None, ORDINARY_BYTES, is_proven=True), 0.0)
    fill(is_proven=True)
    assert budget.request_room(budget.begin(None, LARGEST, is_of_broker=True), 0.0)


def test_one_frame_at_a_time_can_always_be_received_whole() -> None:
    budget = made()
    shares = filled_with_large_frames(budget)
    favoured = [share for share in shares if share.granted_bytes == 0 or budget.request_room(share, 0.0)]
    assert len(favoured) <= 2, "the one that waited first, and the last, which waits"
    share = favoured[0]
    while share.granted_bytes < LARGEST:
        assert budget.request_room(share, 0.0)
    assert budget.held_bytes <= LIMIT


def test_who_stands_still_while_others_wait_is_overdue_and_who_holds_most_goes_first() -> None:
    budget = made()
    small, large = budget.begin("small", LARGEST), budget.begin("large", LARGEST)
    assert budget.request_room(small, 0.0)
    assert budget.request_room(large, 0.0)
    large.received_bytes = large.granted_bytes
    assert budget.request_room(large, 0.0)
    filled_with_large_frames(budget)
    assert budget.overdue(STALL_SECONDS / 2) is None
    late = budget.overdue(STALL_SECONDS)
    assert late is not None
    assert late.granted_bytes >= large.granted_bytes > small.granted_bytes


def test_who_trickles_stands_still_and_who_sends_on_does_not() -> None:
    budget = made()
    sending, trickling = budget.begin("sending", LARGEST), budget.begin("trickling", LARGEST)
    assert budget.request_room(sending, 0.0)
    assert budget.request_room(trickling, 0.0)
    for share in filled_with_large_frames(budget):
        share.marked_at = 1e9  # those are not looked at here
    sending.received_bytes, trickling.received_bytes = PROGRESS_BYTES, PROGRESS_BYTES - 1
    late = budget.overdue(STALL_SECONDS)
    assert late is trickling
    trickling.release()
    assert budget.overdue(STALL_SECONDS) is None


def test_a_large_request_that_is_not_answered_gives_way_to_those_who_wait() -> None:
    budget = RequestBudget(LARGEST, LARGEST)
    parked, waiting = budget.begin("parked", LARGEST), budget.begin("waiting", LARGEST)
    while parked.granted_bytes < LARGEST:
        assert budget.request_room(parked, 0.0)
    parked.received_bytes = LARGEST
    budget.complete(parked, 0.0)
    assert not budget.request_room(waiting, 0.0)
    assert budget.overdue(PARKED_SECONDS - 0.1) is None
    assert budget.overdue(PARKED_SECONDS) is parked
    parked.release()
    assert budget.admit(PARKED_SECONDS) == [waiting]


def test_what_is_given_back_twice_counts_once() -> None:
    budget = made()
    share = budget.begin(None, ORDINARY_BYTES)
    budget.request_room(share, 0.0)
    share.release()
    share.release()
    assert budget.held_bytes == 0


def test_those_who_wait_hear_of_room_and_no_one_else_does() -> None:
    heard: list[int] = []
    budget = RequestBudget(LARGEST, LARGEST, on_free=lambda: heard.append(1))
    first, second = budget.begin(None, LARGEST), budget.begin(None, LARGEST)
    assert budget.request_room(first, 0.0)
    assert not budget.request_room(second, 0.0)
    first.release()
    assert heard == [1]
    second.release()
    assert heard == [1]


def test_without_a_limit_no_one_waits_and_everything_is_counted() -> None:
    budget = RequestBudget(None, LARGEST)
    for _ in range(1000):
        share = budget.begin(None, LARGEST)
        assert budget.request_room(share, 0.0)
    assert budget.held_bytes == 1000 * STEP_BYTES
    assert budget.counters.frames == 1000
