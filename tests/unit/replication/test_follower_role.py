"""A partition that follows: what it takes, where its log is cut, and what it keeps from one life to the next."""

from pathlib import Path

import pytest
from tests.unit.replication.role_world import ME, THREE, TWO, RecordingWatcher, World, batches, code_of, image

from odradek.cluster.image import NO_LEADER
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import LeaderEpoch, TopicPartition
from odradek.replication.in_sync import IsrAnswer
from odradek.storage.log.log import EpochEnd
from odradek.testing.guarded_disk import off_loop


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


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


async def test_a_followers_high_watermark_is_the_leaders_as_far_as_its_own_disk_has_it(
    world: World,
) -> None:
    world.follow()
    seen = RecordingWatcher()
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


async def test_an_answer_of_an_earlier_epoch_does_not_move_the_high_watermark_under_this_one(
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


@pytest.mark.parametrize("how", ["cut", "begun again"])
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


async def test_when_the_log_begins_again_the_high_watermark_does_too(world: World) -> None:
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
    seen = RecordingWatcher()
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


async def test_without_a_leader_a_replica_follows_no_one(world: World) -> None:
    world.partition.follow(image(ME, leader=NO_LEADER))
    with pytest.raises(KafkaError, match="no broker leads it now"):
        world.partition.check_leads()


async def test_who_was_ready_while_another_proposal_was_under_way_is_proposed_next(world: World) -> None:
    world.lead(ME)
    world.fetched(TWO, 0)
    world.fetched(THREE, 0)
    (first,) = world.proposed
    isr_answer = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(1), isr=(ME, TWO), partition_epoch=2)
    world.proposer.isr_answered(first, isr_answer)
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
    isr_answer = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(1), isr=(ME,), partition_epoch=2)
    world.proposer.isr_answered(proposal, isr_answer)
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


async def test_of_other_topics_no_one_asks_how_old_records_are(world: World) -> None:
    world.follow()
    world.take(3)
    assert world.partition.age_s(2) is None
