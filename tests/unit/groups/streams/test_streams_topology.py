"""Topologies of streams groups: partition counts of internal topics, copartitioning, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.groups.streams.streams_world import (
    COUNTING,
    StreamsTopicsStub,
    internal,
    subtopology,
    topology,
)

from odradek.groups.streams.topology import (
    ConfiguredTopology,
    StatusCode,
    configure,
    required_topics,
    stored_topology,
)
from odradek.protocol.messages.groups.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
)


def configured(*parts: Subtopology, **topics: int) -> ConfiguredTopology:
    return configure(stored_topology(topology(*parts)), StreamsTopicsStub(**topics))


def counts(made: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partition_count for name, topic in made.internal_topics.items()}


def code_of(made: ConfiguredTopology) -> StatusCode | None:
    return None if made.problem is None else made.problem.code


def joined_subtopology(**fields: Any) -> Subtopology:
    """A join of all sources."""
    sources, repartition = fields.get("source_topics", []), fields.get("repartition_source_topics", [])
    group = CopartitionGroup(
        source_topics=list(range(len(sources))),
        source_topic_regex=[],
        repartition_source_topics=list(range(len(repartition))),
    )
    return subtopology("join", copartition_groups=[group], **fields)


def test_a_repartition_topic_has_as_many_partitions_as_the_largest_source_before_it() -> None:
    made = configured(
        subtopology("0", source_topics=["a", "b"], repartition_sink_topics=["r"]),
        subtopology("1", repartition_source_topics=[internal("r")], repartition_sink_topics=["s"]),
        subtopology("2", repartition_source_topics=[internal("s")], state_changelog_topics=[internal("c")]),
        a=3,
        b=5,
    )
    assert counts(made) == {"r": 5, "s": 5, "c": 5}
    assert {name: part.task_count for name, part in made.subtopologies.items()} == {"0": 5, "1": 5, "2": 5}
    assert made.tasks == {}, "the internal topics are missing"


def test_a_count_that_the_topology_sets_counts_for_what_follows() -> None:
    made = configured(
        subtopology("0", source_topics=["a"], repartition_sink_topics=["r"]),
        subtopology("1", repartition_source_topics=[internal("r", 9)], repartition_sink_topics=["s"]),
        subtopology("2", repartition_source_topics=[internal("s")]),
        a=2,
    )
    assert counts(made) == {"r": 9, "s": 9}


def test_a_topology_with_all_its_topics_is_ready() -> None:
    made = configured(*COUNTING.subtopologies, **{"in": 2, "repart": 2, "log": 2})
    assert made.is_ready
    assert {name: part.is_stateful for name, part in made.tasks.items()} == {"0": False, "1": True}
    assert required_topics(stored_topology(COUNTING)) == {"in", "repart", "log"}


def test_a_source_topic_that_is_its_own_changelog_is_not_created() -> None:
    made = configured(subtopology(source_topics=["t"], state_changelog_topics=[internal("t")]), t=4)
    assert made.is_ready
    assert made.internal_topics == {}
    assert made.tasks["0"].is_stateful


def test_missing_sources_are_named_some_of_them() -> None:
    made = configured(subtopology(source_topics=[f"t{number:02}" for number in range(12)]))
    assert code_of(made) is StatusCode.MISSING_SOURCE_TOPICS
    assert made.problem is not None
    assert made.problem.detail.startswith("Source topics t00, t01,")
    assert made.problem.detail.endswith("t09 and 2 additional topics are missing.")


def test_joined_sources_have_the_same_number_of_partitions() -> None:
    made = configured(joined_subtopology(source_topics=["a", "b"]), a=2, b=3)
    assert code_of(made) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert made.problem is not None
    assert "{a=2, b=3}" in made.problem.detail
    assert configured(joined_subtopology(source_topics=["a", "b"]), a=3, b=3).is_ready


def test_a_flexible_repartition_topic_takes_the_count_of_the_topic_that_it_is_joined_with() -> None:
    made = configured(
        subtopology("0", source_topics=["a"], repartition_sink_topics=["r"]),
        joined_subtopology(source_topics=["b"], repartition_source_topics=[internal("r")]),
        a=2,
        b=7,
    )
    assert counts(made) == {"r": 7}


def test_a_fixed_repartition_topic_cannot_be_joined_with_a_topic_of_another_size() -> None:
    made = configured(
        subtopology("0", source_topics=["a"], repartition_sink_topics=["r"]),
        joined_subtopology(source_topics=["b"], repartition_source_topics=[internal("r", 3)]),
        a=2,
        b=7,
    )
    assert code_of(made) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_joined_repartition_topics_have_the_largest_count_or_the_fixed_one() -> None:
    def parts(fixed: int) -> list[Subtopology]:
        return [
            subtopology("0", source_topics=["a"], repartition_sink_topics=["r"]),
            subtopology("1", source_topics=["b"], repartition_sink_topics=["s"]),
            joined_subtopology(repartition_source_topics=[internal("r", fixed), internal("s")]),
        ]

    assert counts(configured(*parts(0), a=2, b=7)) == {"r": 7, "s": 7}
    assert counts(configured(*parts(4), a=2, b=7)) == {"r": 4, "s": 4}


def test_an_internal_topic_with_another_count_is_named() -> None:
    made = configured(*COUNTING.subtopologies, **{"in": 2, "repart": 5, "log": 2})
    assert code_of(made) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert made.problem is not None
    assert "repart" in made.problem.detail


def test_settings_and_replicas_of_internal_topics_are_those_of_the_topology() -> None:
    changelog = TopicInfo(
        name="c",
        partitions=0,
        replication_factor=3,
        topic_configs=[KeyValue(key="cleanup.policy", value="compact")],
    )
    made = configured(subtopology(source_topics=["a"], state_changelog_topics=[changelog]), a=1)
    (topic,) = made.missing
    assert (topic.replication_factor, topic.configs) == (3, {"cleanup.policy": "compact"})


@pytest.mark.parametrize("length", [300])
def test_a_long_chain_of_repartition_topics_is_followed_to_its_end(length: int) -> None:
    parts = [subtopology("0", source_topics=["a"], repartition_sink_topics=["r0"])]
    parts += [
        subtopology(
            str(number + 1),
            repartition_source_topics=[internal(f"r{number}")],
            repartition_sink_topics=[f"r{number + 1}"],
        )
        for number in range(length)
    ]
    parts.append(subtopology("last", repartition_source_topics=[internal(f"r{length}")]))
    assert set(counts(configured(*parts, a=3)).values()) == {3}
