"""How far listed groups are behind in time: which are read together, when they are read again, and what is not known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from odradek.console.model.group_ages import (
    AGE_S,
    GROUPS_AT_ONCE,
    KEPT_MAX,
    ROUNDS_MAX,
    SHARE,
    SHOWN_S,
    GroupAges,
    LatePositions,
    packed,
)
from odradek.console.model.snapshot import UNKNOWN
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class MovedClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


class WrittenSource:
    """Groups and ages that a test writes."""

    def __init__(self, clock: MovedClock) -> None:
        self.clock = clock
        self.positions: dict[str, LatePositions] = {}
        self.ages: dict[tuple[TopicPartition, int], int] = {}
        self.asked: list[list[str]] = []
        self.takes_s = 0.0
        self.rounds_in_time = ROUNDS_MAX
        self.refusal: KafkaError | None = None

    async def late(self, names: list[str]) -> Mapping[str, LatePositions]:
        self.asked.append(names)
        if self.refusal is not None:
            raise self.refusal
        return {name: self.positions[name] for name in names if name in self.positions}

    async def unread_ages_of(self, rounds: Sequence[LatePositions]) -> list[dict[TopicPartition, int]]:
        self.clock.now_s += self.takes_s
        return [
            {tp: self.ages[tp, offset] for tp, offset in positions.items() if (tp, offset) in self.ages}
            for positions in rounds[: self.rounds_in_time]
        ]


def ages_of(source: WrittenSource) -> GroupAges:
    return GroupAges(source, cast(Clock, source.clock), source.late)


async def test_groups_at_different_offsets_of_one_partition_each_have_their_own_age() -> None:
    source = WrittenSource(MovedClock())
    source.positions = {"a": {FIRST: 5, SECOND: 1}, "b": {FIRST: 7}, "read": {}, "silent": {SECOND: 9}}
    source.ages = {(FIRST, 5): 9_000, (SECOND, 1): 12_000, (FIRST, 7): 3_000}
    ages = ages_of(source)
    assert ages.of("a") == UNKNOWN
    await ages.begin(["a", "b", "read", "silent", "gone"], wait_s=60.0)
    shown = {name: ages.of(name) for name in ("a", "b", "read", "silent", "gone")}
    assert shown == {"a": 12_000, "b": 3_000, "read": 0, "silent": UNKNOWN, "gone": UNKNOWN}


async def test_an_age_is_read_again_when_it_is_due_and_hidden_when_it_is_old() -> None:
    clock = MovedClock()
    source = WrittenSource(clock)
    source.positions, source.ages = {"a": {FIRST: 5}}, {(FIRST, 5): 1_000}
    ages = ages_of(source)
    await ages.begin(["a"], wait_s=60.0)
    clock.now_s += AGE_S - 1
    await ages.begin(["a"], wait_s=60.0)
    assert source.asked == [["a"]]
    await ages.begin(["a", "b"], wait_s=60.0)
    assert source.asked[1:] == [["b"]], "what is not known at all does not wait"
    clock.now_s += 1
    source.takes_s = 5.0
    await ages.begin(["a"], wait_s=60.0)
    clock.now_s += SHARE * source.takes_s - 1
    await ages.begin(["a"], wait_s=60.0)
    assert source.asked[2:] == [["a"]], "a reading that took long is repeated late"
    assert ages.of("a") == 1_000
    clock.now_s += SHOWN_S
    assert ages.of("a") == UNKNOWN


async def test_many_groups_are_read_in_turn_and_few_are_kept() -> None:
    source = WrittenSource(MovedClock())
    ages = ages_of(source)
    names = [f"g{number}" for number in range(KEPT_MAX + GROUPS_AT_ONCE)]
    source.positions = {name: {} for name in names}
    for _ in range(0, len(names), GROUPS_AT_ONCE):
        await ages.begin(names, wait_s=60.0)
        source.clock.now_s += 0.001
    assert [len(some) for some in source.asked] == [GROUPS_AT_ONCE] * (len(names) // GROUPS_AT_ONCE)
    assert sum(ages.of(name) == 0 for name in names) == KEPT_MAX


async def test_groups_for_which_the_time_did_not_suffice_are_read_before_the_others() -> None:
    source = WrittenSource(MovedClock())
    source.rounds_in_time, source.takes_s = 2, 5.0
    names = ["a", "b", "c", "d"]
    source.positions = {name: {FIRST: offset} for offset, name in enumerate(names)}
    source.ages = {(FIRST, offset): 1_000 for offset in range(4)}
    ages = ages_of(source)
    await ages.begin(names, wait_s=60.0)
    assert [ages.of(name) for name in names] == [1_000, 1_000, UNKNOWN, UNKNOWN]
    source.clock.now_s += SHARE * source.takes_s
    await ages.begin(names, wait_s=60.0)
    assert source.asked[1][:2] == ["c", "d"]
    assert [ages.of(name) for name in ("c", "d")] == [1_000, 1_000]


async def test_a_cluster_that_does_not_answer_leaves_ages_unknown_and_is_asked_again() -> None:
    source = WrittenSource(MovedClock())
    source.positions, source.ages = {"a": {FIRST: 5}}, {(FIRST, 5): 1_000}
    source.refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is gone")
    ages = ages_of(source)
    await ages.begin(["a"], wait_s=60.0)
    assert ages.of("a") == UNKNOWN
    source.refusal = None
    source.clock.now_s += AGE_S
    await ages.begin(["a"], wait_s=60.0)
    assert ages.of("a") == 1_000


async def test_pages_share_one_reading_and_its_end_is_no_error() -> None:
    source, gate = WrittenSource(MovedClock()), asyncio.Event()

    async def slow(names: list[str]) -> Mapping[str, LatePositions]:
        source.asked.append(names)
        await gate.wait()
        return {}

    ages = GroupAges(source, cast(Clock, source.clock), slow)
    await asyncio.gather(*(ages.begin([f"g{number}"], wait_s=0.001) for number in range(10)))
    assert source.asked == [["g0"]]
    await ages.close()
    await ages.close()


def test_rounds_are_few_where_groups_agree_and_bounded_where_they_do_not() -> None:
    same = {f"g{number}": {FIRST: 5} for number in range(500)}
    rounds, groups = packed(same)
    assert rounds == [{FIRST: 5}]
    assert groups == [list(same)]
    rounds, groups = packed({f"g{number}": {FIRST: number} for number in range(500)})
    assert len(rounds) == len(groups) == ROUNDS_MAX
