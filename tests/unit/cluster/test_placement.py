"""Where replicas are placed: evenly, apart, and where they may be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cluster.image import BrokerImage
from odradek.cluster.placement import check_assignment, place
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId


def brokers_in(*racks: str | None) -> list[BrokerImage]:
    return [
        BrokerImage(broker_id=BrokerId(number), host="", port=0, rack=rack)
        for number, rack in enumerate(racks, start=1)
    ]


@settings(deadline=None, max_examples=150)
@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9),
    count=st.integers(1, 40),
    first=st.integers(0, 20),
    data=st.data(),
)
def test_replicas_are_apart_and_leaders_are_even(
    racks: list[str | None], count: int, first: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    brokers = brokers_in(*racks)
    lists = place(count, factor, brokers, first=first)
    assert len(lists) == count
    assert all(len(set(replicas)) == factor for replicas in lists)
    leaders = Counter(dict.fromkeys((broker.broker_id for broker in brokers), 0))
    leaders.update(replicas[0] for replicas in lists)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    rack_of = {broker.broker_id: broker.rack for broker in brokers}
    spread = min(factor, len(set(racks)))
    assert all(len({rack_of[replica] for replica in replicas}) == spread for replicas in lists)


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 8), rounds=st.integers(1, 4), data=st.data())
def test_without_racks_no_two_brokers_differ_by_more_than_two(
    size: int, rounds: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, size))
    lists = place(size * rounds, factor, brokers_in(*[None] * size), first=data.draw(st.integers(0, 9)))
    held = Counter(replica for replicas in lists for replica in replicas)
    assert max(held.values()) - min(held.values()) <= 2


def test_the_followers_of_a_leader_differ_from_round_to_round() -> None:
    lists = place(12, 2, brokers_in(None, None, None, None), first=0)
    followers = {replicas[1] for replicas in lists if replicas[0] == 1}
    assert len(followers) > 1


@pytest.mark.parametrize("mark", ["is_cordoned", "is_leaving"])
def test_brokers_that_may_not_get_replicas_get_none(mark: str) -> None:
    brokers = brokers_in(None, None)
    brokers.append(BrokerImage(broker_id=BrokerId(3), host="", port=0, **{mark: True}))
    assert all(3 not in replicas for replicas in place(9, 2, brokers, first=0))
    with pytest.raises(KafkaError, match="2 of 3 registered") as refused:
        place(1, 3, brokers, first=0)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_brokers_that_are_down_get_what_is_left_over_and_never_lead() -> None:
    here, down = (
        brokers_in(None, None),
        [BrokerImage(broker_id=BrokerId(seed), host="", port=0) for seed in (7, 8)],
    )
    assert all({7, 8}.isdisjoint(replicas) for replicas in place(4, 2, here, first=0, absent=down))
    lists = place(4, 3, here, first=0, absent=down)
    assert all({1, 2} <= set(replicas) and replicas[0] in (1, 2) for replicas in lists)
    assert sorted(replicas[2] for replicas in lists) == [7, 7, 8, 8]
    with pytest.raises(KafkaError, match="more than the 4 registered"):
        place(1, 5, here, first=0, absent=down)
    with pytest.raises(KafkaError, match="no broker could lead"):
        place(1, 2, [], first=0, absent=down)


@given(data=st.data())
def test_brokers_whose_disks_are_full_come_after_others_and_before_absent_ones(data: st.DataObject) -> None:
    brokers = brokers_in(
        *[data.draw(st.sampled_from([None, "a", "b"])) for _ in range(data.draw(st.integers(1, 6)))]
    )
    down = [BrokerImage(broker_id=BrokerId(9), host="", port=0)]
    full = frozenset(data.draw(st.sets(st.sampled_from([broker.broker_id for broker in brokers]))))
    roomy = {broker.broker_id for broker in brokers} - full
    factor = data.draw(st.integers(1, len(brokers) + 1))
    for replicas in place(data.draw(st.integers(1, 20)), factor, brokers, first=3, absent=down, full=full):
        assert len(replicas) == len(set(replicas)) == factor
        assert len(roomy & set(replicas)) == min(factor, len(roomy))
        assert (9 in replicas) == (factor > len(brokers))
        assert replicas[0] in (roomy or full)


def test_a_manual_assignment_may_name_brokers_that_are_down_beside_others() -> None:
    first, two = BrokerId(1), BrokerId(2)
    assert check_assignment({0: [2, 1]}, [first], absent=[two]) == [[2, 1]]
    with pytest.raises(KafkaError, match="only brokers that are down"):
        check_assignment({0: [2]}, [first], absent=[two])
    with pytest.raises(KafkaError, match="broker 3, which is not registered"):
        check_assignment({0: [1, 3]}, [first], absent=[two])
