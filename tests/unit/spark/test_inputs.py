"""Input offsets in a decision, and whether a new query goes on where they end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.exactly_once.checkpoint import beginnings, input_offsets
from odradek.spark.exactly_once.inputs import TOPICS_KNOWN_FOR_S, KnownTopics, check_resumed

A, B, OTHER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("other", 0)


@dataclass
class Cluster:
    counts: dict[str, int]
    asked: list[list[str]] = field(default_factory=list)

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        self.asked.append(sorted(topics))
        return {name: self.counts[name] for name in topics if name in self.counts}


@dataclass
class Watch:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 0


def test_topics_of_another_cluster_are_left_out() -> None:
    cluster = Cluster({"a": 1})
    held = KnownTopics().held({A: 1, B: 2, OTHER: 3}, cluster, Watch())
    assert held == {A: 1}


def test_the_cluster_is_asked_again_after_a_while_and_for_new_topics() -> None:
    cluster, watch, known = Cluster({"a": 1}), Watch(), KnownTopics()
    for _ in range(3):
        known.held({A: 1}, cluster, watch)
    assert cluster.asked == [["a"]]
    known.held({A: 1, OTHER: 3}, cluster, watch)
    assert cluster.asked == [["a"], ["a", "other"]]
    cluster.counts = {}
    assert known.held({A: 1}, cluster, watch) == {A: 1}
    watch.now += TOPICS_KNOWN_FOR_S + 1
    assert known.held({A: 1}, cluster, watch) == {}


def test_a_query_that_begins_where_the_decision_ends_resumes() -> None:
    check_resumed("s", {A: 5, B: 7}, {A: 5, B: 7})


def test_partitions_that_the_decision_does_not_know_may_begin_anywhere() -> None:
    check_resumed("s", {A: 5}, {A: 5, OTHER: 0})


@pytest.mark.parametrize(
    ("ends_at", "begins_at", "reason"),
    [
        (
            {A: 5, B: 7},
            {A: 5, B: 6},
            "begins at offset 6 of a-1, and the last decision of sink 's' ends at 7",
        ),
        ({A: 5, B: 7}, {A: 5, B: 8}, "begins at offset 8"),
        ({}, {A: 0}, "holds no offsets of what the query reads"),
        ({A: 5}, None, "does not tell where it begins"),
    ],
)
def test_what_would_double_or_lose_rows_is_refused(
    ends_at: dict[TopicPartition, int], begins_at: dict[TopicPartition, int] | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_resumed("s", ends_at, begins_at)


def journal(directory: Path, *sources: object, named: bool = False) -> str:
    """A checkpoint whose batch 0 has these offsets."""
    place = directory / "offsets" / "0"
    place.parent.mkdir()
    lines = [json.dumps(each) for each in sources]
    if named:
        lines = [json.dumps({f"source{number}": line for number, line in enumerate(lines)})]
    place.write_text("\n".join(["v1", "{}", *lines]))
    return str(directory)


@pytest.mark.parametrize("named", [False, True])
def test_beginnings_are_those_of_all_sources(tmp_path: Path, named: bool) -> None:
    first = {"a": {"0": 5}, "@from": {"a": {"0": 1}}}
    second = {"other": {"0": 9}, "@from": {"other": {"0": 0}}}
    checkpoint = journal(tmp_path, first, second, named=named)
    assert beginnings(checkpoint, 0) == {A: 1, OTHER: 0}
    assert input_offsets(checkpoint, 0) == {A: 5, OTHER: 9}


@pytest.mark.parametrize("stranger", [{"other": {"0": 9}}, 17, {"logOffset": 3}, None])
def test_a_source_that_does_not_say_where_it_begins_makes_the_whole_unknown(
    tmp_path: Path, stranger: object
) -> None:
    checkpoint = journal(tmp_path, {"a": {"0": 5}, "@from": {"a": {"0": 1}}}, stranger)
    assert beginnings(checkpoint, 0) is None
