"""A partition that leads others: what it answers, and how waiters fail when the role ends."""

from pathlib import Path

import pytest
from tests.unit.replication.role_world import (
    ME,
    NOW_MS,
    THREE,
    TWO,
    RecordingWatcher,
    World,
    batches,
    code_of,
    image,
)

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.replication.in_sync import IsrAnswer


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_without_a_role_a_partition_serves_no_one(world: World) -> None:
    for work in (world.partition.check_leads, world.partition.check_has_role, world.append):
        with pytest.raises(KafkaError) as refused:
            work()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_acks_all_waits_for_every_member_of_the_isr_and_for_the_leaders_own_disk(world: World) -> None:
    world.lead(ME, TWO, THREE)
    future = world.partition.leader().acknowledgement(world.append(3))
    assert future is not None
    world.fetched(TWO, 3)
    world.fetched(THREE, 3)
    assert not future.done()
    world.flush()
    assert future.done()
    assert world.partition.high_watermark == 3


async def test_alone_the_leader_needs_no_one(world: World) -> None:
    world.lead(ME, replicas=(ME,))
    future = world.partition.leader().acknowledgement(world.append())
    assert future is not None
    world.flush()
    assert future.done()
    assert world.partition.leader().in_sync_count == 1
    assert world.partition.leader().followers == {}


@pytest.mark.parametrize("leads_again", [False, True])
async def test_who_waits_under_one_leader_epoch_is_not_answered_under_the_next(
    world: World, leads_again: bool
) -> None:
    world.lead(ME, TWO)
    future = world.partition.leader().acknowledgement(world.append())
    seen = RecordingWatcher()
    world.partition.watch(seen)
    assert future is not None
    job = world.begin_flush()
    if leads_again:
        world.lead(ME, leader_epoch=2, partition_epoch=2)
    else:
        world.follow(leader_epoch=2, partition_epoch=2)
    assert code_of(future) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert seen.ends == 1
    world.finish_flush(job)  # an fsync that ends under another epoch
    assert world.partition.high_watermark == (1 if leads_again else 0)


async def test_a_new_isr_of_the_same_leadership_sends_no_one_away(world: World) -> None:
    world.lead(ME, TWO)
    future = world.partition.leader().acknowledgement(world.append())
    assert future is not None
    world.flush()
    assert not future.done()
    world.lead(ME, partition_epoch=2)
    assert future.done()
    assert future.exception() is None


async def test_who_waits_hears_that_too_few_stayed_in_sync(tmp_path: Path) -> None:
    world = World(tmp_path, min_insync_replicas=2)
    world.lead(ME, TWO)
    future = world.partition.leader().acknowledgement(world.append())
    assert future is not None
    world.flush()
    world.lead(ME, partition_epoch=2)
    assert code_of(future) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert world.partition.high_watermark == 0
    with pytest.raises(KafkaError) as refused:
        world.partition.leader().check_in_sync()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_shrunk_isr_is_proposed_and_counts_once_it_is_confirmed(world: World) -> None:
    world.lead(ME, TWO)
    future = world.partition.leader().acknowledgement(world.append())
    assert future is not None
    world.flush()
    world.partition.check_in_sync_replicas(10.1)
    (proposal,) = world.proposed
    assert proposal.isr == ((ME, 10),)
    assert world.proposer.wants(proposal)
    assert not future.done()
    isr_answer = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(1), isr=(ME,), partition_epoch=2)
    world.proposer.isr_answered(proposal, isr_answer)
    assert not future.done(), "no one said yet that broker 2 may not lead"
    world.lead(ME, partition_epoch=2)
    assert future.done()
    assert world.partition.state == image(ME, partition_epoch=2)
    assert not world.proposer.wants(proposal)


async def test_a_late_answer_changes_nothing_under_another_leader_epoch(world: World) -> None:
    world.lead(ME)
    world.fetched(TWO, 0)
    (proposal,) = world.proposed
    world.lead(ME, leader_epoch=2, partition_epoch=2)
    isr_answer = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(1), isr=(ME, TWO), partition_epoch=3)
    world.proposer.isr_answered(proposal, isr_answer)
    assert world.partition.leader().in_sync_count == 1
    assert not world.proposer.wants(proposal)


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(1, 9), (2, 4)])
async def test_an_older_state_is_ignored(world: World, leader_epoch: int, partition_epoch: int) -> None:
    world.lead(ME, leader_epoch=2, partition_epoch=5)
    world.follow(leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    assert world.partition.is_leader
    assert world.partition.leader_epoch == 2


async def test_a_log_that_knows_a_later_epoch_does_not_lead_under_an_earlier_one(world: World) -> None:
    world.log.begin_epoch(7)
    world.lead(ME, leader_epoch=6)
    assert not world.partition.is_leader
    world.lead(ME, leader_epoch=7)
    assert world.partition.is_leader


async def test_the_epoch_of_a_new_leader_is_in_its_log_before_anything_is_written(world: World) -> None:
    world.lead(ME, leader_epoch=4)
    assert world.log.epoch_end_offset(4) == (4, 0)


def gap_answer(world: World, now: float) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        world.partition.leader().append(
            batches(producer_id=7, producer_epoch=0, base_sequence=3), now_ms=NOW_MS
        )
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return world.partition.leader().judged(refused.value, now).code


@pytest.mark.parametrize(
    ("isr", "now", "code"),
    [
        (
            (ME, TWO, THREE),
            4.0,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ),  # what was sent before may have been refused
        ((ME, TWO, THREE), 6.0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ((ME, TWO, THREE), 8.5, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # no one was heard of since 6.0
        ((ME,), 8.5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
async def test_a_producer_hears_of_a_gap_only_where_it_cannot_be_the_leaders_own(
    world: World, isr: tuple[BrokerId, ...], now: float, code: ErrorCode
) -> None:
    world.lead(*isr)
    world.fetched(TWO, 0, now=min(now, 6.0))
    world.partition.leader().append(batches(producer_id=7, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)
    assert gap_answer(world, now) is code


async def test_what_was_sent_behind_a_batch_that_was_refused_for_a_moment_is_refused_for_a_moment(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, min_insync_replicas=2)
    world.lead(ME)
    world.partition.leader().append(batches(producer_id=7, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)
    assert gap_answer(world, 20.0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(KafkaError) as refused:
        world.partition.leader().check_in_sync()
    assert world.partition.leader().judged(refused.value, 21.0) is refused.value
    assert gap_answer(world, 22.0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert gap_answer(world, 27.0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_only_replicas_may_fetch_as_such(world: World) -> None:
    world.lead(ME, TWO, replicas=(ME, TWO))
    for knows_epoch, code in (
        (True, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        with pytest.raises(KafkaError) as refused:
            world.partition.leader().check_follower(THREE, 30, knows_epoch=knows_epoch)
        assert refused.value.code is code
    world.partition.leader().check_follower(TWO, 20, knows_epoch=True)
    with pytest.raises(KafkaError) as stale:
        world.partition.leader().check_follower(TWO, 19, knows_epoch=True)
    assert stale.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_after_an_election_the_leader_knows_that_it_may_not_know_the_high_watermark(
    world: World,
) -> None:
    world.follow()
    world.take(5)
    world.flush()
    world.lead(ME, TWO, leader_epoch=2, partition_epoch=2)
    assert world.partition.awaits_earlier_records
    world.fetched(TWO, 5)
    assert not world.partition.awaits_earlier_records


async def test_records_are_deleted_once_the_followers_have_deleted_them(world: World) -> None:
    world.lead(ME, TWO)
    world.append(5)
    world.flush()
    world.fetched(TWO, 5)
    world.fetched(THREE, 5)
    done = world.partition.leader().delete_records(3)
    assert done is not None
    world.fetched(TWO, 5, start_offset=3)
    assert not done.done()
    world.fetched(THREE, 5, start_offset=3)
    assert done.done()
    assert world.partition.leader().delete_records(2) is None
    with pytest.raises(KafkaError) as refused:
        world.partition.leader().delete_records(6)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_followers_fetch_hears_of_appends_before_they_are_durable(world: World) -> None:
    world.lead(ME, TWO)
    seen = RecordingWatcher()
    world.partition.watch_end(seen)
    world.append(2)
    assert seen.appended_bytes == world.log.size_bytes
    assert seen.marks == []
    world.flush()
    world.fetched(TWO, 2)
    assert seen.marks == [2]


async def test_readers_are_woken_by_the_batches_of_an_append_that_followers_have(world: World) -> None:
    world.lead(ME, TWO)
    seen = RecordingWatcher()
    world.partition.watch(seen, committed_only=False)
    first, second = batches(2), batches(3)
    world.partition.leader().append([*first, *second], now_ms=NOW_MS)
    world.flush()
    world.fetched(TWO, 2)
    assert (seen.marks, seen.added_bytes) == ([2], len(first[0][1]))
    world.fetched(TWO, 5)
    assert (seen.marks, seen.added_bytes) == ([2, 5], world.log.size_bytes)
