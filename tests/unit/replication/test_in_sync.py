"""The leader's view of its followers: the high watermark, who joins the ISR and who leaves it."""

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster.image import PartitionImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.replication.in_sync import InSync, IsrAnswer, IsrProposal

ME, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_S = 10.0
EPOCH_START = 100


def image(
    isr: Sequence[int], *, partition_epoch: int = 5, leader_epoch: int = 7, **other: Any
) -> PartitionImage:
    fields: dict[str, Any] = {"replicas": (ME, TWO, THREE), **other}
    return PartitionImage(
        leader=ME,
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=tuple(BrokerId(broker) for broker in isr),
        partition_epoch=partition_epoch,
        **fields,
    )


class Leading:
    """A leadership of broker 1 that began at offset 100; brokers 2 and 3 live with epochs 20 and 30."""

    def __init__(self, *isr: int, high_watermark: int = 90, min_in_sync: int = 1) -> None:
        self.brokers = {ME: 10, TWO: 20, THREE: 30}
        self.end_offset = EPOCH_START
        self.durable_offset = EPOCH_START
        self.mark = high_watermark
        self.min_in_sync = min_in_sync
        self.core = InSync(
            ME, image(isr), self.brokers, epoch_start_offset=EPOCH_START, lag_s_max=LAG_S, now=0.0
        )

    def append(self, count: int) -> None:
        self.end_offset += count
        self.durable_offset += count

    def fetch(
        self, broker: int, offset: int, now: float = 1.0, *, epoch: int | None = None
    ) -> IsrProposal | None:
        self.core.fetched(
            BrokerId(broker),
            broker_epoch=10 * broker if epoch is None else epoch,
            fetch_offset=offset,
            start_offset=0,
            end_offset=self.end_offset,
            now=now,
        )
        return self.core.isr_expand_proposal(BrokerId(broker), self.mark)

    def high_watermark(self) -> int:
        self.mark = self.core.next_high_watermark(
            self.mark,
            durable_offset=self.durable_offset,
            end_offset=self.end_offset,
            min_in_sync=self.min_in_sync,
        )
        return self.mark

    def shrinkage(self, now: float) -> list[int] | None:
        proposal = self.core.isr_shrink_proposal(end_offset=self.end_offset, now=now)
        return None if proposal is None else [broker for broker, _ in proposal.isr]


def answer(proposal: IsrProposal, *, leader_epoch: int = 7, partition_epoch: int = 6) -> IsrAnswer:
    return IsrAnswer(
        leader=ME,
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=tuple(broker for broker, _ in proposal.isr),
        partition_epoch=partition_epoch,
    )


# -- the high watermark


def test_the_high_watermark_is_the_smallest_durable_end_in_the_isr() -> None:
    leading = Leading(1, 2, 3)
    leading.append(50)
    leading.fetch(2, 130)
    assert leading.high_watermark() == 90, "broker 3 has not fetched from this leader yet"
    leading.fetch(3, 120)
    assert leading.high_watermark() == 120
    leading.fetch(3, 150)
    assert leading.high_watermark() == 130


def test_the_leader_counts_with_what_it_has_on_disk_only() -> None:
    leading = Leading(1, 2, 3)
    leading.append(50)
    leading.durable_offset = 110
    leading.fetch(2, 150)
    leading.fetch(3, 150)
    assert leading.high_watermark() == 110


def test_who_left_and_may_lead_by_the_controllers_rules_holds_the_high_watermark() -> None:
    """The controller's min.insync.replicas is 2; this leader's is 1: its own, or it has not heard of the new one."""
    leading = Leading(1, 2)
    leading.fetch(2, 100)
    leading.append(50)
    assert leading.high_watermark() == 100
    assert leading.shrinkage(now=12.0) == [1]
    assert leading.core.proposal is not None
    assert leading.core.answered(leading.core.proposal, answer(leading.core.proposal))
    assert leading.high_watermark() == 100, "an answer does not say who is eligible"
    leading.core.update(image([1], partition_epoch=6, eligible=(TWO,)), leading.brokers, 13.0)
    assert leading.high_watermark() == 100
    assert not leading.core.is_enough(1)
    leading.core.update(image([1], partition_epoch=7), leading.brokers, 14.0)
    assert leading.high_watermark() == 150


def test_the_high_watermark_never_goes_back_though_a_follower_does() -> None:
    leading = Leading(1, 2)
    leading.fetch(2, 100)
    assert leading.high_watermark() == 100
    leading.fetch(2, 40)
    assert leading.high_watermark() == 100


def test_who_is_not_in_the_isr_does_not_hold_the_high_watermark_back() -> None:
    leading = Leading(1, 2)
    leading.append(10)
    leading.fetch(2, 110)
    assert leading.high_watermark() == 110


def test_a_proposed_member_counts_before_the_controller_confirmed_it() -> None:
    leading = Leading(1, 2)
    leading.fetch(2, 100)
    assert leading.fetch(3, 100) is not None
    leading.append(10)
    leading.fetch(2, 110)
    assert leading.high_watermark() == 100
    leading.core.update(leading.core.state, {ME: 10, TWO: 20}, now=2.0)  # even when it died meanwhile
    assert leading.high_watermark() == 100


def test_a_member_whose_removal_is_proposed_counts_until_the_controller_confirmed_that() -> None:
    leading = Leading(1, 2, 3)
    leading.append(10)
    leading.fetch(2, 110, now=11.0)
    assert leading.shrinkage(now=11.0) == [1, 2]
    assert leading.high_watermark() == 90
    proposal = leading.core.proposal
    assert proposal is not None
    assert leading.core.answered(proposal, answer(proposal))
    leading.core.update(image([1, 2], partition_epoch=6), leading.brokers, 12.0)
    assert leading.high_watermark() == 110


def test_one_that_keeps_up_and_may_join_is_waited_for() -> None:
    leading = Leading(1)
    leading.append(10)
    leading.fetch(3, 80, now=1.0)
    assert leading.high_watermark() == 110, "it never was caught up"
    leading.fetch(3, 110, now=2.0)
    leading.core.proposal = None  # say it was refused
    leading.append(10)
    assert leading.high_watermark() == 110
    assert leading.shrinkage(now=12.0) is None
    assert leading.high_watermark() == 110
    assert leading.shrinkage(now=12.1) is None
    assert leading.high_watermark() == 120, "it fell silent"


def test_one_that_keeps_up_but_may_not_join_is_not_waited_for() -> None:
    leading = Leading(1)
    leading.append(10)
    leading.fetch(3, 110)
    leading.core.proposal = None
    del leading.brokers[THREE]
    leading.append(10)
    assert leading.high_watermark() == 120


@pytest.mark.parametrize(
    ("min_in_sync", "isr", "moves"),
    [(1, (1,), True), (2, (1,), False), (2, (1, 2), True), (3, (1, 2), False), (9, (1, 2, 3), True)],
)
def test_the_high_watermark_stands_still_while_too_few_are_in_sync(
    min_in_sync: int, isr: tuple[int, ...], moves: bool
) -> None:
    leading = Leading(*isr, min_in_sync=min_in_sync)
    leading.append(10)
    for broker in isr[1:]:
        leading.fetch(broker, 110)
    assert leading.high_watermark() == (110 if moves else 90)
    assert leading.core.is_enough(min_in_sync) == moves


def test_proposed_members_are_not_enough_before_the_controller_confirmed_them() -> None:
    leading = Leading(1, min_in_sync=2)
    leading.fetch(2, 100)
    assert leading.core.proposal is not None
    assert leading.high_watermark() == 90
    assert leading.core.answered(leading.core.proposal, answer(leading.core.proposal))
    assert leading.high_watermark() == 100


# -- joining


@pytest.mark.parametrize(("offset", "joins"), [(89, False), (90, False), (99, False), (100, True)])
def test_a_follower_joins_when_it_reached_the_high_watermark_and_this_leaders_epoch(
    offset: int, joins: bool
) -> None:
    assert (Leading(1, 2).fetch(3, offset) is not None) == joins


def test_a_follower_joins_at_the_high_watermark_it_need_not_be_at_the_end() -> None:
    leading = Leading(1)
    leading.append(50)
    leading.durable_offset = 120
    assert leading.high_watermark() == 120
    assert leading.fetch(2, 119) is None
    proposal = leading.fetch(2, 120)
    assert proposal is not None
    assert proposal.isr == ((ME, 10), (TWO, 20))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (7, 5)


def test_only_one_change_is_proposed_at_a_time() -> None:
    leading = Leading(1)
    first = leading.fetch(2, 100)
    assert first is not None
    assert leading.fetch(3, 100) is None
    assert leading.shrinkage(now=100.0) is None
    assert leading.core.answered(first, answer(first))
    second = leading.fetch(3, 100)
    assert second is not None
    assert [broker for broker, _ in second.isr] == [1, 2, 3]
    assert second.partition_epoch == 6


@pytest.mark.parametrize("known", [None, 31, 29])
def test_only_the_incarnation_that_the_cluster_knows_may_join(known: int | None) -> None:
    leading = Leading(1)
    if known is None:
        del leading.brokers[THREE]
    else:
        leading.brokers[THREE] = known
    if known == 31:
        with pytest.raises(KafkaError, match="registered again"):
            leading.fetch(3, 100)
    else:
        assert leading.fetch(3, 100) is None, "our image may be behind, or the broker is leaving"
        leading.brokers[THREE] = 30
        assert leading.fetch(3, 100) is not None


def test_a_fetch_of_an_earlier_incarnation_that_comes_late_changes_nothing() -> None:
    leading = Leading(1, 2)
    leading.brokers[TWO] = 20
    leading.fetch(2, 60, epoch=25)  # it registered again: our image is behind
    with pytest.raises(KafkaError) as refused:
        leading.fetch(2, 100, epoch=20)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leading.core.followers[TWO].end_offset == 60


@pytest.mark.parametrize("offset", [101, 2**62, -1])
def test_a_follower_that_claims_what_there_is_not_is_refused(offset: int) -> None:
    leading = Leading(1, 2)
    with pytest.raises(KafkaError) as refused:
        leading.fetch(2, offset)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert leading.high_watermark() == 90


def test_a_broker_without_a_replica_is_refused() -> None:
    leading = Leading(1, 2)
    leading.brokers[BrokerId(4)] = 40
    with pytest.raises(KafkaError) as refused:
        leading.fetch(4, 100)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_the_controller_refused_is_not_proposed_at_every_fetch() -> None:
    leading = Leading(1)
    proposal = leading.fetch(2, 100, now=1.0)
    assert proposal is not None
    assert leading.core.answered(proposal, KafkaError(ErrorCode.INELIGIBLE_REPLICA))
    assert leading.core.proposal is None
    assert leading.fetch(2, 100, now=1.5) is None
    assert leading.fetch(2, 100, now=2.5) is not None


# -- leaving


def test_a_follower_leaves_when_it_was_not_caught_up_for_too_long() -> None:
    leading = Leading(1, 2, 3)
    leading.append(10)
    leading.fetch(2, 110, now=5.0)
    assert leading.shrinkage(now=10.0) is None
    assert leading.shrinkage(now=10.1) == [1, 2]


def test_a_follower_that_has_everything_stays_however_silent_it_is() -> None:
    leading = Leading(1, 2)
    leading.fetch(2, 100, now=1.0)
    assert leading.shrinkage(now=1000.0) is None


def test_a_silent_follower_that_had_everything_gets_its_time_when_something_is_appended() -> None:
    leading = Leading(1, 2)
    leading.fetch(2, 100, now=1.0)
    assert leading.shrinkage(now=1000.0) is None
    leading.append(1)
    assert leading.shrinkage(now=1009.0) is None
    assert leading.shrinkage(now=1010.1) == [1]


def test_a_follower_of_a_busy_partition_is_caught_up_when_it_has_what_there_was_at_its_last_fetch() -> None:
    leading = Leading(1, 2)
    for second in range(1, 40):
        leading.append(10)
        leading.fetch(2, EPOCH_START + 10 * (second - 1), now=float(second))
        assert leading.shrinkage(now=float(second)) is None
    assert leading.core.followers[TWO].caught_up_at == 38.0


def test_a_follower_that_is_slower_than_the_leader_leaves_though_it_fetches_all_the_time() -> None:
    leading = Leading(1, 2)
    left = None
    for second in range(1, 40):
        leading.append(10)
        leading.fetch(2, EPOCH_START + 3 * second, now=float(second))
        left = left or (second if leading.shrinkage(now=float(second)) is not None else None)
    assert left is not None
    assert LAG_S <= left <= LAG_S + 3


def test_who_was_not_in_sync_when_the_leader_was_elected_has_no_credit() -> None:
    assert Leading(1, 2).core.followers[THREE].caught_up_at == -inf


def test_a_member_without_a_replica_leaves_at_once() -> None:
    leading = Leading(1, 2, 3)
    leading.core.update(image((1, 2, 3), partition_epoch=6, replicas=(ME, TWO)), leading.brokers, now=1.0)
    assert leading.shrinkage(now=1.0) == [1, 2]


# -- the controller's answers


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_proposal_of_unknown_fate_holds_the_high_watermark_back_until_the_next_state(
    code: ErrorCode,
) -> None:
    leading = Leading(1)
    leading.high_watermark()
    proposal = leading.fetch(2, 100)
    assert proposal is not None
    assert not leading.core.answered(proposal, KafkaError(code))
    leading.append(10)
    assert leading.high_watermark() == 100
    leading.core.update(leading.core.state, leading.brokers, now=100.0)
    assert leading.high_watermark() == 100, "a state that was known says nothing about it"
    del leading.brokers[TWO]
    leading.core.update(image((1,), partition_epoch=6), leading.brokers, now=100.0)
    assert leading.high_watermark() == 110


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(6, 9), (8, 9), (7, 4)])
def test_an_answer_of_another_leadership_or_an_older_state_is_ignored(
    leader_epoch: int, partition_epoch: int
) -> None:
    leading = Leading(1)
    proposal = leading.fetch(2, 100)
    assert proposal is not None
    late = answer(proposal, leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    assert not leading.core.answered(proposal, late)
    assert leading.core.state.isr == (1,)
    assert leading.core.proposal is proposal


def test_an_answer_to_an_earlier_proposal_is_ignored() -> None:
    leading = Leading(1)
    early = leading.fetch(2, 100)
    assert early is not None
    leading.core.update(image((1,), partition_epoch=6), leading.brokers, now=2.0)
    assert leading.fetch(2, 100, now=3.0) is not None
    assert not leading.core.answered(early, answer(early, partition_epoch=7))
    assert leading.core.state.partition_epoch == 6


def test_replicas_that_went_with_a_confirmed_proposal_are_forgotten_when_their_state_arrives() -> None:
    """A reassignment completed by it: its answer gave the epoch, and names no replicas. Found by the simulator."""
    leading = Leading(ME, TWO)
    joining = leading.fetch(THREE, 100)
    assert joining is not None
    confirmed = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(7), isr=(ME, THREE), partition_epoch=6)
    assert leading.core.answered(joining, confirmed)
    hopeless = leading.fetch(TWO, 100)
    assert hopeless is not None
    assert leading.core.maximal_isr == {ME, TWO, THREE}
    state = image([ME, THREE], partition_epoch=6, replicas=(ME, THREE))
    leading.core.update(state, leading.brokers, 2.0)
    assert leading.core.maximal_isr == {ME, THREE}
    assert TWO not in leading.core.followers
    leading.append(5)
    leading.fetch(THREE, 105)
    assert leading.high_watermark() == 105


def test_the_low_watermark_is_the_smallest_start_among_those_who_live() -> None:
    leading = Leading(1, 2)
    leading.fetch(2, 100)
    leading.core.followers[THREE].start_offset = 30
    leading.core.followers[TWO].start_offset = 50
    assert leading.core.low_watermark(70) == 30
    del leading.brokers[THREE]
    assert leading.core.low_watermark(70) == 50
    assert leading.core.low_watermark(20) == 20


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_happens_the_high_watermark_is_on_every_member_of_the_maximal_isr(
    data: st.DataObject,
) -> None:
    leading = Leading(1, 2, 3)
    has = {1: EPOCH_START, 2: EPOCH_START, 3: EPOCH_START}
    now = 0.0
    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.sampled_from((0.1, 3.0, 12.0)))
        action = data.draw(st.sampled_from(("append", "fetch", "fetch", "shrink", "answer", "refuse")))
        before = leading.mark
        if action == "append":
            leading.append(data.draw(st.integers(1, 5)))
            has[1] = leading.durable_offset
        elif action == "fetch":
            broker = data.draw(st.sampled_from((2, 3)))
            has[broker] = data.draw(st.integers(has[broker], leading.end_offset))
            leading.fetch(broker, has[broker], now)
        elif action == "shrink":
            leading.shrinkage(now)
        elif (proposal := leading.core.proposal) is not None:
            if action == "answer":
                next_epoch = leading.core.state.partition_epoch + 1
                leading.core.answered(proposal, answer(proposal, partition_epoch=next_epoch))
            else:
                leading.core.answered(proposal, KafkaError(ErrorCode.INELIGIBLE_REPLICA))
        mark = leading.high_watermark()
        assert mark >= before
        if mark > before:
            assert all(has[broker] >= mark for broker in leading.core.maximal_isr)


def test_who_is_removed_is_not_proposed_again_when_the_answer_completed_its_reassignment() -> None:
    leading = Leading(1, 2)
    moving = image([1, 2], partition_epoch=6, adding=(THREE,), removing=(TWO,))
    leading.core.update(moving, leading.brokers, 1.0)
    leading.fetch(2, EPOCH_START)
    joining = leading.fetch(3, EPOCH_START)
    assert joining is not None
    completed = IsrAnswer(leader=ME, leader_epoch=LeaderEpoch(7), isr=(ME, THREE), partition_epoch=7)
    assert leading.core.answered(joining, completed)
    assert leading.fetch(2, EPOCH_START) is None
    assert leading.core.late_expand_proposal(leading.mark, end_offset=leading.end_offset) is None


def test_who_is_removed_may_join_until_then() -> None:
    leading = Leading(1)
    moving = image([1], partition_epoch=6, adding=(THREE,), removing=(TWO,))
    leading.core.update(moving, leading.brokers, 1.0)
    joining = leading.fetch(2, EPOCH_START)
    assert joining is not None
    assert leading.core.answered(joining, answer(joining, partition_epoch=7))
    leading.core.update(image([1], partition_epoch=8, adding=(THREE,), removing=(TWO,)), leading.brokers, 2.0)
    assert leading.fetch(2, EPOCH_START, now=3.0) is not None


def test_a_follower_that_the_controller_took_out_holds_nothing_back_until_it_wrote_more() -> None:
    leading = Leading(1, 2, 3)
    for broker in (2, 3):
        leading.fetch(broker, EPOCH_START)
    leading.core.update(
        image([1, 3], partition_epoch=6), leading.brokers, 1.0
    )  # the disk of broker 2 is full
    leading.append(5)
    proposed = leading.fetch(2, EPOCH_START, 1.1)
    assert proposed is not None
    leading.core.answered(proposed, KafkaError(ErrorCode.INELIGIBLE_REPLICA, "its disk is full"))
    leading.fetch(3, EPOCH_START + 5, 1.1)
    assert leading.high_watermark() == EPOCH_START + 5
    leading.append(5)
    leading.fetch(3, EPOCH_START + 10, 9.0)
    leading.fetch(2, EPOCH_START, 9.0)
    assert leading.high_watermark() == EPOCH_START + 10
    leading.append(5)
    leading.fetch(2, EPOCH_START + 10, 9.1)
    leading.fetch(3, EPOCH_START + 15, 9.1)
    assert leading.high_watermark() == EPOCH_START + 10, "it writes again, and gets a chance to catch up"


def test_a_follower_that_is_refused_again_and_again_holds_nothing_back_for_longer_each_time() -> None:
    leading = Leading(1, 3)
    now, pauses = 1.0, list[float]()
    for _ in range(6):
        proposed, began = None, now
        while proposed is None:
            leading.append(1)
            leading.fetch(3, leading.end_offset, now)
            proposed = leading.fetch(2, leading.end_offset, now)
            now += 0.25
        pauses.append(now - began)
        leading.core.answered(proposed, KafkaError(ErrorCode.INELIGIBLE_REPLICA, "its disk is full"))
        leading.append(1)
        leading.fetch(2, leading.end_offset - 1, now)
        leading.fetch(3, leading.end_offset, now)
        assert leading.high_watermark() == leading.end_offset
    assert pauses[1:] == sorted(pauses[1:])
    assert 1.0 <= pauses[1] < 2.0 < 4.0 < pauses[-1] < 10.0
