"""A share partition against a plain model: one word for each record."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from odradek.groups.share.partition import (
    AcknowledgedRange,
    RecordState,
    ShareLimits,
    SharePartition,
    StateBatch,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acknowledge_types import AcknowledgeType

LOCK_MS = 100
LIMITS = ShareLimits(record_locks_max=12, delivery_count_max=3, lock_ms=LOCK_MS)
MEMBERS = st.sampled_from(["a", "b", "c"])


class Sharing(RuleBasedStateMachine):
    """Members acquire, acknowledge, forget and die; a coordinator keeps what it heard, and restarts from it."""

    acquired = Bundle("acquired")

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.partition = SharePartition(0, lambda: LIMITS)
        self.owner: dict[int, tuple[str, int]] = {}
        """Offset -> who has it, and until when."""
        self.deliveries: dict[int, int] = {}
        self.settled: dict[int, str] = {}
        self.kept: dict[int, StateBatch] = {}
        self.kept_start = 0
        self.log_start = 0

    def keep(self, batches: list[StateBatch]) -> None:
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                self.kept[offset] = StateBatch(offset, offset, batch.state, batch.delivery_count)
        self.kept_start = self.partition.start_offset

    def give_back(self, offset: int) -> None:
        del self.owner[offset]
        if self.deliveries[offset] >= LIMITS.delivery_count_max:
            self.settled[offset] = "archived"

    @rule(member=MEMBERS, records_max=st.integers(1, 8), length=st.integers(1, 20), target=acquired)
    def acquire(self, member: str, records_max: int, length: int) -> tuple[str, list[tuple[int, int]]]:
        first = self.partition.next_fetch_offset
        had_room = self.partition.has_room
        ranges = self.partition.acquire(
            member, first, first + length - 1, records_max=records_max, now_ms=self.now
        )
        assert bool(ranges) == had_room
        got = [offset for span in ranges for offset in range(span.first_offset, span.last_offset + 1)]
        assert len(got) <= records_max
        for span in ranges:
            for offset in range(span.first_offset, span.last_offset + 1):
                assert offset not in self.owner, "a record has one owner"
                assert offset not in self.settled, "what is settled is never delivered again"
                self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
                assert span.delivery_count == self.deliveries[offset] <= LIMITS.delivery_count_max
                self.owner[offset] = (member, self.now + LOCK_MS)
        return member, [
            (acquired_range.first_offset, acquired_range.last_offset) for acquired_range in ranges
        ]

    @rule(what=acquired, member=MEMBERS, kind=st.sampled_from(list(AcknowledgeType)))
    def acknowledge(
        self, what: tuple[str, list[tuple[int, int]]], member: str, kind: AcknowledgeType
    ) -> None:
        ranges = [AcknowledgedRange(first, last, [kind]) for first, last in what[1]]
        given = [offset for first, last in what[1] for offset in range(first, last + 1)]
        beyond = any(offset >= self.partition.end_offset for offset in given)
        offsets = [offset for offset in given if offset >= self.partition.start_offset]
        has_all = not beyond and all(
            offset in self.owner and self.owner[offset][0] == member and self.owner[offset][1] > self.now
            for offset in offsets
        )
        try:
            batches = self.partition.acknowledge(member, ranges, now_ms=self.now)
        except KafkaError:
            assert not has_all
            return
        assert has_all, "what is settled below the window has no effect, all else must be had"
        self.keep(batches)
        for offset in offsets:
            if kind is AcknowledgeType.RENEW:
                self.owner[offset] = (member, self.now + LOCK_MS)
            elif kind is AcknowledgeType.RELEASE:
                self.give_back(offset)
            else:
                del self.owner[offset]
                self.settled[offset] = "done" if kind is AcknowledgeType.ACCEPT else "archived"

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.keep(self.partition.release(member))
        for offset in [offset for offset, (owner, _) in self.owner.items() if owner == member]:
            self.give_back(offset)

    @rule(step=st.integers(1, 150))
    def wait(self, step: int) -> None:
        self.now += step
        self.keep(self.partition.expire(self.now))
        for offset in [offset for offset, (_, until) in self.owner.items() if until <= self.now]:
            self.give_back(offset)

    @rule(step=st.integers(0, 5))
    def log_begins_later(self, step: int) -> None:
        self.log_start = max(self.log_start, self.partition.start_offset + step)
        self.keep(self.partition.begin_at(self.log_start))
        for offset in range(self.log_start):
            self.owner.pop(offset, None)
            self.settled.setdefault(offset, "archived")

    @rule()
    def restart(self) -> None:
        """Only what was kept is left: acquired records come back with their earlier count."""
        batches = [
            kept_batch for offset, kept_batch in sorted(self.kept.items()) if offset >= self.kept_start
        ]
        self.partition = SharePartition(self.kept_start, lambda: LIMITS, batches)
        for offset in list(self.owner):
            del self.owner[offset]
            self.deliveries[offset] = self.kept[offset].delivery_count if offset in self.kept else 0

    @rule()
    def snapshot(self) -> None:
        """A snapshot says as much as all that was kept before it."""
        self.kept = {}
        self.keep(self.partition.snapshot())

    @invariant()
    def the_next_is_the_first_that_no_member_has(self) -> None:
        offset = self.partition.start_offset
        while offset < self.partition.end_offset and (offset in self.owner or offset in self.settled):
            offset += 1
        assert self.partition.next_fetch_offset == offset

    @invariant()
    def everything_below_the_start_is_settled(self) -> None:
        start = self.partition.start_offset
        assert all(offset in self.settled for offset in range(start))
        assert start not in self.settled
        assert self.partition.end_offset - start <= LIMITS.record_locks_max

    @invariant()
    def the_deadline_is_the_first_lock_that_ends(self) -> None:
        ends = [until for _, until in self.owner.values()]
        assert self.partition.next_deadline_ms() == (min(ends) if ends else None)


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def acknowledged(partition: SharePartition, *ranges: tuple[int, int, Any]) -> list[StateBatch]:
    return partition.acknowledge("a", [AcknowledgedRange(*offset_range) for offset_range in ranges], now_ms=0)


def test_one_bad_range_leaves_everything_as_it_was() -> None:
    partition = SharePartition(10, lambda: LIMITS)
    partition.acquire("a", 10, 14, records_max=5, now_ms=0)
    with pytest.raises(KafkaError, match="offset 15"):
        acknowledged(partition, (10, 12, [1]), (15, 15, [1]))
    with pytest.raises(KafkaError, match="twice"):
        acknowledged(partition, (10, 12, [1]), (12, 13, [1]))
    with pytest.raises(KafkaError, match="1 or 3 acknowledge types, not 2"):
        acknowledged(partition, (10, 12, [1, 1]))
    with pytest.raises(KafkaError, match="no acknowledge type 9"):
        acknowledged(partition, (10, 10, [9]))
    assert partition.start_offset == 10
    assert acknowledged(partition, (10, 14, [1, 3, 0, 2, 1])) == [
        StateBatch(10, 10, RecordState.ACKNOWLEDGED, 1),
        StateBatch(11, 12, RecordState.ARCHIVED, 1),
        StateBatch(13, 13, RecordState.AVAILABLE, 1),
        StateBatch(14, 14, RecordState.ACKNOWLEDGED, 1),
    ]
    assert (partition.start_offset, partition.next_fetch_offset, partition.end_offset) == (13, 13, 15)


@pytest.mark.parametrize(
    "ranges",
    [
        [(-(2**62), -1, [1])],
        [(-1, 10, [1])],
        [(11, 10, [1])],
        [(12, 12, [1]), (10, 11, [1])],
        [(10, 12, [1]), (10, 12, [1])],
        [(10, 2**62, [1])],
    ],
    ids=["below any log", "from below any log", "backwards", "descending", "overlapping", "above the window"],
)
def test_ranges_that_make_no_sense_are_refused_without_a_walk(ranges: list[tuple[int, int, Any]]) -> None:
    partition = SharePartition(10, lambda: LIMITS)
    partition.acquire("a", 10, 14, records_max=5, now_ms=0)
    with pytest.raises(KafkaError) as refused:
        acknowledged(partition, *ranges)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert acknowledged(partition, (10, 14, [1])) == [StateBatch(10, 14, RecordState.ACKNOWLEDGED, 1)]


def test_what_is_below_the_window_takes_no_step() -> None:
    start = 2**62
    partition = SharePartition(start, lambda: LIMITS)
    partition.acquire("a", start, start + 1, records_max=2, now_ms=0)
    done = StateBatch(start, start + 1, RecordState.ACKNOWLEDGED, 1)
    assert acknowledged(partition, (0, 9, [1] * 10), (10, start + 1, [1])) == [done]


# -- what a restart brings


def accepted(partition: SharePartition, end_offset: int) -> list[tuple[int, int]]:
    """All that a member is given, and accepts, until it has read up to an offset."""
    spans: list[tuple[int, int]] = []
    while partition.next_fetch_offset < end_offset:
        ranges = partition.acquire(
            "a", partition.next_fetch_offset, end_offset - 1, records_max=1 << 62, now_ms=0
        )
        assert ranges, "there is always something to read"
        acknowledged(partition, *[(span.first_offset, span.last_offset, [1]) for span in ranges])
        for first, last, _ in ranges:
            if spans and spans[-1][1] + 1 == first:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
    return spans


@pytest.mark.parametrize("state", [RecordState.ACKNOWLEDGED, RecordState.ARCHIVED])
def test_a_range_that_is_settled_costs_the_same_however_long_it_is(state: RecordState) -> None:
    far = 2**62
    partition = SharePartition(0, lambda: LIMITS, [StateBatch(1, far, state, 1)])
    assert (partition.start_offset, partition.next_fetch_offset) == (0, 0)
    assert partition.snapshot() == [StateBatch(1, 9_999, state, 1), StateBatch(10_000, far, state, 1)]
    assert accepted(partition, far + 3) == [(0, 0), (far + 1, far + 2)]
    assert partition.start_offset == far + 3


def test_a_range_that_came_back_is_given_again_however_long_it_is() -> None:
    partition = SharePartition(5, lambda: LIMITS, [StateBatch(0, 2**62, RecordState.AVAILABLE, 2)])
    (span,) = partition.acquire("a", 5, 30_000, records_max=20_000, now_ms=0)
    assert span == (5, 10_004, 3)
    assert partition.expire(LOCK_MS) == [StateBatch(5, 10_004, RecordState.ARCHIVED, 3)]
    (span,) = partition.acquire("a", 10_005, 10_006, records_max=20_000, now_ms=0)
    assert span == (10_005, 10_006, 3)


def test_the_log_may_begin_within_or_behind_what_is_far_away() -> None:
    batches = [
        StateBatch(2**40, 2**41, RecordState.ACKNOWLEDGED, 1),
        StateBatch(2**42, 2**43, RecordState.AVAILABLE, 2),
    ]
    partition = SharePartition(0, lambda: LIMITS, batches)
    partition.acquire("a", 0, 3, records_max=4, now_ms=0)
    assert partition.begin_at(2**40 + 7) == [StateBatch(0, 3, RecordState.ARCHIVED, 1)]
    assert partition.start_offset == 2**41 + 1
    assert partition.begin_at(2**42 + 7) == []
    assert partition.acquire("a", 2**42, 2**42 + 8, records_max=9, now_ms=0) == [(2**42 + 7, 2**42 + 8, 3)]
    assert partition.begin_at(2**50) == [
        StateBatch(2**42 + 7, 2**42 + 8, RecordState.ARCHIVED, 3),
        StateBatch(2**42 + 9, 2**42 + 10_006, RecordState.ARCHIVED, 2),
    ]
    assert (partition.start_offset, partition.end_offset) == (2**50, 2**50)


def test_what_was_kept_as_acquired_is_available() -> None:
    """No version of a leader writes it, but a keeper would take it."""
    partition = SharePartition(0, lambda: LIMITS, [StateBatch(0, 3, RecordState.ACQUIRED, 1)])
    assert partition.next_deadline_ms() is None
    assert partition.acquire("a", 0, 3, records_max=9, now_ms=0) == [(0, 3, 2)]


SCALE = 900
"""A few of such ranges are longer than what is in the window."""


@given(
    limit=st.sampled_from([500, 10_000]),
    edges=st.lists(st.integers(0, 30), unique=True, max_size=8).map(sorted),
    states=st.lists(st.sampled_from(list(RecordState)), min_size=4, max_size=4),
    begin=st.integers(0, 10),
)
@settings(max_examples=12, deadline=None)
def test_all_that_is_not_settled_is_given_and_nothing_else(
    limit: int, edges: list[int], states: list[RecordState], begin: int
) -> None:
    batches = [
        StateBatch(first * SCALE, last * SCALE - 1, state, 1)
        for first, last, state in zip(edges[::2], edges[1::2], states, strict=False)
    ]
    partition = SharePartition(0, lambda: LIMITS._replace(record_locks_max=limit), batches)
    partition.begin_at(begin * SCALE)
    done = {
        place
        for first, last, state in zip(edges[::2], edges[1::2], states, strict=False)
        for place in range(first, last)
        if state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
    }
    given_places = [
        place
        for first, last in accepted(partition, 31 * SCALE)
        for place in range(first // SCALE, (last + 1) // SCALE)
    ]
    assert given_places == [place for place in range(begin, 31) if place not in done]
    assert partition.snapshot() == []
