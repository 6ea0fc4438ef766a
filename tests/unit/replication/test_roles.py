"""A partition that leads others, or follows: what each role does, and what becomes of those who wait when it ends."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.cluster.image import NO_LEADER, PartitionImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.records import BatchBuilder, BatchHeader, split_batches
from odradek.replication.in_sync import IsrAnswer, IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.replication.partition import Partition, ReplicationContext
from odradek.runtime.real import real_runtime
from odradek.storage.log.log import EpochEnd, FlushJob, Log
from odradek.testing.guarded_disk import off_loop

NAME = TopicPartition("t", 0)
ME, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LIVE = {ME: 10, TWO: 20, THREE: 30}
NOW_MS = 1_700_000_000_000


def image(
    *isr: BrokerId, leader: BrokerId = ME, leader_epoch: int = 1, partition_epoch: int = 1, **other: Any
) -> PartitionImage:
    fields: dict[str, Any] = {"replicas": (ME, TWO, THREE), **other}
    return PartitionImage(
        leader=leader,
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=isr,
        partition_epoch=partition_epoch,
        **fields,
    )


def batches(
    count: int = 1, *, offset: int = 0, epoch: int = 0, **producer: Any
) -> list[tuple[BatchHeader, memoryview]]:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(NOW_MS + number, b"k", b"v")
    built = builder.build(**producer)
    built[0:8] = offset.to_bytes(8, "big")
    built[12:16] = epoch.to_bytes(4, "big")
    return split_batches(built)


class Seen:
    def __init__(self) -> None:
        self.marks: list[int] = []
        self.appended_bytes = 0
        self.ends = 0

    def appended(self, partition: Partition, added_bytes: int) -> None:
        self.appended_bytes += added_bytes

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self.marks.append(partition.high_watermark)

    def ended(self, partition: Partition) -> None:
        self.ends += 1


class World:
    """Broker 1's replica on a real log. It is flushed when a test says so, and proposals are kept."""

    def __init__(
        self,
        directory: Path,
        *,
        high_watermark: int | None = None,
        name: TopicPartition = NAME,
        **config: Any,
    ) -> None:
        self.proposed: list[IsrProposal] = []
        self.requested = 0
        self.log = Log.open(
            real_runtime(),
            str(directory / str(name)),
            replace(LogConfig(), **config),
            topic_partition=name,
            clean=True,
            recovery_point=0,
        )
        self.partition = Partition(
            name,
            UUID(int=1),
            self.log,
            LeaderEpoch(0),
            self,
            member=ReplicationContext(broker_id=ME, lag_s_max=10.0, proposals=self),
            high_watermark=high_watermark,
        )

    def request(self, partition: Partition) -> None:
        """`Flushing`."""
        self.requested += 1

    def propose(self, leader: LeaderRole, proposal: IsrProposal) -> None:
        """`IsrProposals`."""
        self.proposer = leader
        self.proposed.append(proposal)

    def begin_flush(self) -> FlushJob:
        job = self.log.flush_job()
        assert job is not None
        with off_loop():
            job.run()
        return job

    def finish_flush(self, job: FlushJob) -> None:
        self.log.flushed(job)
        self.partition.flushed()

    def flush(self) -> None:
        self.finish_flush(self.begin_flush())

    def lead(self, *isr: BrokerId, **other: Any) -> None:
        self.partition.lead(image(*isr, **other), LIVE, 0.0)

    def follow(self, leader: BrokerId = TWO, **other: Any) -> None:
        self.partition.follow(image(leader, leader=leader, **other))

    def append(self, count: int = 1) -> int:
        return self.partition.leader().append(batches(count), now_ms=NOW_MS).last_offset

    def fetched(self, follower: BrokerId, offset: int, *, now: float = 0.0, start_offset: int = 0) -> None:
        self.partition.leader().follower_fetched(
            follower, LIVE[follower], offset, now, start_offset=start_offset
        )

    def take(self, count: int, *, offset: int = 0, epoch: int = 1, **producer: Any) -> None:
        self.partition.follower().append_fetched(
            batches(count, offset=offset, epoch=epoch, **producer), now_ms=NOW_MS
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def code_of(future: asyncio.Future[None]) -> ErrorCode:
    error = future.exception()
    assert isinstance(error, KafkaError)
    return error.code


# -- leading


async def test_without_a_role_a_partition_serves_nobody(world: World) -> None:
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


async def test_alone_the_leader_needs_nobody(world: World) -> None:
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
    seen = Seen()
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


async def test_a_new_isr_of_the_same_leadership_sends_nobody_away(world: World) -> None:
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
    answer = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(1), isr=(ME,), partition_epoch=2)
    world.proposer.isr_answered(proposal, answer)
    assert not future.done(), "nobody said yet that broker 2 may not lead"
    world.lead(ME, partition_epoch=2)
    assert future.done()
    assert world.partition.state == image(ME, partition_epoch=2)
    assert not world.proposer.wants(proposal)


async def test_a_late_answer_changes_nothing_under_another_leader_epoch(world: World) -> None:
    world.lead(ME)
    world.fetched(TWO, 0)
    (proposal,) = world.proposed
    world.lead(ME, leader_epoch=2, partition_epoch=2)
    answer = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(1), isr=(ME, TWO), partition_epoch=3)
    world.proposer.isr_answered(proposal, answer)
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
        ((ME, TWO, THREE), 8.5, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # nobody was heard of since 6.0
        ((ME,), 8.5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
async def test_a_producer_is_told_of_a_gap_only_where_it_cannot_be_the_leaders_own(
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
    seen = Seen()
    world.partition.watch_end(seen)
    world.append(2)
    assert seen.appended_bytes == world.log.size_bytes
    assert seen.marks == []
    world.flush()
    world.fetched(TWO, 2)
    assert seen.marks == [2]


# -- following


async def test_a_follower_takes_no_appends_and_no_fetches_of_followers(world: World) -> None:
    world.follow()
    for work in (
        world.append,
        lambda: world.fetched(TWO, 0),
        lambda: world.partition.leader().acknowledgement(0),
    ):
        with pytest.raises(KafkaError) as refused:
            work()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_followers_high_watermark_is_what_it_was_told_as_far_as_it_has_it_on_disk(
    world: World,
) -> None:
    world.follow()
    seen = Seen()
    world.partition.watch(seen)
    world.take(5)
    world.partition.follower().learned(3, 0)
    assert world.partition.high_watermark == 0
    durable = world.partition.when_durable()
    assert durable is not None
    world.flush()
    assert durable.done()
    assert world.partition.when_durable() is None
    assert world.partition.high_watermark == 3
    world.partition.follower().learned(9, 2)
    assert world.partition.high_watermark == 5
    assert world.partition.start_offset == 2
    assert seen.marks == [3, 5]


async def test_what_was_told_under_an_earlier_epoch_does_not_move_the_high_watermark_under_this_one(
    world: World,
) -> None:
    world.follow()
    world.take(2)
    world.flush()
    world.partition.follower().learned(9, 0)
    assert world.partition.high_watermark == 2
    world.follow(THREE, leader_epoch=2, partition_epoch=2)
    world.take(3, offset=2)
    world.flush()
    assert world.partition.high_watermark == 2


@pytest.mark.parametrize(
    ("diverging", "end_offset"),
    [((2, 7), 5), ((1, 3), 3), ((2, 5), 5), ((0, 0), 0)],
)
async def test_a_follower_cuts_its_log_where_both_logs_agree(
    world: World, diverging: tuple[int, int], end_offset: int
) -> None:
    """Ours is of epoch 1 up to 5, and of epoch 3 up to 8."""
    world.follow(leader_epoch=4)
    world.take(3, epoch=1)
    world.take(2, offset=3, epoch=1)
    world.take(3, offset=5, epoch=3)
    world.flush()
    world.partition.follower().truncate(EpochEnd(*diverging))
    assert world.log.end_offset == end_offset
    assert world.partition.durable_offset == end_offset


async def test_an_epoch_that_wrote_nothing_is_cut_off_so_that_fetching_goes_on(world: World) -> None:
    world.lead(ME, leader_epoch=3)
    world.follow(leader_epoch=4, partition_epoch=2)
    assert world.partition.last_epoch == 3
    world.partition.follower().truncate(EpochEnd(2, 0))
    assert world.partition.last_epoch == -1


async def test_a_flush_that_was_begun_before_the_log_was_cut_says_nothing_about_what_came_after(
    world: World,
) -> None:
    world.follow()
    world.take(5)
    job = world.begin_flush()
    world.partition.follower().truncate(EpochEnd(1, 2))
    world.flush()
    world.take(1, offset=world.log.end_offset)
    cut_at = world.log.end_offset - 1
    world.finish_flush(job)
    assert world.partition.durable_offset <= cut_at


@pytest.mark.parametrize("how", ["cut", "begun anew"])
async def test_a_truncation_asks_for_its_own_flush_and_nothing_is_durable_before(
    world: World, how: str
) -> None:
    world.follow()
    world.take(2)
    world.take(3, offset=2)
    world.flush()
    asked = world.requested
    world.partition.follower().truncate(
        EpochEnd(1, 2)
    ) if how == "cut" else world.partition.follower().restart_at(2)
    assert world.requested > asked
    assert world.partition.durable_offset == world.log.end_offset == 2
    assert not world.partition.is_durable, "its leader is not asked for more"
    waiting = world.partition.when_cut()
    assert waiting is not None
    world.flush()
    await waiting
    assert world.partition.is_durable
    assert world.partition.when_cut() is None
    world.take(1, offset=2)


async def test_who_waits_for_the_files_of_a_truncation_is_sent_away_with_the_role(world: World) -> None:
    world.follow()
    world.take(5)
    world.flush()
    world.partition.follower().truncate(EpochEnd(1, 2))
    waiting = world.partition.when_cut()
    assert waiting is not None
    world.lead(ME, leader_epoch=9, partition_epoch=9)
    assert code_of(waiting) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_replica_whose_first_batch_did_not_come_begins_where_it_did(world: World) -> None:
    """Room was made for a batch that begins before the log; then it got another role."""
    world.follow()
    world.partition.follower().restart_at(105)
    world.flush()
    world.partition.follower().begin_with(batches(10, offset=100, epoch=1)[0][0])
    world.flush()
    assert (world.log.start_offset, world.log.end_offset) == (105, 100)
    world.lead(ME, leader_epoch=9, partition_epoch=9)
    assert (world.log.start_offset, world.log.end_offset) == (105, 105)
    world.flush()
    assert world.append() == 105


async def test_when_the_log_begins_anew_the_high_watermark_does_too(world: World) -> None:
    world.follow()
    world.take(5)
    world.flush()
    world.partition.follower().learned(4, 0)
    world.partition.follower().restart_at(100)
    assert (world.partition.start_offset, world.log.end_offset) == (100, 100)
    assert world.partition.high_watermark == 100
    assert world.partition.last_stable_offset == 100


async def test_the_last_stable_offset_is_right_after_a_transaction_was_cut_off(world: World) -> None:
    world.follow()
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    world.take(3)
    world.take(2, offset=3, **producer)
    world.flush()
    world.partition.follower().learned(5, 0)
    assert world.partition.last_stable_offset == 3
    world.partition.follower().truncate(EpochEnd(1, 3))
    world.flush()
    world.take(2, offset=3)
    world.flush()
    world.partition.follower().learned(5, 0)
    assert world.partition.last_stable_offset == 5
    seen = Seen()
    world.partition.watch(seen, committed_only=True)
    world.take(1, offset=5)
    world.flush()
    world.partition.follower().learned(6, 0)
    assert seen.marks == [6]


async def test_who_leads_fetches_nothing(world: World) -> None:
    world.lead(ME)
    for work in (
        lambda: world.take(1),
        lambda: world.partition.follower().learned(1, 0),
        lambda: world.partition.follower().truncate(EpochEnd(1, 0)),
        lambda: world.partition.follower().restart_at(5),
    ):
        with pytest.raises(KafkaError) as refused:
            work()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- from one life to the next


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 0), (3, 3), (99, 5)])
async def test_the_high_watermark_begins_where_it_was_checkpointed_within_the_log(
    tmp_path: Path, checkpoint: int | None, expected: int
) -> None:
    world = World(tmp_path)
    world.lead(ME, replicas=(ME,))
    world.append(5)
    with off_loop():
        world.log.close()
    assert World(tmp_path, high_watermark=checkpoint).partition.high_watermark == expected


async def test_a_moved_log_of_a_leader_with_followers_acknowledges_nothing(world: World) -> None:
    world.lead(ME, TWO)
    future = world.partition.leader().acknowledgement(world.append())
    assert future is not None
    world.partition.seal(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is being moved"))
    world.partition.release()
    assert code_of(future) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_without_a_leader_a_replica_follows_nobody(world: World) -> None:
    world.partition.follow(image(ME, leader=NO_LEADER))
    with pytest.raises(KafkaError, match="nobody leads it now"):
        world.partition.check_leads()


async def test_who_was_ready_while_another_proposal_was_under_way_is_proposed_next(world: World) -> None:
    world.lead(ME)
    world.fetched(TWO, 0)
    world.fetched(THREE, 0)
    (first,) = world.proposed
    answer = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(1), isr=(ME, TWO), partition_epoch=2)
    world.proposer.isr_answered(first, answer)
    assert [broker for broker, _ in world.proposed[1].isr] == [ME, TWO, THREE]


async def test_who_was_refused_is_proposed_again_in_time_though_it_fetches_nothing(world: World) -> None:
    world.lead(ME)
    world.fetched(TWO, 0)
    (first,) = world.proposed
    world.proposer.isr_answered(first, KafkaError(ErrorCode.INELIGIBLE_REPLICA))
    assert len(world.proposed) == 1
    world.partition.check_in_sync_replicas(5.0)
    assert [broker for broker, _ in world.proposed[1].isr] == [ME, TWO]


async def test_who_was_removed_is_not_proposed_again_before_it_fetches(tmp_path: Path) -> None:
    world = World(tmp_path, min_insync_replicas=2)
    world.lead(ME, TWO)
    world.append()
    world.flush()
    world.fetched(TWO, 1)
    assert world.partition.high_watermark == 1
    world.append()
    world.partition.check_in_sync_replicas(10.1)
    (proposal,) = world.proposed
    answer = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(1), isr=(ME,), partition_epoch=2)
    world.proposer.isr_answered(proposal, answer)
    world.partition.check_in_sync_replicas(20.0)
    assert world.proposed == [proposal]
    world.fetched(TWO, 1, now=20.0)
    assert len(world.proposed) == 2


async def test_a_follower_knows_how_old_records_of_coordinators_are_until_its_log_is_cut(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, name=TopicPartition("__consumer_offsets", 0))
    world.follow()
    world.take(3)
    age_s = world.partition.age_s(2)
    assert age_s is not None
    assert age_s >= 0
    assert world.partition.age_s(3) is None
    world.flush()
    world.partition.follower().restart_at(0)
    assert world.partition.age_s(2) is None


async def test_of_other_topics_nobody_asks_how_old_records_are(world: World) -> None:
    world.follow()
    world.take(3)
    assert world.partition.age_s(2) is None
