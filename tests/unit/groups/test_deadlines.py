"""Deadlines come in their order, however often they were moved."""

import random
from enum import Enum

from odradek.groups.shard.deadlines import DeadlineKey, Deadlines


class Kind(Enum):
    ANY = "any"


def due(number: int) -> DeadlineKey:
    return DeadlineKey(Kind.ANY, f"g{number}")


def test_the_earliest_comes_first() -> None:
    deadlines = Deadlines()
    for number, at_ms in enumerate([30, 10, 20]):
        deadlines.set(due(number), at_ms)
    assert (deadlines.next_ms(), deadlines.peek(9), deadlines.peek(10)) == (10, None, due(1))


def test_one_that_is_moved_or_cancelled_does_not_come_at_its_old_time() -> None:
    deadlines = Deadlines()
    deadlines.set(due(0), 10)
    deadlines.set(due(1), 20)
    deadlines.set(due(0), 30)
    assert deadlines.next_ms() == 20
    deadlines.cancel(due(1))
    assert deadlines.next_ms() == 30
    deadlines.set(due(0), 5)
    assert deadlines.next_ms() == 5
    deadlines.cancel(due(0))
    assert deadlines.next_ms() is None


def test_a_thousand_heartbeats_of_one_member_leave_one_deadline_in_hand() -> None:
    deadlines = Deadlines()
    for at_ms in range(100_000):
        deadlines.set(due(0), at_ms)
    assert len(deadlines) == 1
    assert deadlines.entry_count == 1
    assert deadlines.next_ms() == 99_999


def test_a_cheap_look_at_the_next_one_is_never_late_and_right_after_a_peek() -> None:
    deadlines = Deadlines()
    assert deadlines.next_check_ms() is None
    deadlines.set(due(0), 10)
    deadlines.set(due(0), 30)
    assert deadlines.next_check_ms() == 10
    assert deadlines.peek(10) is None
    assert deadlines.next_check_ms() == 30
    deadlines.cancel(due(0))
    assert deadlines.next_check_ms() == 30
    assert deadlines.peek(30) is None
    assert deadlines.next_check_ms() is None


def test_it_agrees_with_a_plain_dictionary() -> None:
    chance = random.Random(7)
    deadlines, plain = Deadlines(), {}
    for _ in range(5_000):
        deadline = due(chance.randrange(50))
        if chance.random() < 0.2:
            deadlines.cancel(deadline)
            plain.pop(deadline, None)
        else:
            plain[deadline] = chance.randrange(1_000)
            deadlines.set(deadline, plain[deadline])
        earliest_ms = min(plain.values(), default=None)
        checked_ms = deadlines.next_check_ms()
        assert earliest_ms is None or (checked_ms is not None and checked_ms <= earliest_ms)
        assert deadlines.next_ms() == deadlines.next_check_ms() == earliest_ms
        assert deadlines.entry_count <= 64 + 4 * len(plain) + 1
