"""Modules are left out of the collections that Spark runs after each task; what a task makes is not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.kit.heap import put_aside

from odradek.spark.engine.worker_garbage import LoadedModules


class Node:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.itself = self


@dataclass
class Calls:
    """How often the collector was to leave out what exists, and in which process that was."""

    process: int = 1
    count: int = 0
    modules: set[str] = field(default_factory=lambda: {"sys"})

    def freeze(self) -> None:
        self.count += 1


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def loaded(calls: Calls) -> LoadedModules:
    return LoadedModules(calls.modules, calls.freeze, lambda: calls.process)


@pytest.fixture
def collector() -> Iterator[None]:
    """The process's own, as it was before."""
    yield
    put_aside()


def test_what_is_loaded_is_left_out_once(loaded: LoadedModules, calls: Calls) -> None:
    loaded.leave_out()
    loaded.leave_out()
    assert calls.count == 1


def test_modules_that_are_loaded_later_are_left_out_by_the_next_task(
    loaded: LoadedModules, calls: Calls
) -> None:
    loaded.leave_out()
    calls.modules.add("pandas")
    loaded.leave_out()
    assert calls.count == 2


def test_a_forked_worker_leaves_out_what_it_has(loaded: LoadedModules, calls: Calls) -> None:
    loaded.leave_out()
    calls.process = 2
    loaded.leave_out()
    assert calls.count == 2


@pytest.mark.usefixtures("collector")
def test_the_collector_no_longer_walks_through_what_a_task_has_found() -> None:
    node = Node()
    LoadedModules({"sys"}, gc.freeze).leave_out()
    assert not any(walked is node for walked in gc.get_objects())


@pytest.mark.usefixtures("collector")
def test_what_a_task_makes_is_collected_after_it() -> None:
    loaded = LoadedModules({"sys"}, gc.freeze)
    loaded.leave_out()
    of_the_task = weakref.ref(Node())
    loaded.leave_out()
    gc.collect()
    assert of_the_task() is None
