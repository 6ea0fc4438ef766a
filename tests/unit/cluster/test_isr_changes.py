"""Proposals of leaders that are refused, each with Kafka's code."""

from dataclasses import replace

import pytest

from odradek.cluster.availability import DEFAULT_RULES, Liveness, TopicRules, without
from odradek.cluster.elections import settled, without_damaged
from odradek.cluster.image import NO_LEADER, BrokerImage, PartitionImage
from odradek.cluster.isr_changes import ProposedIsr, changed_isr
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch

ONE, TWO, THREE, FOUR = (BrokerId(number) for number in (1, 2, 3, 4))
PARTITION = PartitionImage(
    leader=ONE,
    leader_epoch=LeaderEpoch(5),
    replicas=(ONE, TWO, THREE),
    isr=(ONE, TWO),
    partition_epoch=7,
)
LIVENESS = Liveness(
    brokers={
        broker: BrokerImage(broker_id=broker, host="", port=0, epoch=broker * 10, is_leaving=broker == FOUR)
        for broker in (ONE, TWO, THREE, FOUR)
    }
)
EVERYONE = ((ONE, 10), (TWO, 20), (THREE, 30))


def ask(partition: PartitionImage = PARTITION, proposer: BrokerId = ONE, **changes: object) -> PartitionImage:
    proposal = ProposedIsr(leader_epoch=5, partition_epoch=7, isr=EVERYONE)
    return changed_isr(
        partition,
        replace(proposal, **changes),  # type: ignore[arg-type]
        proposer=proposer,
        liveness=LIVENESS,
        availability=LIVENESS.availability(),
        rules=DEFAULT_RULES,
    )


def test_a_proposal_that_fits_is_carried_out() -> None:
    after = ask()
    assert after.isr == (ONE, TWO, THREE)
    assert (after.leader_epoch, after.partition_epoch) == (5, 8)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 8}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 6}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"proposer": TWO}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((TWO, 20),)}, ErrorCode.INVALID_REQUEST),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((ONE, 10), (ONE, 10))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((ONE, 10), (BrokerId(9), 90))}, ErrorCode.INVALID_REQUEST),
        ({"isr": ((ONE, 10), (THREE, 29))}, ErrorCode.INELIGIBLE_REPLICA),
        ({"isr": ((ONE, 10), (THREE, -1))}, ErrorCode.INELIGIBLE_REPLICA),
        ({"recovering": True, "isr": ((ONE, 10),)}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_proposal_that_does_not_fit_is_refused(changes: dict[str, object], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        ask(**changes)  # type: ignore[arg-type]
    assert refused.value.code is code


def test_a_broker_that_leaves_joins_no_isr() -> None:
    with pytest.raises(KafkaError) as refused:
        ask(replace(PARTITION, replicas=(ONE, TWO, FOUR)), isr=((ONE, 10), (FOUR, 40)))
    assert refused.value.code is ErrorCode.INELIGIBLE_REPLICA


def test_the_same_isr_once_more_changes_nothing() -> None:
    assert ask(isr=((ONE, 10), (TWO, 20))) is PARTITION


def test_a_leader_that_has_recovered_says_so() -> None:
    recovering = replace(PARTITION, isr=(ONE,), recovering=True)
    assert ask(recovering, isr=((ONE, 10),), recovering=True) is recovering
    assert not ask(recovering, isr=((ONE, 10),)).recovering


@pytest.mark.parametrize("isr", [(ONE, TWO), (ONE,)])
def test_what_a_leader_knew_of_a_damaged_follower_ends_with_its_epoch(isr: tuple[BrokerId, ...]) -> None:
    after = without_damaged(replace(PARTITION, isr=isr), TWO, LIVENESS.availability(), DEFAULT_RULES)
    assert (after.leader, after.isr) == (ONE, (ONE,))
    assert (after.leader_epoch, after.partition_epoch) == (6, 8)


def test_what_is_said_of_a_replica_that_was_taken_away_changes_nothing() -> None:
    assert without_damaged(PARTITION, FOUR, LIVENESS.availability(), DEFAULT_RULES) is PARTITION


def test_a_damaged_replica_is_not_eligible_either() -> None:
    rules = TopicRules(min_isr=2)
    alone = settled(PARTITION, without(LIVENESS.availability(), frozenset([TWO])), rules)
    assert alone.eligible == (TWO,)
    after = without_damaged(alone, TWO, LIVENESS.availability(), rules)
    assert after.eligible == ()
    gone = settled(after, without(LIVENESS.availability(), frozenset([ONE])), rules)
    assert gone.leader == NO_LEADER
