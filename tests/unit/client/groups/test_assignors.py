"""Assignors: everyone's share, and how little of it moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.groups.assignors import (
    ASSIGNORS,
    GroupAssignment,
    GroupMember,
    assignors_of,
)
from odradek.client.groups.member_bytes import MemberSubscription
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition

Topics = Mapping[str, Sequence[str]]
"""What each member subscribes to."""


def group(
    topics: Topics, had: GroupAssignment | None = None, *, generation: int = 3
) -> dict[str, GroupMember]:
    """Members who had `had`, in the words of every assignor."""
    members = {}
    for member_id, names in topics.items():
        owned = tuple((had or {}).get(member_id, ()))
        sticky = ASSIGNORS["sticky"].user_data(owned, generation) if had is not None else None
        subscription = MemberSubscription(
            topics=tuple(names), owned=owned, generation=generation, user_data=sticky
        )
        members[member_id] = GroupMember(member_id=member_id, subscription=subscription)
    return members


def partitions(*names: str) -> list[TopicPartition]:
    return [TopicPartition(name[0], int(name[1:])) for name in names]


def test_range_gives_neighbours_and_the_first_members_the_rest() -> None:
    assigned = ASSIGNORS["range"].assign(group({"m1": "ab", "m2": "ab"}), {"a": 3, "b": 3})
    assert assigned == {"m1": partitions("a0", "a1", "b0", "b1"), "m2": partitions("a2", "b2")}


def test_roundrobin_deals_out_all_partitions_in_a_row() -> None:
    assigned = ASSIGNORS["roundrobin"].assign(group({"m1": "ab", "m2": "ab"}), {"a": 3, "b": 3})
    assert assigned == {"m1": partitions("a0", "a2", "b1"), "m2": partitions("a1", "b0", "b2")}


def test_roundrobin_skips_who_does_not_read_the_topic() -> None:
    assigned = ASSIGNORS["roundrobin"].assign(group({"m1": "a", "m2": "ab"}), {"a": 2, "b": 2})
    assert assigned == {"m1": partitions("a0"), "m2": partitions("a1", "b0", "b1")}


def test_static_members_come_first_by_their_instance_ids() -> None:
    members = group({"x": "a", "y": "a", "z": "a"})
    members["z"] = GroupMember(member_id="z", group_instance_id="one", subscription=members["z"].subscription)
    assigned = ASSIGNORS["range"].assign(members, {"a": 3})
    assert assigned == {"z": partitions("a0"), "x": partitions("a1"), "y": partitions("a2")}


def test_a_new_member_takes_its_share_and_the_others_keep_the_rest() -> None:
    had = {"m1": partitions("a0", "a1", "a2"), "m2": partitions("a3", "a4", "a5")}
    assigned = ASSIGNORS["sticky"].assign(group({"m1": "a", "m2": "a", "m3": "a"}, had), {"a": 6})
    assert sorted(map(len, assigned.values())) == [2, 2, 2]
    assert set(assigned["m1"]) < set(had["m1"])
    assert set(assigned["m2"]) < set(had["m2"])


def test_what_two_claim_from_the_same_generation_is_no_ones() -> None:
    had = {"m1": partitions("a0", "a1"), "m2": partitions("a0")}
    assigned = ASSIGNORS["cooperative-sticky"].assign(group({"m1": "a", "m2": "a"}, had), {"a": 2})
    assert partitions("a0")[0] not in assigned["m1"]


def test_the_newer_claim_counts() -> None:
    members = group({"m1": "a"}, {"m1": partitions("a0")}, generation=2)
    members |= group({"m2": "a"}, {"m2": partitions("a0")}, generation=3)
    assigned = ASSIGNORS["sticky"].assign(members, {"a": 1})
    assert assigned == {"m1": [], "m2": partitions("a0")}


def test_what_changes_hands_has_no_reader_for_one_cooperative_round() -> None:
    had = {"m1": partitions("a0", "a1", "a2", "a3")}
    topics = {"m1": "a", "m2": "a"}
    assign = ASSIGNORS["cooperative-sticky"].assign
    first = assign(group(topics, had), {"a": 4})
    assert first["m2"] == []
    assert len(first["m1"]) == 2
    second = assign(group(topics, first), {"a": 4})
    assert second["m1"] == first["m1"]
    assert len(second["m2"]) == 2


def test_kafkas_class_names_are_understood() -> None:
    setting = "org.apache.kafka.clients.consumer.RangeAssignor, cooperative-sticky"
    assert [assignor.name for assignor in assignors_of(setting)] == ["range", "cooperative-sticky"]


@pytest.mark.parametrize("setting", ["", "fair", "range,fair"])
def test_an_assignor_that_is_not_known_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError):
        assignors_of(setting)


TOPICS = ("a", "b", "c")
member_topics = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1
)
topic_counts = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_partition_has_one_reader_who_wants_it(name: str) -> None:
    assign = ASSIGNORS[name].assign
    check_partition_once(assign)


def check_partition_once(assign: Callable[..., GroupAssignment]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(member_topics, topic_counts)
    def check(topics: dict[str, set[str]], counts: dict[str, int]) -> None:
        assigned = assign(group({member: sorted(names) for member, names in topics.items()}), counts)
        assert assigned.keys() == topics.keys()
        dealt = [tp for some in assigned.values() for tp in some]
        read = set().union(*topics.values())
        assert sorted(dealt) == sorted(
            TopicPartition(topic, number) for topic in read for number in range(counts[topic])
        )
        assert all(tp.topic in topics[member] for member, some in assigned.items() for tp in some)

    check()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), topic_counts)
def test_sticky_shares_stay_even_and_move_only_what_they_must(
    before: int, after: int, counts: dict[str, int]
) -> None:
    assign = ASSIGNORS["sticky"].assign
    had = assign(group({f"m{n}": TOPICS for n in range(before)}), counts)
    assigned = assign(group({f"m{n}": TOPICS for n in range(after)}, had), counts)
    sizes = [len(some) for some in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    total = sum(counts.values())
    share = -(-total // after)
    kept = sum(len(set(had[member]) & set(assigned[member])) for member in had if member in assigned)
    least_kept = sum(min(len(had[member]), total // after) for member in had if member in assigned)
    assert least_kept <= kept <= share * after


@settings(max_examples=60, deadline=None)
@given(member_topics, member_topics, topic_counts)
def test_cooperative_rounds_end_and_never_hand_out_what_another_still_reads(
    first: dict[str, set[str]], then: dict[str, set[str]], counts: dict[str, int]
) -> None:
    assign = ASSIGNORS["cooperative-sticky"].assign
    had: GroupAssignment = assign(group({member: sorted(names) for member, names in first.items()}), counts)
    topics = {member: sorted(names) for member, names in then.items()}
    for generation in range(2, 6):
        held = {member: had.get(member, []) for member in topics}
        assigned = assign(group(topics, held, generation=generation), counts)
        for member, some in assigned.items():
            others = {tp for other, owned in held.items() if other != member for tp in owned}
            assert not others & set(some)
        had = assigned
        if assigned == held:
            break
    read = set().union(*then.values())
    dealt = sorted(tp for some in had.values() for tp in some)
    assert dealt == sorted(TopicPartition(topic, number) for topic in read for number in range(counts[topic]))


def test_a_large_group_keeps_what_it_has_but_for_the_share_of_a_new_member() -> None:
    """A thousand members and 20,000 partitions: what looks at every member for every partition does not end."""
    counts = {f"t{number:03}": 100 for number in range(200)}
    assign = ASSIGNORS["sticky"].assign
    topics: Topics = {f"m{number:03}": tuple(counts) for number in range(999)}
    had = assign(group(topics), counts)
    assigned = assign(group({**topics, "new": tuple(counts)}, had), counts)
    assert {len(some) for some in assigned.values()} == {20}
    assert all(set(assigned[member]) <= set(had[member]) for member in had)
