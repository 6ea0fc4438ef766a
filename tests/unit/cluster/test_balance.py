"""Plans to move replicas: what they reach, what they cost, and what cannot be."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster.balance import BalancePlan, plan
from odradek.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.placement import place
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition


def broker(number: int, rack: str | None = None, **other: bool) -> BrokerImage:
    return BrokerImage(broker_id=BrokerId(number), host="", port=0, rack=rack, **other)


def image_of(brokers: list[BrokerImage], lists: list[list[int]]) -> ClusterImage:
    partitions = tuple(
        PartitionImage(
            leader=BrokerId(replicas[0]),
            leader_epoch=LeaderEpoch(0),
            replicas=tuple(map(BrokerId, replicas)),
            isr=tuple(map(BrokerId, replicas)),
        )
        for replicas in lists
    )
    topic = TopicImage(name="t", topic_id=UUID(int=1), partitions=partitions)
    return ClusterImage(
        version=1,
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers=tuple(brokers),
        topics={"t": topic},
        topics_by_id={topic.topic_id: topic},
    )


def assignment(image: ClusterImage, made: BalancePlan) -> list[tuple[int, ...]]:
    after = {move.name.partition: move.after for move in made.moves}
    partitions = image.topics["t"].partitions
    return [tuple(after.get(index, partition.replicas)) for index, partition in enumerate(partitions)]


def test_a_drained_broker_holds_nothing_and_only_its_own_replicas_are_copied() -> None:
    image = image_of([broker(number) for number in (1, 2, 3, 4)], [[1, 2, 3]] * 8)
    sizes = {TopicPartition("t", index): 100 + index for index in range(8)}
    made = plan(image, sizes, drained=[BrokerId(3)], spread=False)
    assert all(3 not in replicas for replicas in assignment(image, made))
    assert made.copied_bytes == sum(sizes.values())
    assert made.replicas_after[BrokerId(3)] == 0


def test_a_broker_that_cannot_be_drained_is_refused_with_what_to_do() -> None:
    image = image_of([broker(number) for number in (1, 2, 3)], [[1, 2, 3]])
    with pytest.raises(KafkaError, match="add a broker") as refused:
        plan(image, {}, drained=[BrokerId(3)])
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_new_broker_gets_its_share_of_the_smallest_partitions() -> None:
    image = image_of([broker(number) for number in (1, 2, 3)], [[1], [2]] * 6)
    sizes = {TopicPartition("t", index): 10**6 if index < 4 else 1 for index in range(12)}
    made = plan(image, sizes)
    assert set(made.replicas_after.values()) == {4}
    assert made.copied_bytes == 4


def test_a_balanced_cluster_moves_nothing() -> None:
    brokers = [broker(number) for number in (1, 2, 3)]
    lists = place(9, 2, brokers, first=0)
    made = plan(image_of(brokers, [list(map(int, broker_ids)) for broker_ids in lists]), {})
    assert made.moves == ()


def test_leaders_are_evened_out_without_copying() -> None:
    image = image_of([broker(number) for number in (1, 2, 3)], [[1, 2, 3]] * 9)
    made = plan(image, {TopicPartition("t", index): 5 for index in range(9)})
    assert made.copied_bytes == 0
    assert sorted(made.preferred_after.values()) == [3, 3, 3]


def test_copies_leave_a_rack_that_has_two_while_another_has_none() -> None:
    brokers = [broker(1, "a"), broker(2, "a"), broker(3, "b"), broker(4, "b")]
    image = image_of(brokers, [[1, 2], [1, 2], [3, 4]])
    racks = {broker_image.broker_id: broker_image.rack for broker_image in brokers}
    for replicas in assignment(image, plan(image, {})):
        assert {racks[BrokerId(replica)] for replica in replicas} == {"a", "b"}


def test_a_cordoned_broker_gets_nothing() -> None:
    image = image_of([broker(1), broker(2), broker(3, is_cordoned=True)], [[1], [1], [1], [1]])
    made = plan(image, {})
    assert made.replicas_after == {1: 2, 2: 2, 3: 0}


@settings(deadline=None, max_examples=100)
@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=3, max_size=7),
    data=st.data(),
)
def test_a_plan_keeps_the_number_of_replicas_and_evens_them_out(
    racks: list[str | None], data: st.DataObject
) -> None:
    brokers = [broker(number, rack) for number, rack in enumerate(racks, start=1)]
    ids = [int(broker_image.broker_id) for broker_image in brokers]
    lists = data.draw(
        st.lists(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True), min_size=1, max_size=20)
    )
    drained = data.draw(st.sets(st.sampled_from(ids), max_size=len(ids) - 3))
    image = image_of(brokers, lists)
    made = plan(image, {}, drained=[BrokerId(drained_id) for drained_id in drained])
    after = assignment(image, made)
    assert [len(replica_ids) for replica_ids in after] == [len(replicas_now) for replicas_now in lists]
    assert all(len(set(replicas_then)) == len(replicas_then) for replicas_then in after)
    assert not any(set(replicas_after) & drained for replicas_after in after)
    if len(set(racks)) == 1:
        counts = Counter(replica for replicas in after for replica in replicas)
        left = [counts[broker_id] for broker_id in ids if broker_id not in drained]
        assert max(left) - min(left) <= 1
