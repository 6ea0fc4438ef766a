"""What is known of offsets after changes: as if each offset had been looked up by itself."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.groups.share.assignor import assign
from odradek.groups.share.partition import RecordState, StateBatch
from odradek.groups.share.state import combined

OFFSETS = 30
KINDS = st.sampled_from([RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED])
KNOWN = st.dictionaries(st.integers(0, OFFSETS), st.tuples(KINDS, st.integers(1, 2)), max_size=OFFSETS)
Known = dict[int, tuple[RecordState, int]]


def batches_of(known: Known) -> list[StateBatch]:
    state_batches: list[StateBatch] = []
    for offset, (state, count) in sorted(known.items()):
        if state_batches and state_batches[-1] == (state_batches[-1].first_offset, offset - 1, state, count):
            state_batches[-1] = state_batches[-1]._replace(last_offset=offset)
        else:
            state_batches.append(StateBatch(offset, offset, state, count))
    return state_batches


@settings(deadline=None, max_examples=200)
@given(KNOWN, KNOWN, st.integers(0, OFFSETS))
def test_the_newer_word_counts_for_each_offset(old: Known, new: Known, start_offset: int) -> None:
    expected = {offset: state for offset, state in (old | new).items() if offset >= start_offset}
    assert list(combined(batches_of(old), batches_of(new), start_offset)) == batches_of(expected)


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(st.sampled_from("abcde"), st.frozensets(st.sampled_from([1, 2, 3])), max_size=5),
    st.dictionaries(st.sampled_from([1, 2, 3]), st.integers(1, 4)),
    st.integers(0, 3),
)
def test_every_wanted_partition_has_a_reader_and_every_member_that_wants_one_has_one(
    wishes: dict[str, frozenset[int]], sizes: dict[int, int], rounds: int
) -> None:
    subscriptions = {
        member: frozenset(UUID(int=topic) for topic in topics if topic in sizes)
        for member, topics in wishes.items()
    }
    partitions = {UUID(int=partition_data): range(size) for partition_data, size in sizes.items()}
    target = assign(subscriptions, partitions, {})
    for _ in range(rounds):
        target = assign(subscriptions, partitions, target)
    wanted = {
        (topic, number)
        for topics in subscriptions.values()
        for topic in topics
        for number in partitions[topic]
    }
    given_out = {
        (partition, number)
        for share in target.values()
        for partition, numbers in share.items()
        for number in numbers
    }
    assert given_out == wanted
    for member, topics in subscriptions.items():
        assert bool(target[member]) == bool(topics)
        assert set(target[member]) <= topics
    assert assign(subscriptions, partitions, target) == target, "it is stable"
