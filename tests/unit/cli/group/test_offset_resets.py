"""Where a group's offsets go: every way to say it, and never outside of what a partition holds."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from odradek.cli.group.offset_resets import (
    OffsetPlan,
    parse_plan,
    parse_scopes,
)
from odradek.cli.moments import parse_moment_or_duration
from odradek.client.groups.offset_target import PartitionFacts, Target
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
FACTS = PartitionFacts(begin=10, end=100, committed=50, at_time=70)
FRESH = PartitionFacts(begin=10, end=100)


@pytest.mark.parametrize(
    ("target", "facts", "offset"),
    [
        (Target(word="earliest"), FACTS, 10),
        (Target(word="latest"), FACTS, 100),
        (Target(word="current"), FACTS, 50),
        (Target(word="current"), FRESH, None),
        (Target(offset=42), FACTS, 42),
        (Target(offset=0), FACTS, 10),
        (Target(offset=4_200), FACTS, 100),
        (Target(shift=-5), FACTS, 45),
        (Target(shift=-500), FACTS, 10),
        (Target(shift=500), FACTS, 100),
        (Target(shift=5), FRESH, None),
        (Target(timestamp_ms=1), FACTS, 70),
        (Target(by_partition={A0: 33}), FACTS, 33),
        (Target(by_partition={A1: 33}), FACTS, None),
    ],
)
def test_where_a_target_lies(target: Target, facts: PartitionFacts, offset: int | None) -> None:
    assert target.offset_for(A0, facts) == offset


def test_scopes_are_topics_or_some_of_their_partitions() -> None:
    assert parse_scopes(["a", "b:0,2"]) == {"a": None, "b": (0, 2)}


@pytest.mark.parametrize("scope", ["", "a:", "a:x", "a:1,", ":1"])
def test_a_scope_that_makes_no_sense_is_refused(scope: str) -> None:
    with pytest.raises(ConfigError):
        parse_scopes([scope])


@pytest.mark.parametrize(("text", "ago_ms"), [("15m", 900_000), ("PT15M", 900_000), ("P1DT6H", 108_000_000)])
def test_durations_are_ours_or_javas(text: str, ago_ms: int) -> None:
    assert parse_moment_or_duration(text, now_ms=10**12) == 10**12 - ago_ms


def test_a_moment_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no time"):
        parse_moment_or_duration("yesterday-ish", now_ms=0)


@pytest.mark.parametrize(
    "text",
    [
        "a,0,5\na,1,7\n",
        '{"group": "g", "offsets": [{"topic": "a", "partition": 0, "before": 1, "after": 5},'
        ' {"topic": "a", "partition": 1, "before": 1, "after": 7}]}',
        '[{"topic": "a", "partition": 0, "offset": 5}, {"topic": "a", "partition": 1, "offset": 7}]',
    ],
)
def test_a_plan_may_be_lines_or_json(text: str) -> None:
    assert parse_plan(text) == OffsetPlan(offsets={A0: 5, A1: 7})


def test_a_plan_of_a_topic_that_was_made_again_is_refused() -> None:
    entry = {"topic": "a", "partition": 0, "before": 1, "after": 5, "topic_id": str(UUID(int=1))}
    plan = parse_plan(json.dumps({"group": "g", "offsets": [entry]}))
    assert plan == OffsetPlan(offsets={A0: 5}, topic_ids={"a": UUID(int=1)})
    target = Target(by_partition=plan.offsets, topic_ids=plan.topic_ids)
    target.check_topics({"a": UUID(int=1), "b": UUID(int=3)})
    target.check_topics({})
    with pytest.raises(ConfigError, match="topic 'a' was deleted and made again since the file was written"):
        target.check_topics({"a": UUID(int=2)})


@pytest.mark.parametrize("text", ["a;0;5", "a,0", "{}", "[{}]", "[1]", "a,x,5"])
def test_a_plan_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_plan(text)
