"""A rebuild whose topics are there already, against a real broker: made by an attempt that was overtaken, or someone's own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.pipelines.conftest import document
from tests.unit.pipelines.test_upgrade import Build, outline

from odradek import NewTopic, Producer
from odradek.pipelines.document import Desired, PipelineDocument
from odradek.pipelines.store import PipelineConflict, PipelineStore
from odradek.pipelines.upgrade import ModeVerdict, UpgradeMode
from odradek.pipelines.upgrading import NextProgram, UpgradeRefused, preview, upgrade
from odradek.streams import Streams

_numbers = itertools.count()
PARTITIONS = 3


class OvertakenStore(PipelineStore):
    """A store in which someone else changes a pipeline right before each of its own changes."""

    def change(self, name: str, decide: Any, **more: Any) -> PipelineDocument | None:
        def other(before: PipelineDocument | None) -> PipelineDocument:
            assert before is not None
            return before.changed(2, "eve", "pause", desired=Desired.PAUSED)

        super().change(name, other)
        return super().change(name, decide, **more)


def counted(source: str, target: str) -> Build:
    def build(app: Streams) -> None:
        orders = app.stream(source, key="STRING", value="amount DOUBLE")
        orders.group_by_key().agg("count(*) AS n", name="totals").to(target, name="out")

    return build


@pytest.fixture
def name() -> str:
    return f"r{time.time_ns()}-{next(_numbers)}"


@pytest.fixture
def store(bootstrap: str, name: str) -> Iterator[PipelineStore]:
    with PipelineStore(bootstrap) as store:
        store.change(name, lambda _: document(name, desired=Desired.STOPPED))
        yield store
        store.change(name, lambda _: None)


@pytest.fixture
def target(topic: Callable[..., str]) -> str:
    return topic(partitions=PARTITIONS, **{"retention.ms": "12345678"})


@pytest.fixture
def program(name: str, target: str, topic: Callable[..., str]) -> NextProgram:
    outlined = outline(counted(topic(), target), name=name)
    return NextProgram(file="/p.py", args=(), outline=outlined, continued=outlined)


def rebuild(store: PipelineStore, name: str, program: NextProgram) -> ModeVerdict:
    verdicts = preview(store, store.document(name), program)
    return next(verdict for verdict in verdicts if verdict.mode is UpgradeMode.REBUILD)


def test_a_rebuild_that_was_overtaken_is_tried_again_with_the_topics_that_it_made(
    store: PipelineStore, bootstrap: str, name: str, target: str, program: NextProgram
) -> None:
    with OvertakenStore(bootstrap) as overtaken, pytest.raises(PipelineConflict, match="look at it again"):
        upgrade(overtaken, name, program, UpgradeMode.REBUILD, by="ann", now_ms=1)
    assert f"{target}.v2" in store.admin.list_topics()
    assert store.document(name).candidate is None
    verdict = rebuild(store, name, program)
    assert verdict.reasons == ()
    assert f"topic {target}.v2 is there already, and empty: it is used as it is" in verdict.notes
    changed = upgrade(store, name, program, UpgradeMode.REBUILD, by="ann", now_ms=3)
    assert changed.candidate is not None
    assert changed.candidate.suffix == ".v2"
    assert len(store.admin.describe_topics([f"{target}.v2"])[f"{target}.v2"].partitions) == PARTITIONS


def test_a_topic_with_records_is_not_written_to(
    store: PipelineStore, bootstrap: str, name: str, target: str, program: NextProgram
) -> None:
    store.admin.create_topics([NewTopic(f"{target}.v2", PARTITIONS)])
    with Producer(bootstrap) as producer:
        producer.send(f"{target}.v2", b"x", partition=1)
    assert rebuild(store, name, program).reasons == (f"topic {target}.v2 is there already: delete it first",)
    with pytest.raises(UpgradeRefused, match="is there already: delete it first"):
        upgrade(store, name, program, UpgradeMode.REBUILD, by="ann", now_ms=1)


def test_a_topic_with_other_partitions_is_not_written_to(
    store: PipelineStore, name: str, target: str, program: NextProgram
) -> None:
    store.admin.create_topics([NewTopic(f"{target}.v2", PARTITIONS + 1)])
    assert rebuild(store, name, program).reasons == (f"topic {target}.v2 is there already: delete it first",)
