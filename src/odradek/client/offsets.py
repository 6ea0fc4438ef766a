"""Asking brokers about offsets: ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.errors import TimedOutError
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER_REPLICA_ID: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndTimestamp:
    """An offset, and the timestamp of the record there where a timestamp was asked for."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswers:
    """Per partition either a result (None: no record that late) or an error."""

    found: dict[TopicPartition, OffsetAndTimestamp | None]
    errors: dict[TopicPartition, KafkaError]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Where an epoch ends in a leader's log: the largest epoch up to the one asked for, and the offset behind it."""

    leader_epoch: int
    end_offset: int


async def ask_offsets(
    cluster: Cluster, broker: int, wanted: Mapping[TopicPartition, int], *, isolation: int, timeout_s: float
) -> OffsetAnswers:
    """One ListOffsets request to one broker. `wanted`: a timestamp, EARLIEST, LATEST or MAX_TIMESTAMP."""
    topics: dict[str, ListOffsetsTopic] = {}
    for tp, timestamp in wanted.items():
        topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
        known = cluster.image.partition(tp)
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=tp.partition,
                current_leader_epoch=known.leader_epoch if known is not None else NO_EPOCH,
                timestamp=timestamp,
            )
        )
    request = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=isolation,
        topics=list(topics.values()),
        timeout_ms=int(timeout_s * 1000),
    )
    told = await cluster.ask(broker, request, ListOffsetsResponse, timeout_s=timeout_s)
    answers = OffsetAnswers(found={}, errors={})
    for topic_told in told.topics:
        for each in topic_told.partitions:
            tp = TopicPartition(topic_told.name, each.partition_index)
            code = ErrorCode.of(each.error_code)
            if code is not ErrorCode.NONE:
                answers.errors[tp] = KafkaError(code, f"{tp}: {code.meaning}")
            elif each.offset == NO_OFFSET:
                answers.found[tp] = None
            else:
                answers.found[tp] = OffsetAndTimestamp(
                    offset=each.offset, timestamp_ms=each.timestamp, leader_epoch=each.leader_epoch
                )
    return answers


async def find_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, isolation: int, timeout_s: float
) -> OffsetAnswers:
    """Ask the leader of each partition, again where it is worth it; errors are what is left after `timeout_s`."""
    result = OffsetAnswers(found={}, errors={})
    await _know_topics(cluster, wanted, result, timeout_s)

    async def attempt(left_s: float) -> None:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, timestamp in wanted.items():
            if tp not in result.found and _worth_asking(result.errors.get(tp)):
                leader = cluster.image.leader(tp)
                if leader is None:
                    result.errors[tp] = KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at present"
                    )
                else:
                    by_leader.setdefault(leader, {})[tp] = timestamp
        for leader, questions in by_leader.items():
            answers = await ask_offsets(cluster, leader, questions, isolation=isolation, timeout_s=left_s)
            result.found.update(answers.found)
            for tp in answers.found:
                result.errors.pop(tp, None)
            result.errors.update(answers.errors)
        again = [error for error in result.errors.values() if error.retriable]
        if again:
            raise again[0]

    try:
        await cluster.retrying("looking up offsets", timeout_s, attempt)
    except TimedOutError as error:
        for tp in wanted:
            if tp not in result.found:
                result.errors.setdefault(tp, error)
    return result


def _worth_asking(error: KafkaError | None) -> bool:
    return error is None or error.retriable


async def _know_topics(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], result: OffsetAnswers, timeout_s: float
) -> None:
    """Get the topics into the image; what cannot be found is an error that is not asked about again."""
    deadline = cluster.clock.monotonic() + timeout_s
    problems: dict[str, KafkaError] = {}
    counts: dict[str, int] = {}
    for topic in dict.fromkeys(tp.topic for tp in wanted):
        try:
            known = await cluster.metadata.topic(topic, max(0.0, deadline - cluster.clock.monotonic()))
            counts[topic] = len(known.partitions)
        except KafkaError as error:
            problems[topic] = error
    for tp in wanted:
        if tp.topic in problems:
            result.errors[tp] = problems[tp.topic]
        elif not 0 <= tp.partition < counts[tp.topic]:
            result.errors[tp] = NoSuchPartitionError(tp, counts[tp.topic])


class NoSuchPartitionError(KafkaError):
    """The topic exists and has no such partition. Not worth a retry, unlike the same code from a broker."""

    def __init__(self, tp: TopicPartition, partition_count: int) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {tp.topic!r} has partitions 0 to {partition_count - 1}, not {tp.partition}",
        )

    @property
    def retriable(self) -> bool:
        return False


async def ask_epoch_ends(
    cluster: Cluster, broker: int, epochs: Mapping[TopicPartition, int], *, timeout_s: float
) -> tuple[dict[TopicPartition, EpochEnd], dict[TopicPartition, KafkaError]]:
    """One OffsetForLeaderEpoch request to one broker: (answers, errors)."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for tp, epoch in epochs.items():
        known = cluster.image.partition(tp)
        topic = topics.setdefault(tp.topic, OffsetForLeaderTopic(topic=tp.topic, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=tp.partition,
                current_leader_epoch=known.leader_epoch if known is not None else NO_EPOCH,
                leader_epoch=epoch,
            )
        )
    request = OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values()))
    told = await cluster.ask(broker, request, OffsetForLeaderEpochResponse, timeout_s=timeout_s)
    ends: dict[TopicPartition, EpochEnd] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic_told in told.topics:
        for each in topic_told.partitions:
            tp = TopicPartition(topic_told.topic, each.partition)
            code = ErrorCode.of(each.error_code)
            if code is ErrorCode.NONE:
                ends[tp] = EpochEnd(leader_epoch=each.leader_epoch, end_offset=each.end_offset)
            else:
                errors[tp] = KafkaError(code, f"{tp}: {code.meaning}")
    return ends, errors
