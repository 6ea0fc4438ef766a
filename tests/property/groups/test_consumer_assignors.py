"""The server-side assignors: complete, balanced, sticky, and the same for the same arguments."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.groups.consumer.assignors import ASSIGNORS, Assignment, AssignorMember, ranges, uniform

TOPICS = [UUID(int=number) for number in range(1, 7)]

counts_of_topics = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})
member_ids = st.integers(0, 12).map(lambda number: f"m{number:02}")
subscriptions = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, AssignorMember], dict[UUID, int], dict[str, Assignment]]:
    """Members with any subscriptions, and a target that may be out of date in every way."""
    counts = draw(counts_of_topics)
    candidates = {
        member: AssignorMember(
            topics=draw(subscriptions), instance_id=draw(st.none() | st.just("i" + member))
        )
        for member in draw(st.sets(member_ids, max_size=8))
    }
    partitions = st.frozensets(st.integers(0, 14), max_size=6)
    current = {
        member: {topic: part for topic in draw(subscriptions) if (part := draw(partitions))}
        for member in draw(st.sets(member_ids, max_size=8))
    }
    return candidates, counts, current


def pairs(target: Assignment) -> list[tuple[UUID, int]]:
    return [(topic, partition) for topic, partitions in target.items() for partition in partitions]


def size(target: Assignment) -> int:
    return sum(map(len, target.values()))


def moves(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    """Partitions that someone had and that are now with someone else."""
    owners = {pair: member for member, target in before.items() for pair in pairs(target)}
    return sum(
        owners.get(pair, member) != member for member, target in after.items() for pair in pairs(target)
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=150, deadline=None)
@given(group=groups())
def test_every_subscribed_partition_has_exactly_one_subscriber(name, group):
    candidates, counts, current = group
    target = ASSIGNORS[name](candidates, counts, current)
    assert target.keys() == candidates.keys()
    for member, share in target.items():
        assert share.keys() <= candidates[member].topics
        assert all(share.values())
    subscribed = set().union(*(candidate.topics for candidate in candidates.values()))
    wanted = sorted((topic, partition) for topic in subscribed for partition in range(counts[topic]))
    assert sorted(pair for share in target.values() for pair in pairs(share)) == wanted


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=80, deadline=None)
@given(group=groups(), data=st.data())
def test_the_order_of_the_arguments_does_not_matter(name, group, data):
    candidates, counts, current = group
    shuffled = dict(data.draw(st.permutations(list(candidates.items()))))
    recounted = dict(data.draw(st.permutations(list(counts.items()))))
    assert ASSIGNORS[name](shuffled, recounted, current) == ASSIGNORS[name](candidates, counts, current)


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=80, deadline=None)
@given(group=groups())
def test_a_target_that_fits_is_left_alone(name, group):
    candidates, counts, current = group
    settled = ASSIGNORS[name](candidates, counts, current)
    again = ASSIGNORS[name](candidates, counts, settled)
    assert again == settled
    assert all(again[member] is settled[member] for member in candidates)


@settings(max_examples=80, deadline=None)
@given(counts=counts_of_topics, members=st.sets(member_ids, min_size=1), topics=subscriptions, group=groups())
def test_uniform_balances_within_one_when_all_subscribe_alike(counts, members, topics, group):
    target = uniform({member: AssignorMember(topics=topics) for member in members}, counts, group[2])
    sizes = [size(share) for share in target.values()]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=150, deadline=None)
@given(group=groups())
def test_uniform_leaves_no_move_that_would_make_two_members_more_equal(group):
    candidates, counts, current = group
    target = uniform(candidates, counts, current)
    for rich, share in target.items():
        for topic in share:
            for poor, candidate in candidates.items():
                if topic in candidate.topics:
                    assert size(share) - size(target[poor]) <= 1, (rich, poor)


@settings(max_examples=80, deadline=None)
@given(group=groups())
def test_range_balances_every_topic_on_its_own(group):
    candidates, counts, current = group
    target = ranges(candidates, counts, current)
    for topic in TOPICS:
        sizes = [
            len(target[member].get(topic, ())) for member in candidates if topic in candidates[member].topics
        ]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(members=st.sets(member_ids, min_size=1), count=st.integers(1, 20))
@settings(max_examples=50, deadline=None)
def test_range_gives_runs_and_the_same_numbers_of_co_partitioned_topics(members, count):
    candidates = {member: AssignorMember(topics=frozenset(TOPICS[:3])) for member in members}
    target = ranges(candidates, dict.fromkeys(TOPICS, count), {})
    for share in target.values():
        numbers = {tuple(sorted(share.get(topic, ()))) for topic in TOPICS[:3]}
        assert len(numbers) == 1
        run = numbers.pop()
        assert not run or run[-1] - run[0] == len(run) - 1


@settings(max_examples=80, deadline=None)
@given(counts=counts_of_topics, members=st.sets(member_ids, min_size=1, max_size=10), newcomer=member_ids)
def test_uniform_moves_only_what_a_newcomer_gets(counts, members, newcomer):
    topics = frozenset(TOPICS)
    before = uniform({member: AssignorMember(topics=topics) for member in members - {newcomer}}, counts, {})
    after = uniform(
        {member: AssignorMember(topics=topics) for member in members | {newcomer}}, counts, before
    )
    assert moves(before, after) == (size(after[newcomer]) if before else 0)


@settings(max_examples=80, deadline=None)
@given(counts=counts_of_topics, members=st.sets(member_ids, min_size=2, max_size=10), data=st.data())
def test_uniform_moves_only_what_a_leaver_had(counts, members, data):
    leaver = data.draw(st.sampled_from(sorted(members)))
    topics = frozenset(TOPICS)
    before = uniform({member: AssignorMember(topics=topics) for member in members}, counts, {})
    after = uniform({member: AssignorMember(topics=topics) for member in members - {leaver}}, counts, before)
    assert moves(before, after) == size(before[leaver])


def test_a_static_member_keeps_its_run_of_partitions_when_its_member_id_changes():
    topic = TOPICS[0]
    subscribed = frozenset([topic])
    members = {
        "zz": AssignorMember(topics=subscribed, instance_id="1"),
        "aa": AssignorMember(topics=subscribed, instance_id="2"),
    }
    renamed = {"bb": members["zz"], "aa": members["aa"]}
    assert ranges(members, {topic: 4}, {})["zz"] == ranges(renamed, {topic: 4}, {})["bb"]


def test_500_members_and_1000_partitions_are_assigned_and_stay_where_they_are():
    topics = [UUID(int=number) for number in range(10)]
    counts = dict.fromkeys(topics, 100)
    alike = {f"m{number}": AssignorMember(topics=frozenset(topics)) for number in range(500)}
    mixed = {
        f"m{number}": AssignorMember(topics=frozenset(topics[number % 3 : number % 3 + 6]))
        for number in range(500)
    }
    for candidates in (alike, mixed):
        settled = uniform(candidates, counts, {})
        assert sum(map(size, settled.values())) == sum(
            counts[topic] for topic in set().union(*(candidate.topics for candidate in candidates.values()))
        )
        fewer = {member: candidate for member, candidate in candidates.items() if member != "m7"}
        assert moves(settled, uniform(fewer, counts, settled)) <= 3 * size(settled["m7"])
