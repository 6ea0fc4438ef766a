"""Where records go: as in Java with a key, evenly without one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.producer.partitioner import next_sticky
from odradek.records import partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    # Kafka's own UtilsTest: murmur2 of these, as signed 32-bit numbers.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
@pytest.mark.parametrize("count", [1, 3, 12, 1000])
def test_a_key_goes_where_the_java_client_sends_it(key: bytes, expected: int, count: int) -> None:
    assert partition_of(key, count) == (expected & 0x7FFFFFFF) % count


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=30), st.floats(0, 1, exclude_max=True), st.booleans()
)
def test_any_chance_names_a_candidate(lengths: list[int], chance: float, adaptive: bool) -> None:
    assert 0 <= next_sticky(lengths, chance, adaptive=adaptive) < len(lengths)


def shares(lengths: list[int], *, adaptive: bool) -> Counter[int]:
    return Counter(next_sticky(lengths, step / 1000, adaptive=adaptive) for step in range(1000))


def test_equal_queues_get_equal_shares() -> None:
    assert set(shares([3, 3, 3, 3], adaptive=True).values()) == {250}


def test_a_long_queue_gets_less_and_never_nothing() -> None:
    seen = shares([9, 0], adaptive=True)
    assert 0 < seen[0] < seen[1] / 5


def test_without_adaptation_lengths_do_not_matter() -> None:
    assert set(shares([9, 0], adaptive=False).values()) == {500}
