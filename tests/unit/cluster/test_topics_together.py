"""The topics of one request are changed in portions: each is one commit, and none holds the event loop for long."""

from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.planning import together


@given(st.lists(st.integers(-5, 1500), max_size=600))
def test_portions_hold_all_topics_in_order_within_both_bounds(counts: list[int]) -> None:
    topics = list(enumerate(counts))
    portions = list(together(topics, lambda topic: topic[1]))
    assert [topic for portion in portions for topic in portion] == topics
    for portion in portions:
        assert 0 < len(portion) <= 64
        assert len(portion) == 1 or sum(max(count, 1) for _, count in portion) <= 1000


def test_a_thousand_topics_take_sixteen_changes() -> None:
    assert [len(portion) for portion in together(range(1000), lambda _: 1)] == [64] * 15 + [40]


def test_a_request_for_nothing_makes_no_change() -> None:
    assert list(together([], lambda _: 1)) == []
