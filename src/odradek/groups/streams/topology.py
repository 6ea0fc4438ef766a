"""The topology of a streams group: its subtopologies, the internal topics that it needs, and how many tasks it has.

A topology comes from the first member and names topics; how many partitions its internal topics have follows from the topics
that exist (Kafka's InternalTopicManager): a repartition topic has as many as the largest source of the subtopologies that write
to it, a changelog as many as its subtopology has tasks, and topics that are joined have the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from odradek.groups.shard.machine import ClusterTopics
from odradek.groups.streams.formats import (
    StoredCopartitionGroup,
    StoredSubtopology,
    StoredTopicConfig,
    StoredTopicInfo,
    StreamsTopologyValue,
)
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups import streams_group_heartbeat as heartbeat

ELEMENTS_MAX: Final = 20_000
"""The most topics, settings and copartitioned topics that a topology may name together: handling it is one step."""
_NAMED_MAX: Final = 10
_BROKERS_DEFAULT: Final = -1


class StatusCode(IntEnum):
    """What keeps a group, or a member, from working (the statuses of StreamsGroupHeartbeat)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyProblem:
    """The reason why a topology has no tasks yet."""

    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsInternalTopic:
    """A topic that the broker creates for the application."""

    name: str
    partition_count: int
    replication_factor: int = _BROKERS_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtopologyTasks:
    """The tasks of one subtopology: one for each partition of its largest source."""

    task_count: int
    is_stateful: bool
    source_topics: Mapping[str, int]
    """The partition counts of its sources, repartition topics among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTopology:
    """A topology together with the topics that exist."""

    subtopologies: Mapping[str, SubtopologyTasks]
    """Subtopologies by id, ascending. There are none where sources are missing, or partition counts do not fit."""
    internal_topics: Mapping[str, StreamsInternalTopic]
    missing: tuple[StreamsInternalTopic, ...] = ()
    problem: TopologyProblem | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    @property
    def tasks(self) -> Mapping[str, SubtopologyTasks]:
        """The subtopologies whose tasks can be assigned: none before all internal topics exist."""
        return self.subtopologies if self.is_ready else {}


class _Unfit(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.problem: Final = TopologyProblem(code=code, detail=detail)


# -- as clients send it


def stored_topology(topology: heartbeat.Topology) -> StreamsTopologyValue:
    """Returns the topology of a request as it is stored. Raises STREAMS_INVALID_TOPOLOGY, INVALID_REQUEST."""
    _check_size(topology)
    value = StreamsTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            StoredSubtopology(
                subtopology_id=part.subtopology_id,
                source_topics=part.source_topics,
                source_topic_regex=part.source_topic_regex,
                state_changelog_topics=[_stored_topic(topic) for topic in part.state_changelog_topics],
                repartition_sink_topics=part.repartition_sink_topics,
                repartition_source_topics=[_stored_topic(topic) for topic in part.repartition_source_topics],
                copartition_groups=[
                    StoredCopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in part.copartition_groups
                ],
            )
            for part in topology.subtopologies
        ],
    )
    _check(value)
    return value


def _stored_topic(topic: heartbeat.TopicInfo) -> StoredTopicInfo:
    return StoredTopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[
            StoredTopicConfig(key=config.key, value=config.value) for config in topic.topic_configs
        ],
    )


def _check_size(topology: heartbeat.Topology) -> None:
    """Counts before anything is copied."""
    count = len(topology.subtopologies)
    for part in topology.subtopologies:
        count += len(part.source_topics) + len(part.repartition_sink_topics) + len(part.source_topic_regex)
        topics = len(part.state_changelog_topics) + len(part.repartition_source_topics)
        count += topics + len(part.copartition_groups)
        if count > ELEMENTS_MAX:
            break
        count += sum(len(topic.topic_configs) for topic in part.state_changelog_topics)
        count += sum(len(topic.topic_configs) for topic in part.repartition_source_topics)
        count += sum(
            len(group.source_topics) + len(group.repartition_source_topics)
            for group in part.copartition_groups
        )
    if count > ELEMENTS_MAX:
        raise _invalid(f"the topology names more than {ELEMENTS_MAX} topics and settings: it is too large")


def _check(value: StreamsTopologyValue) -> None:
    """Refuses what no set of topics can make valid."""
    if value.epoch < 0:
        raise _invalid(f"Topology epoch {value.epoch} is invalid: it must be non-negative.")
    ids: set[str] = set()
    for part in value.subtopologies:
        if part.source_topic_regex:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet."
            )
        if part.subtopology_id in ids:
            raise _invalid(f"Subtopology {part.subtopology_id} is in the topology twice.")
        ids.add(part.subtopology_id)
        _check_part(part)
    _check_repartition_topics(value)


def _check_part(part: StoredSubtopology) -> None:
    if not part.source_topics and not part.repartition_source_topics:
        raise _invalid(f"No source topics found for subtopology {part.subtopology_id}.")
    for topic in part.state_changelog_topics:
        if topic.partitions != 0:
            raise _invalid(
                f"Changelog topic {topic.name} must have an undefined partition count, but it is set to {topic.partitions}."
            )
    for topic in part.repartition_source_topics:
        if topic.partitions < 0:
            raise _invalid(f"Repartition topic {topic.name} cannot have {topic.partitions} partitions.")
    for group in part.copartition_groups:
        for indexes, count in (
            (group.source_topics, len(part.source_topics)),
            (group.source_topic_regex, 0),
            (group.repartition_source_topics, len(part.repartition_source_topics)),
        ):
            if any(not 0 <= index < count for index in indexes):
                raise _invalid(
                    f"A copartition group of subtopology {part.subtopology_id} names a topic that the subtopology lacks."
                )


def _check_repartition_topics(value: StreamsTopologyValue) -> None:
    """Each repartition topic without a partition count is written to, and depends on no loop."""
    dependencies = _writers(value)
    open_topics = {name for name, fixed in _repartition_topics(value).items() if fixed == 0}
    unwritten = [name for name in sorted(open_topics) if name not in dependencies]
    if unwritten:
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
            f"is never used as a sink topic: {_named(unwritten)}"
        )
    _counted(dependencies, dict.fromkeys(open_topics, 0), lambda _: 1)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def same_topology(first: StreamsTopologyValue, second: StreamsTopologyValue) -> bool:
    """Returns whether two topologies mean the same: clients list topics in any order."""
    return first == second or _canonical(first) == _canonical(second)


def _canonical(value: StreamsTopologyValue) -> object:
    return value.epoch, frozenset(
        (
            part.subtopology_id,
            frozenset(part.source_topics),
            frozenset(part.repartition_sink_topics),
            frozenset(_canonical_topic(topic) for topic in part.state_changelog_topics),
            frozenset(_canonical_topic(topic) for topic in part.repartition_source_topics),
            frozenset(copartitioned(part)),
        )
        for part in value.subtopologies
    )


def _canonical_topic(topic: StoredTopicInfo) -> object:
    configs = frozenset((config.key, config.value) for config in topic.topic_configs)
    return topic.name, topic.partitions, topic.replication_factor, configs


# -- what it needs


def copartitioned(part: StoredSubtopology) -> Iterator[frozenset[str]]:
    """Yields the sets of topics that must have the same number of partitions."""
    for group in part.copartition_groups:
        names = [part.source_topics[index] for index in group.source_topics]
        names += [part.repartition_source_topics[index].name for index in group.repartition_source_topics]
        yield frozenset(names)


def required_topics(value: StreamsTopologyValue) -> frozenset[str]:
    """Returns all topics that the application reads, and its internal topics."""
    names: set[str] = set()
    for part in value.subtopologies:
        names.update(part.source_topics)
        names.update(topic.name for topic in part.repartition_source_topics)
        names.update(topic.name for topic in part.state_changelog_topics)
    return frozenset(names)


def named_topics(value: heartbeat.Topology) -> frozenset[str]:
    """Returns all topics that a topology of a request names."""
    names: set[str] = set()
    for part in value.subtopologies:
        names.update(part.source_topics)
        names.update(part.repartition_sink_topics)
        names.update(topic.name for topic in part.repartition_source_topics)
        names.update(topic.name for topic in part.state_changelog_topics)
    return frozenset(names)


def subtopologies_of_topics(value: StreamsTopologyValue) -> dict[str, str]:
    """Returns the subtopology that reads each source topic."""
    return {
        name: part.subtopology_id
        for part in value.subtopologies
        for name in (*part.source_topics, *(topic.name for topic in part.repartition_source_topics))
    }


def configure(value: StreamsTopologyValue, topics: ClusterTopics) -> ConfiguredTopology:
    """Returns the tasks of a topology, or what keeps them from being assigned."""
    try:
        counts = _decided_counts(value, topics)
        internal = {topic.name: topic for topic in _internal_topics(value, counts)}
        missing = _missing(internal, topics)
    except _Unfit as unfit:
        return ConfiguredTopology(subtopologies={}, internal_topics={}, problem=unfit.problem)
    subtopologies = {
        part.subtopology_id: _tasks_of(part, lambda name: _count(name, topics, counts))
        for part in sorted(value.subtopologies, key=lambda part: part.subtopology_id)
    }
    problem = None
    if missing:
        problem = TopologyProblem(
            code=StatusCode.MISSING_INTERNAL_TOPICS,
            detail=f"Internal topics are missing: {_named(topic.name for topic in missing)}",
        )
    return ConfiguredTopology(
        subtopologies=subtopologies, internal_topics=internal, missing=missing, problem=problem
    )


def _tasks_of(part: StoredSubtopology, count: Callable[[str], int]) -> SubtopologyTasks:
    names = (*part.source_topics, *(topic.name for topic in part.repartition_source_topics))
    sources = {name: count(name) for name in sorted(names)}
    return SubtopologyTasks(
        task_count=max(sources.values()),
        is_stateful=bool(part.state_changelog_topics),
        source_topics=sources,
    )


def _count(name: str, topics: ClusterTopics, decided: Mapping[str, int]) -> int:
    return topics.partition_count(name) or decided.get(name, 0)


def _decided_counts(value: StreamsTopologyValue, topics: ClusterTopics) -> dict[str, int]:
    """Returns the partition counts of the internal topics, by name."""
    repartition = _repartition_topics(value)
    absent = {
        name
        for part in value.subtopologies
        for name in part.source_topics
        if name not in repartition and topics.partition_count(name) == 0
    }
    if absent:
        raise _Unfit(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_named(absent)} are missing.")
    counts = _counted(_writers(value), repartition, topics.partition_count)
    fixed = frozenset(name for name, partitions in repartition.items() if partitions != 0)
    for part in value.subtopologies:
        for names in copartitioned(part):
            _enforce(names, counts, fixed, topics)
    for part in value.subtopologies:
        sources = (*part.source_topics, *(topic.name for topic in part.repartition_source_topics))
        largest = max(_count(name, topics, counts) for name in sources)
        for topic in part.state_changelog_topics:
            if topic.name not in part.source_topics:
                counts[topic.name] = largest
    return counts


def _repartition_topics(value: StreamsTopologyValue) -> dict[str, int]:
    """Returns the partition counts that the topology sets for its repartition topics; 0: it sets none."""
    return {
        topic.name: topic.partitions
        for part in value.subtopologies
        for topic in part.repartition_source_topics
    }


def _writers(value: StreamsTopologyValue) -> dict[str, set[str]]:
    """Returns, for each topic that is written to, the sources of the subtopologies that write to it."""
    sources: dict[str, set[str]] = {}
    for part in value.subtopologies:
        read = {*part.source_topics, *(topic.name for topic in part.repartition_source_topics)}
        for name in part.repartition_sink_topics:
            sources.setdefault(name, set()).update(read)
    return sources


def _counted(
    sources: Mapping[str, set[str]], repartition: Mapping[str, int], partition_count: Callable[[str], int]
) -> dict[str, int]:
    """Returns the partition counts of the repartition topics: each is known once those before it are.

    Raises STREAMS_INVALID_TOPOLOGY for a loop.
    """
    counts = {name: partitions for name, partitions in repartition.items() if partitions != 0}
    readers: dict[str, list[str]] = {}
    unknown: dict[str, int] = {}
    for name in repartition.keys() - counts.keys():
        before = [
            source for source in sources.get(name, ()) if source in repartition and source not in counts
        ]
        unknown[name] = len(before)
        for source in before:
            readers.setdefault(source, []).append(name)
    ready = sorted(name for name, open_count in unknown.items() if open_count == 0)
    while ready:
        name = ready.pop()
        del unknown[name]
        counts[name] = max(
            (counts.get(source) or partition_count(source) for source in sources.get(name, ())), default=0
        )
        for reader in readers.get(name, ()):
            unknown[reader] -= 1
            if unknown[reader] == 0:
                ready.append(reader)
    if unknown:
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. "
            f"There may be loops in the topology that cannot be resolved: {_named(unknown)}"
        )
    return counts


def _enforce(
    names: frozenset[str], counts: dict[str, int], fixed: frozenset[str], topics: ClusterTopics
) -> None:
    """Gives the flexible repartition topics of a copartition group the number of partitions that the others have."""
    external = {name: topics.partition_count(name) for name in names if name not in counts}
    set_counts = {name: counts[name] for name in names if name in fixed}
    if external or set_counts:
        decisive = external or set_counts
        if len(set(decisive.values())) > 1:
            raise _Unfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Following topics do not have the same number of partitions: [{_counts_named(decisive)}]",
            )
        number = next(iter(decisive.values()))
    else:
        number = max((counts[name] for name in names), default=0)
    for name in sorted(names & counts.keys()):
        if name in fixed and counts[name] != number:
            raise _Unfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{counts[name]}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{number}] of the source topic.",
            )
        counts[name] = number


def _internal_topics(
    value: StreamsTopologyValue, counts: Mapping[str, int]
) -> Iterator[StreamsInternalTopic]:
    for part in value.subtopologies:
        for topic in part.repartition_source_topics:
            yield _internal(topic, counts[topic.name])
        for topic in part.state_changelog_topics:
            if topic.name in counts:
                yield _internal(topic, counts[topic.name])


def _internal(topic: StoredTopicInfo, partition_count: int) -> StreamsInternalTopic:
    return StreamsInternalTopic(
        name=topic.name,
        partition_count=partition_count,
        replication_factor=topic.replication_factor or _BROKERS_DEFAULT,
        configs={config.key: config.value for config in topic.topic_configs},
    )


def _missing(
    internal: Mapping[str, StreamsInternalTopic], topics: ClusterTopics
) -> tuple[StreamsInternalTopic, ...]:
    missing = []
    for name, topic in internal.items():
        present, expected = topics.partition_count(name), topic.partition_count
        if present == 0:
            missing.append(topic)
        elif present != expected:
            raise _Unfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected}, found {present}",
            )
    return tuple(missing)


def _named(names: Iterable[str]) -> str:
    """Returns some names as text: a status is not as long as a topology."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:_NAMED_MAX])
    rest = len(ordered) - _NAMED_MAX
    return f"{shown} and {rest} additional topics" if rest > 0 else shown


def _counts_named(counts: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name}={counts[name]}" for name in sorted(counts)[:_NAMED_MAX])
    return "{" + shown + "}"
