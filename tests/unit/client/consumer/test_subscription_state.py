"""Where a consumer stands, and what it should ask next. No loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.client.consumer.subscription_state import EARLIEST, LATEST, Assignment, FetchPlan, PartitionState
from odradek.client.network.errors import BrokerUnreachableError, WrongPeerError
from odradek.client.network.metadata_snapshot import MetadataSnapshot, PartitionSnapshot, TopicSnapshot
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ConsumerSettings
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, assign

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
Settings = Callable[..., ConsumerSettings]


def image(*leaders: int, epoch: int = 3) -> MetadataSnapshot:
    partitions = tuple(
        PartitionSnapshot(partition=number, leader=leader, leader_epoch=epoch)
        for number, leader in enumerate(leaders)
    )
    topic = TopicSnapshot(name="t", topic_id=UUID(int=1), partitions=partitions)
    return MetadataSnapshot(brokers={1: Address("a", 1), 2: Address("b", 2)}, topics={"t": topic})


def records(base_offset: int, count: int = 3, epoch: int = 3) -> bytearray:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(1_000, None, b"%d" % number * 20)
    built = builder.build()
    assign(built, base_offset, epoch)
    return built


@pytest.fixture
def make(consumer_settings: Settings) -> Callable[..., Assignment]:
    return lambda **given: Assignment(consumer_settings(**given))


def at(assignment: Assignment, *partitions: TopicPartition, offset: int = 0) -> None:
    """Assign, and stand at an offset."""
    assignment.assign(partitions)
    for tp in partitions:
        assignment.seek(tp, offset)


def state(assignment: Assignment, tp: TopicPartition = A) -> PartitionState:
    with assignment.lock:
        return assignment.state_of(tp)


def put(assignment: Assignment, data: bytearray, tp: TopicPartition = A) -> None:
    partition = state(assignment, tp)
    with assignment.lock:
        assignment.put(partition, data, ())


def poll(assignment: Assignment, most: int = 100) -> list[int]:
    """Offsets of the records that one poll of one partition gives."""
    with assignment.lock:
        chunk = assignment.next_chunk()
    if chunk is None:
        return []
    taken = chunk.next_records(most)
    with assignment.lock:
        assignment.used(chunk)
    return [record.offset for record in taken]


def plan(
    assignment: Assignment, cluster: MetadataSnapshot | None = None, now: float = 0.0, **more: Any
) -> FetchPlan:
    return assignment.plan(cluster or image(1, 1), now, **more)


def test_without_a_position_the_policy_says_where_to_begin(make: Callable[..., Assignment]) -> None:
    for policy, expected in (("earliest", EARLIEST), ("latest", LATEST)):
        assignment = make(auto_offset_reset=policy)
        assignment.assign([A])
        assert plan(assignment).lookups == {1: {A: expected}}
        assert plan(assignment).lookups == {}, "a question under way is not asked twice"


def test_without_a_policy_poll_says_that_there_is_no_position(make: Callable[..., Assignment]) -> None:
    assignment = make(auto_offset_reset="none")
    assignment.assign([A])
    plan(assignment)
    with pytest.raises(KafkaError, match="no position"):
        poll(assignment)


def test_a_seek_needs_no_lookup_and_fetches_from_there(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A, offset=7)
    ((tp, partition_fetch),) = plan(assignment).partition_fetches[1].items()
    assert (tp, partition_fetch.fetch_offset, partition_fetch.leader_epoch, partition_fetch.topic_id) == (
        A,
        7,
        3,
        UUID(int=1),
    )


def test_each_leader_is_asked_for_its_own(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A, B)
    partition_fetches = plan(assignment, image(1, 2)).partition_fetches
    assert {broker: set(partition_fetch) for broker, partition_fetch in partition_fetches.items()} == {
        1: {A},
        2: {B},
    }


def test_fetching_runs_ahead_of_polling(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A)
    put(assignment, records(0))
    assert plan(assignment).partition_fetches[1][A].fetch_offset == 3
    assert state(assignment).position == 0
    assert poll(assignment, 2) == [0, 1]
    assert state(assignment).position == 2
    assert poll(assignment) == [2]
    assert state(assignment).position == 3


def test_nothing_is_fetched_behind_the_stop(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A, B)
    assignment.stop_at(A, 3)
    assert set(plan(assignment).partition_fetches[1]) == {A, B}
    put(assignment, records(0))
    assert set(plan(assignment).partition_fetches[1]) == {B}
    assert poll(assignment) == [0, 1, 2]
    assignment.stop_at(A, None)
    assert set(plan(assignment).partition_fetches[1]) == {A, B}


def test_near_the_stop_no_more_is_asked_for_than_is_left(make: Callable[..., Assignment]) -> None:
    assignment = make(max_partition_fetch_bytes=8 << 20)
    at(assignment, A)
    assignment.stop_at(A, 100)
    assert plan(assignment).partition_fetches[1][A].max_bytes == 8 << 20, (
        "how large records are is not known yet"
    )
    first = records(0)
    put(assignment, first)
    asked = plan(assignment).partition_fetches[1][A].max_bytes
    assert 97 * len(first) / 3 < asked < 8 << 20
    assignment.stop_at(A, 10**9)
    assert plan(assignment).partition_fetches[1][A].max_bytes == 8 << 20


def test_a_partition_with_enough_buffered_is_not_fetched_until_its_buffer_is_begun(
    make: Callable[..., Assignment],
) -> None:
    assignment = make(max_partition_fetch_bytes=100)
    at(assignment, A, B)
    put(assignment, records(0))
    assert set(plan(assignment).partition_fetches[1]) == {B}
    poll(assignment, 1)
    assert set(plan(assignment).partition_fetches[1]) == {A, B}


def test_the_fetcher_is_woken_by_a_poll_only_if_a_partition_waited_for_room(
    make: Callable[..., Assignment],
) -> None:
    def begin() -> bool:
        with assignment.lock:
            chunk = assignment.next_chunk()
            assert chunk is not None
            return assignment.begin_use(chunk)

    assignment = make(max_partition_fetch_bytes=100)
    at(assignment, A)
    put(assignment, records(0))
    assert plan(assignment).partition_fetches == {}
    assert begin()
    assert not begin(), "it was woken already"
    poll(assignment)
    put(assignment, records(3))
    poll(assignment, 1)
    assert not begin(), "nothing was planned since, so nothing waits"
    assignment = make()
    at(assignment, A)
    put(assignment, records(0))
    assert A in plan(assignment).partition_fetches[1]
    assert not begin(), "the next fetch is under way"


def test_nothing_is_fetched_while_the_whole_buffer_is_full(make: Callable[..., Assignment]) -> None:
    assignment = make(prefetch_max_bytes=100)
    at(assignment, A, B)
    put(assignment, records(0))
    assert plan(assignment).partition_fetches == {}
    poll(assignment)
    assert set(plan(assignment).partition_fetches[1]) == {A, B}


def test_partitions_take_turns(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A, B)
    for tp in (A, B):
        put(assignment, records(0), tp)
        put(assignment, records(3), tp)
    order = []
    for _ in range(4):
        with assignment.lock:
            chunk = assignment.next_chunk()
        assert chunk is not None
        chunk.next_records(100)
        with assignment.lock:
            assignment.used(chunk)
        order.append(chunk.topic_partition)
    assert order == [A, B, A, B]


def test_a_seek_drops_what_was_buffered_and_makes_answers_under_way_worthless(
    make: Callable[..., Assignment],
) -> None:
    assignment = make()
    at(assignment, A)
    before = assignment.generations([A])
    put(assignment, records(0))
    assignment.seek(A, 100)
    with assignment.lock:
        assert assignment.state_for_answer(A, before[A]) is None
    assert poll(assignment) == []
    assert state(assignment).position == 100


def test_paused_partitions_are_neither_fetched_nor_returned(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A)
    put(assignment, records(0))
    assignment.pause([A], True)
    assert plan(assignment).partition_fetches == {}
    assert poll(assignment) == []
    assignment.pause([A], False)
    assert poll(assignment) == [0, 1, 2]


def test_what_stays_assigned_keeps_its_place(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A, offset=5)
    assignment.assign([A, B])
    assert state(assignment, A).position == 5
    assignment.assign([B])
    with pytest.raises(OdradekError, match="t-0 is not assigned"):
        state(assignment, A)


def test_an_offset_out_of_range_starts_over_by_the_policy_once_the_buffer_is_empty(
    make: Callable[..., Assignment],
) -> None:
    assignment = make(auto_offset_reset="earliest")
    at(assignment, A)
    put(assignment, records(0))
    with assignment.lock:
        assignment.out_of_range(assignment.state_of(A))
    assert plan(assignment).lookups == {1: {A: EARLIEST}}
    with assignment.lock:
        assignment.found(assignment.state_of(A), 40)
    assert state(assignment).position == 0
    assert poll(assignment) == [0, 1, 2]
    assert plan(assignment).partition_fetches[1][A].fetch_offset == 40


def test_an_offset_out_of_range_without_a_policy_is_raised_after_the_buffered_records(
    make: Callable[..., Assignment],
) -> None:
    assignment = make(auto_offset_reset="none")
    at(assignment, A)
    put(assignment, records(0))
    with assignment.lock:
        assignment.out_of_range(assignment.state_of(A))
    assert poll(assignment) == [0, 1, 2]
    with pytest.raises(KafkaError, match="does not hold offset 3") as caught:
        poll(assignment)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_newer_leader_is_asked_where_the_epoch_ended_before_it_is_fetched_from(
    make: Callable[..., Assignment],
) -> None:
    assignment = make()
    at(assignment, A)
    put(assignment, records(0, epoch=3))
    assert plan(assignment, image(1, epoch=3)).validations == {}
    newer = plan(assignment, image(1, epoch=4))
    assert (newer.validations, newer.partition_fetches) == ({1: {A: 3}}, {})


def test_a_seek_under_a_leader_epoch_is_held_against_a_newer_leaders_log(
    make: Callable[..., Assignment],
) -> None:
    assignment = make()
    assignment.assign([A])
    assignment.seek(A, 40, leader_epoch=3)
    assert plan(assignment, image(1, epoch=3)).validations == {}
    assert plan(assignment, image(1, epoch=4)).validations == {1: {A: 3}}
    assignment.seek(A, 40)
    assert plan(assignment, image(1, epoch=4)).validations == {}


def test_what_only_holds_markers_moves_the_position_without_a_record(make: Callable[..., Assignment]) -> None:
    from odradek.records import ControlKind, control_batch

    assignment = make()
    at(assignment, A)
    built = control_batch(ControlKind.COMMIT, 7, 0, coordinator_epoch=0, timestamp=1)
    assign(built, 0, 3)
    put(assignment, built)
    assert poll(assignment) == []
    assert state(assignment).position == 1


def test_pauses_are_waited_for(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A, B)
    state(assignment, A).not_before = 9.0
    state(assignment, B).not_before = 4.0
    waiting = plan(assignment, now=1.0)
    assert (waiting.partition_fetches, waiting.retry_at) == ({}, 4.0)


def test_a_partition_that_stays_unknown_is_reported_after_the_api_timeout(
    make: Callable[..., Assignment],
) -> None:
    assignment = make(default_api_timeout_ms=10_000)
    at(assignment, TopicPartition("t", 7))
    assert plan(assignment, now=0.0).leaderless
    plan(assignment, now=9.9)
    assert poll(assignment) == []
    plan(assignment, now=10.0)
    with pytest.raises(KafkaError, match="topic 't' has partitions 0 to 1, not 7"):
        poll(assignment)


def test_a_topic_that_stays_unknown_is_reported_by_name(make: Callable[..., Assignment]) -> None:
    assignment = make(default_api_timeout_ms=10_000)
    at(assignment, TopicPartition("nope", 0))
    plan(assignment, now=0.0)
    plan(assignment, now=10.0)
    with pytest.raises(KafkaError, match="there is no topic 'nope'"):
        poll(assignment)


def test_brokers_out_of_reach_are_reported_late_and_a_wrong_peer_at_once(
    make: Callable[..., Assignment],
) -> None:
    assignment = make(default_api_timeout_ms=10_000)
    at(assignment, A)
    nothing = MetadataSnapshot()
    unreachable = BrokerUnreachableError("cannot connect to a:1: connection refused")
    plan(assignment, nothing, now=0.0, problem=unreachable)
    assert poll(assignment) == []
    plan(assignment, nothing, now=10.0, problem=unreachable)
    with pytest.raises(BrokerUnreachableError, match="connection refused"):
        poll(assignment)
    plan(
        assignment,
        nothing,
        now=11.0,
        problem=WrongPeerError("what listens at a:1 answers in HTTP, not Kafka"),
    )
    with pytest.raises(WrongPeerError, match="HTTP"):
        poll(assignment)


def test_after_a_failure_poll_raises_it_for_ever(make: Callable[..., Assignment]) -> None:
    assignment = make()
    at(assignment, A)
    put(assignment, records(0))
    assignment.fail(RuntimeError("broken"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken"):
            poll(assignment)
