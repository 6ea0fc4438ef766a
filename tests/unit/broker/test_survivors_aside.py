"""The collector of a broker: what survives is not looked at again, and garbage that was put aside is found later."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
from tests.kit.heap import put_aside

from odradek.broker.collector import SurvivorFreezer


class Node:
    """One half of a cycle."""

    other: Node | None = None


def cycle() -> Node:
    first, second = Node(), Node()
    first.other, second.other = second, first
    return first


class Heap:
    """How many blocks there are, as the test says."""

    def __init__(self) -> None:
        self.blocks = 1000
        self.partition_count = 0
        self.seconds = 0.0
        self.looks: list[Callable[[], None]] = []

    def __call__(self) -> int:
        return self.blocks

    def collect_after(self, seconds: float) -> None:
        """A full collection, and then what it left for the event loop."""
        self.seconds += seconds
        gc.collect()
        for look in self.looks:
            look()
        self.looks.clear()


@pytest.fixture
def heap() -> Iterator[Heap]:
    blocks = Heap()
    aside = SurvivorFreezer(
        blocks=blocks,
        partition_count=lambda: blocks.partition_count,
        now=lambda: blocks.seconds,
        later=blocks.looks.append,
    )
    gc.collect()
    gc.callbacks.append(aside)
    try:
        yield blocks
    finally:
        gc.callbacks.remove(aside)
        put_aside()


def looked_at(node: Node) -> bool:
    return any(tracked is node for tracked in gc.get_objects())


def test_what_survives_a_full_collection_is_not_looked_at_again(heap: Callable[[], int]) -> None:
    node = cycle()
    assert looked_at(node)
    gc.collect()
    assert not looked_at(node)


def test_what_survives_a_small_collection_stays_where_it_is(heap: Callable[[], int]) -> None:
    node = cycle()
    gc.collect(1)
    assert looked_at(node)


def test_many_survivors_of_a_small_collection_are_put_aside_without_a_look(heap: Heap) -> None:
    heap.blocks = 1_000_000
    node = cycle()
    gc.collect(1)
    assert not looked_at(node)


def test_a_cycle_that_became_garbage_is_found_when_the_heap_stays_a_quarter_larger(heap: Heap) -> None:
    node = cycle()
    is_alive = weakref.ref(node)
    gc.collect()
    del node
    gc.collect()
    assert is_alive()
    heap.blocks = 1251
    gc.collect()
    assert is_alive()
    heap.collect_after(30.0)  # finds that there is so much more, and looks at all of it
    assert not is_alive()


def test_everything_is_looked_at_when_no_large_request_has_made_objects(heap: Heap) -> None:
    node = cycle()
    is_alive = weakref.ref(node)
    gc.collect()
    del node
    heap.blocks = 1300
    gc.collect()
    heap.blocks = 9000
    heap.collect_after(30.0)
    assert is_alive(), "a request of many elements is being served"
    heap.blocks = 1310
    heap.collect_after(1.0)
    assert not is_alive()


def test_a_heap_that_is_larger_for_a_short_time_is_not_looked_at_again(heap: Heap) -> None:
    node = cycle()
    gc.collect()
    for blocks in (1251, 1250, 1251):
        heap.blocks = blocks
        heap.collect_after(20.0)
    gc.collect()
    assert not looked_at(node)


def test_more_partitions_explain_more_blocks(heap: Heap) -> None:
    node = cycle()
    is_alive = weakref.ref(node)
    gc.collect()
    del node
    heap.partition_count = 10
    heap.blocks = 2300
    gc.collect()
    heap.collect_after(30.0)
    assert is_alive()
    heap.blocks = 3000
    gc.collect()
    heap.collect_after(30.0)
    assert not is_alive()


def test_after_a_look_at_everything_the_next_one_waits_until_there_is_a_quarter_more_again(
    heap: Heap,
) -> None:
    heap.blocks = 2000
    gc.collect()
    heap.collect_after(30.0)
    node = cycle()
    is_alive = weakref.ref(node)
    gc.collect()
    del node
    heap.blocks = 2500
    gc.collect()
    heap.collect_after(30.0)
    assert is_alive()


def test_a_heap_that_became_small_is_the_new_measure(heap: Heap) -> None:
    heap.blocks = 100
    gc.collect()
    node = cycle()
    is_alive = weakref.ref(node)
    gc.collect()
    del node
    heap.blocks = 201
    gc.collect()
    heap.collect_after(30.0)
    assert not is_alive()
