"""The tables of an image: by name and by id, whatever came and went."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.image import ClusterImage, TopicImage, differ
from odradek.model.ids import BrokerId

EMPTY = ClusterImage(
    version=1, cluster_id="c", controller_id=BrokerId(1), brokers=(), topics={}, topics_by_id={}
)
NAMES = st.sampled_from("abcd")


def topic(name: str, number: int) -> TopicImage:
    """A topic whose id says its name, too: two topics never have the same."""
    return TopicImage(name=name, topic_id=UUID(int=ord(name) * 1000 + number), partitions=())


steps = st.lists(
    st.tuples(st.dictionaries(NAMES, st.integers(1, 3)), st.sets(NAMES)),
    max_size=8,
)


@given(steps)
def test_both_tables_hold_the_same_topics_after_any_changes(
    changes: list[tuple[dict[str, int], set[str]]],
) -> None:
    image, expected = EMPTY, dict[str, TopicImage]()
    for changed, gone in changes:
        present = [name for name in gone if name in expected]
        new = [topic(name, number) for name, number in changed.items()]
        before = image
        image = image.with_changed_topics(new, present)
        for name in present:
            del expected[name]
        expected |= {entry.name: entry for entry in new}
        assert image.topics == expected
        assert image.topics_by_id == {entry.topic_id: entry for entry in expected.values()}
        assert image.version == before.version + 1


def test_the_image_before_a_change_stays_as_it_was() -> None:
    first = EMPTY.with_topics([topic("a", 1)])
    first.with_changed_topics([topic("a", 2), topic("b", 1)], ())
    first.without_topics(["a"])
    assert list(first.topics) == ["a"]
    assert list(first.topics_by_id) == [topic("a", 1).topic_id]


def test_a_topic_that_is_not_there_cannot_go() -> None:
    with pytest.raises(KeyError):
        EMPTY.without_topics(["a"])


def test_an_object_is_not_compared_with_itself() -> None:
    class Entry:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None  # type: ignore[assignment]

    entry = Entry()
    assert not differ(entry, entry)
    assert differ({"a": 1}, {"a": 2})
    assert not differ({"a": 1}, {"a": 1})
