"""A listener publishes each source's offsets to the group that its options name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from odradek.model.ids import TopicPartition
from odradek.runtime.real import SystemClock
from odradek.spark.lag import PublishedSource, QueryPublishers

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
Commits = list[tuple[str, str, dict[TopicPartition, int]]]


def source(topic: str, group: str | None, servers: str = "h:1") -> PublishedSource:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    return PublishedSource.of("odradek", options if group is None else options | {"publishOffsets": group})


def publishers(commits: Commits, *sources: PublishedSource) -> QueryPublishers:
    def committing(client: Mapping[str, str]) -> Callable[[str, Mapping[TopicPartition, int]], None]:
        return lambda group, offsets: commits.append((client["bootstrap.servers"], group, dict(offsets)))

    return QueryPublishers(list(sources), committing, SystemClock())


def test_each_source_has_a_group_and_a_cluster_of_its_own() -> None:
    commits: Commits = []
    query = publishers(commits, source("a", "g"), source("b", "h", "other:1"), source("c", None))
    query.publish([json.dumps({"a": {"0": 5}, "@from": {"a": {"0": 1}}}), json.dumps({"b": {"0": 7}}), None])
    assert commits == [("h:1", "g", {A: 5}), ("other:1", "h", {B: 7})]


def test_sources_of_others_are_none_of_its_business() -> None:
    commits: Commits = []
    query = publishers(commits, PublishedSource.of("rate", {"rowsPerSecond": "1"}), source("a", "g"))
    query.publish(["17", json.dumps({"a": {"0": 5}})])
    assert commits == [("h:1", "g", {A: 5})]


def test_sources_that_cannot_be_distinguished_are_left_to_the_planner() -> None:
    commits: Commits = []
    publishers(commits, source("a", "g")).publish([json.dumps({"a": {"0": 5}}), json.dumps({"a": {"0": 6}})])
    assert commits == []
