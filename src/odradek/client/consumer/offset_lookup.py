"""Requests to brokers about offsets: ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import TimedOutError
from odradek.client.network.metadata_snapshot import missing_partition
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_EPOCH, NO_OFFSET, TopicPartition
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.data.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER_REPLICA_ID: Final = -1
GONE_AFTER_S: Final = 5.0
"""The seconds for which brokers must answer that there is no such topic until that is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndTimestamp:
    """An offset, and the timestamp of the record there where a timestamp was asked for."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAnswers:
    """The outcome of an offset lookup: for each partition a result (None: no record that late) or an error."""

    found: dict[TopicPartition, OffsetAndTimestamp | None]
    errors: dict[TopicPartition, KafkaError]  # stored-error: given to the caller of one call


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderEpochEnd:
    """The end of an epoch in a leader's log: the largest epoch up to the requested one, and its end
    offset."""

    leader_epoch: int
    end_offset: int


def left_out_of_answer(tp: TopicPartition) -> KafkaError:
    """Returns the error for a partition that was in the request but not in the answer. Retriable."""
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{tp}: the broker's answer leaves it out")


async def list_leader_offsets(
    cluster: ClusterClient,
    broker: int,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: int,
    timeout_s: float,
) -> OffsetAnswers:
    """Sends one ListOffsets request to one broker. `wanted`: a timestamp, EARLIEST, LATEST or MAX_TIMESTAMP."""
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
    response = await cluster.send(broker, request, ListOffsetsResponse, timeout_s=timeout_s)
    answers = OffsetAnswers(found={}, errors={})
    for topic_response in response.topics:
        for partition in topic_response.partitions:
            tp = TopicPartition(topic_response.name, partition.partition_index)
            code = ErrorCode.of(partition.error_code)
            if code is not ErrorCode.NONE:
                answers.errors[tp] = KafkaError(code, f"{tp}: {code.meaning}")
            elif partition.offset == NO_OFFSET:
                answers.found[tp] = None
            else:
                answers.found[tp] = OffsetAndTimestamp(
                    offset=partition.offset,
                    timestamp_ms=partition.timestamp,
                    leader_epoch=partition.leader_epoch,
                )
    return answers


async def find_offsets(
    cluster: ClusterClient, wanted: Mapping[TopicPartition, int], *, isolation: int, timeout_s: float
) -> OffsetAnswers:
    """Asks the leader of each partition, again where it is worth it; errors are what is left after `timeout_s`.

    A missing topic keeps no other waiting. It is an error once brokers have answered for some seconds that it is absent.
    """
    deadline = cluster.clock.monotonic() + timeout_s
    missing = await _missing_topics(cluster, {tp.topic for tp in wanted}, timeout_s)
    left_s = max(0.0, deadline - cluster.clock.monotonic())
    searches = [
        _OffsetSearch(cluster, isolation).run(some, left_s)
        for some in (
            {tp: timestamp for tp, timestamp in wanted.items() if tp.topic not in missing},
            {tp: timestamp for tp, timestamp in wanted.items() if tp.topic in missing},
        )
        if some
    ]
    answers = OffsetAnswers(found={}, errors={})
    for part in await asyncio.gather(*searches):
        answers.found.update(part.found)
        answers.errors.update(part.errors)
    return answers


async def _missing_topics(cluster: ClusterClient, topics: set[str], timeout_s: float) -> set[str]:
    """Returns the topics that a first look at the metadata does not find."""
    metadata = cluster.metadata
    metadata.want(topics)
    if any(topic not in metadata.image.topics for topic in topics):
        with suppress(KafkaError):  # the search of these topics reports what is wrong
            await metadata.refresh(min(timeout_s, GONE_AFTER_S))
    return {topic for topic in topics if topic not in metadata.image.topics}


class _OffsetSearch:
    """The partitions still to be answered for, and what was answered."""

    def __init__(self, cluster: ClusterClient, isolation: int) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self.open: dict[TopicPartition, int] = {}
        self.result = OffsetAnswers(found={}, errors={})

    async def run(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> OffsetAnswers:
        """Asks until all is answered, or the time is over."""
        clock = self._cluster.clock
        deadline = clock.monotonic() + timeout_s
        await self.begin(wanted, timeout_s)
        try:
            await self._cluster.retrying("looking up offsets", deadline - clock.monotonic(), self.attempt)
        except TimedOutError as error:
            for tp in self.open:
                self.result.errors.setdefault(tp, error.as_outcome())
        return self.result

    async def begin(self, wanted: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Get the topics into the image. What cannot be found is an error, and not asked about."""
        clock, metadata = self._cluster.clock, self._cluster.metadata
        deadline = clock.monotonic() + timeout_s
        topics = list(dict.fromkeys(tp.topic for tp in wanted))
        outcomes = await asyncio.gather(*(self._find_topic(topic, timeout_s) for topic in topics))
        problems = {
            topic: problem for topic, problem in zip(topics, outcomes, strict=True) if problem is not None
        }
        if any(tp.topic not in problems and metadata.image.partition(tp) is None for tp in wanted):
            # The topic may have grown since the image was made.
            with suppress(KafkaError):
                await metadata.refresh(max(0.0, deadline - clock.monotonic()))
        for tp, timestamp in wanted.items():
            if tp.topic in problems:
                self.result.errors[tp] = problems[tp.topic]
            elif metadata.image.partition(tp) is None:
                self.result.errors[tp] = missing_partition(tp, metadata.image, timeout_s)
            else:
                self.open[tp] = timestamp

    async def _find_topic(self, topic: str, timeout_s: float) -> KafkaError | None:
        """Waits until the topic is in the image. Returns the reason if it does not come."""
        try:
            await self._cluster.metadata.topic(topic, timeout_s, gone_after_s=GONE_AFTER_S)
        except KafkaError as error:
            return error.as_outcome()
        return None

    async def attempt(self, left_s: float) -> None:
        """Asks about open partitions; raises a retriable error if some are still open."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for tp, timestamp in self.open.items():
            leader = self._cluster.image.leader(tp)
            if leader is None:
                self.result.errors[tp] = KafkaError(
                    ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at present"
                )
            else:
                by_leader.setdefault(leader, {})[tp] = timestamp
        for leader, questions in by_leader.items():
            self._note(
                await list_leader_offsets(
                    self._cluster, leader, questions, isolation=self._isolation, timeout_s=left_s
                )
            )
        await self._give_up_missing(left_s)
        for tp in self.open:
            raise self.result.errors.get(tp) or left_out_of_answer(tp)

    async def _give_up_missing(self, left_s: float) -> None:
        """Closes the partitions that the cluster no longer has: their topic was deleted, or made again with fewer."""
        image = self._cluster.metadata.image
        missing = [tp for tp in self.open if image.partition(tp) is None]
        for topic in dict.fromkeys(tp.topic for tp in missing):
            problem = await self._find_topic(topic, left_s)
            image = self._cluster.metadata.image
            for tp in missing:
                if tp.topic == topic and image.partition(tp) is None:
                    self.result.errors[tp] = problem or missing_partition(tp, image, left_s)
                    del self.open[tp]

    def _note(self, answers: OffsetAnswers) -> None:
        self.result.found.update(answers.found)
        self.result.errors.update(answers.errors)
        for tp in answers.found:
            self.result.errors.pop(tp, None)
            self.open.pop(tp, None)
        for tp, error in answers.errors.items():
            if not error.retriable:
                self.open.pop(tp, None)


async def list_epoch_ends(
    cluster: ClusterClient, broker: int, epochs: Mapping[TopicPartition, int], *, timeout_s: float
) -> tuple[dict[TopicPartition, LeaderEpochEnd], dict[TopicPartition, KafkaError]]:
    """Sends one OffsetForLeaderEpoch request to one broker; returns (answers, errors)."""
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
    response = await cluster.send(broker, request, OffsetForLeaderEpochResponse, timeout_s=timeout_s)
    ends: dict[TopicPartition, LeaderEpochEnd] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    for topic_response in response.topics:
        for partition in topic_response.partitions:
            tp = TopicPartition(topic_response.topic, partition.partition)
            code = ErrorCode.of(partition.error_code)
            if code is ErrorCode.NONE:
                ends[tp] = LeaderEpochEnd(
                    leader_epoch=partition.leader_epoch, end_offset=partition.end_offset
                )
            else:
                errors[tp] = KafkaError(code, f"{tp}: {code.meaning}")
    return ends, errors
