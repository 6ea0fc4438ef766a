"""Metadata (3): brokers, topics, who leads what.

Versions 0-13: topic ids from v10, authorised operations from v8 (for the cluster only to v10), a top-level error from v13.
A missing topic is created when client and broker both allow it; it can be used at once. A leader that is known to be dead is
not named, for a client that learns of one may believe it for a second (`broker/cluster/failure_detector.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from odradek.broker.requests.authorization import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.image import INTERNAL_TOPICS, NO_LEADER, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, BrokerId, TopicPartition, check_topic_name
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.runtime.turns import slices

_SINCE_NULL_IS_ALL = 1
_SINCE_CREATION_FLAG = 4
_SINCE_TOPIC_IDS = 12
"""The field is there from version 10 on, but only to be left empty."""
_FEW_TOPICS = 32
_FEW_PARTITIONS = 100
"""Answers about more topics, or about topics of more partitions, are made in turns."""
_ROUNDS = 3
"""Rounds of the event loop: in the first all sockets are read, in the second asyncio reports a lost
connection."""


class _Shape(NamedTuple):
    """The parts of the response that are the same for every topic."""

    operations: bool
    alive: frozenset[BrokerId]


def handle(
    broker: BrokerContext, context: RequestContext, request: MetadataRequest
) -> MetadataResponse | Awaitable[MetadataResponse]:
    if len(request.topics or ()) > _FEW_TOPICS:
        return _answer_many(broker, context, request)
    missing = [name for name in _creatable(broker, context, request) if _is_to_create(broker, name)]
    if missing:
        return _create_then_answer(broker, context, request, missing)
    if broker.cluster.is_undecided or len(broker.image.brokers) > 1:
        return _answer_when_decided(broker, context, request)
    if _is_long(broker, context, request):
        return _answer_in_turns(broker, context, request, {})
    return _answer(broker, context, request, {})


async def _answer_many(
    broker: BrokerContext, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    turn = broker.turns.begin()
    missing = []
    for name in _creatable(broker, context, request):
        await turn.step()
        if _is_to_create(broker, name):
            missing.append(name)
    if missing:
        return await _create_then_answer(broker, context, request, missing)
    if broker.cluster.is_undecided or len(broker.image.brokers) > 1:
        return await _answer_when_decided(broker, context, request)
    return await _answer_in_turns(broker, context, request, {})


async def _answer_when_decided(
    broker: BrokerContext, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    """Answers after a moment: the news that a leader died may have come together with the request of the first client."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
    await broker.cluster.decision()
    return await _settled(broker, context, request, {})


async def _settled(
    broker: BrokerContext,
    context: RequestContext,
    request: MetadataRequest,
    errors: dict[str, ErrorCode],
) -> MetadataResponse:
    if _is_long(broker, context, request):
        return await _answer_in_turns(broker, context, request, errors)
    return _answer(broker, context, request, errors)


async def _create_then_answer(
    broker: BrokerContext, context: RequestContext, request: MetadataRequest, names: list[str]
) -> MetadataResponse:
    turn = broker.turns.begin()
    errors: dict[str, ErrorCode] = {}
    for some in slices(names):
        await turn.step()
        outcomes = await broker.cluster.create_topics([TopicSpec(name=name) for name in some])
        errors |= {
            name: outcome.code
            for name, outcome in zip(some, outcomes, strict=True)
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }
    return await _settled(broker, context, request, errors)


def _creatable(broker: BrokerContext, context: RequestContext, request: MetadataRequest) -> Iterable[str]:
    """Returns the names of topics that the request may create if they do not exist."""
    if not broker.config.topics.auto_create_topics_enable or not request.topics:
        return ()
    if context.api_version >= _SINCE_CREATION_FLAG and not request.allow_auto_topic_creation:
        return ()
    return dict.fromkeys(topic.name for topic in request.topics if topic.name)


def _is_to_create(broker: BrokerContext, name: str) -> bool:
    return name not in broker.image.topics and name not in INTERNAL_TOPICS and is_valid_name(name)


def _answer(
    broker: BrokerContext,
    context: RequestContext,
    request: MetadataRequest,
    errors: dict[str, ErrorCode],
) -> MetadataResponse:
    alive = alive_brokers(broker)
    shape = _Shape(request.include_topic_authorized_operations, alive)
    topics = [
        _found(broker, shape, topic) if isinstance(topic, TopicImage) else topic
        for topic in _selected(broker.image, context, request, errors)
    ]
    return _response(broker, context, request, topics)


def _is_long(broker: BrokerContext, context: RequestContext, request: MetadataRequest) -> bool:
    """Tells whether the answer could delay others."""
    wanted = request.topics
    topics = broker.image.topics
    if _wants_all(context, wanted):
        return len(topics) > _FEW_TOPICS or any(
            len(topic_image.partitions) > _FEW_PARTITIONS for topic_image in topics.values()
        )
    assert wanted is not None
    if len(wanted) > _FEW_TOPICS:
        return True
    for request_topic in wanted:  # any() would cost each request a generator
        topic = topics.get(request_topic.name or "")
        if topic is not None and len(topic.partitions) > _FEW_PARTITIONS:
            return True
    return False


async def _answer_in_turns(
    broker: BrokerContext,
    context: RequestContext,
    request: MetadataRequest,
    errors: dict[str, ErrorCode],
) -> MetadataResponse:
    turn = broker.turns.begin()
    image = broker.image
    selected: list[TopicImage | MetadataResponseTopic] = list(image.topics.values())
    if not _wants_all(context, request.topics):
        wanted: dict[tuple[str | None, UUID], MetadataRequestTopic] = {}
        for request_topic in request.topics or ():
            await turn.step()
            wanted[request_topic.name, request_topic.topic_id] = request_topic
        selected = await turn.map(lambda topic: _one(image, topic, errors), wanted.values())
    shape = _Shape(request.include_topic_authorized_operations, alive_brokers(broker))
    topics = []
    for topic in selected:
        await turn.step()
        if not isinstance(topic, TopicImage):
            topics.append(topic)
        elif len(topic.partitions) <= _FEW_PARTITIONS:
            topics.append(_found(broker, shape, topic))
        else:
            indexed = enumerate(topic.partitions)
            partitions = await turn.map(partial(_indexed_partition, broker, topic, shape), indexed)
            topics.append(_of_topic(shape, topic, partitions))
    return _response(broker, context, request, topics)


def _response(
    broker: BrokerContext,
    context: RequestContext,
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    image = broker.image
    if context.api_version < _SINCE_TOPIC_IDS and not all(map(_is_named, request.topics or ())):
        return MetadataResponse(topics=list(map(_refused_by_version, request.topics or ())))
    brokers = []
    for node in broker.cluster.named_brokers:
        address = context.address_of(node)
        if address is not None:
            host, port = address
            brokers.append(
                MetadataResponseBroker(node_id=node.broker_id, host=host, port=port, rack=node.rack)
            )
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
    return MetadataResponse(
        brokers=brokers,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        topics=topics,
        cluster_authorized_operations=operations,
    )


def _selected(
    image: ClusterImage, context: RequestContext, request: MetadataRequest, errors: dict[str, ErrorCode]
) -> Iterable[TopicImage | MetadataResponseTopic]:
    wanted = request.topics
    if _wants_all(context, wanted):
        return image.topics.values()
    return [_one(image, topic, errors) for topic in _unique(wanted or ())]


def _wants_all(context: RequestContext, wanted: list[MetadataRequestTopic] | None) -> bool:
    return wanted is None or (not wanted and context.api_version < _SINCE_NULL_IS_ALL)


def _unique(wanted: Iterable[MetadataRequestTopic]) -> Iterable[MetadataRequestTopic]:
    return {(topic.name, topic.topic_id): topic for topic in wanted}.values()


def _is_named(topic: MetadataRequestTopic) -> bool:
    return topic.name is not None and topic.topic_id == ZERO_UUID


def _refused_by_version(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id
    )


def _one(
    image: ClusterImage, wanted: MetadataRequestTopic, errors: dict[str, ErrorCode]
) -> TopicImage | MetadataResponseTopic:
    if wanted.topic_id != ZERO_UUID:
        topic = image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=wanted.name, topic_id=wanted.topic_id
            )
        return topic
    name = wanted.name or ""
    topic = image.topics.get(name)
    if topic is not None:
        return topic
    if name in errors:
        code = errors[name]
    else:
        code = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    return MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)


def _found(broker: BrokerContext, shape: _Shape, topic: TopicImage) -> MetadataResponseTopic:
    partitions = [
        _partition(broker, topic, index, image, shape.alive) for index, image in enumerate(topic.partitions)
    ]
    return _of_topic(shape, topic, partitions)


def _of_topic(
    shape: _Shape, topic: TopicImage, partitions: list[MetadataResponsePartition]
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS if shape.operations else NOT_ASKED,
    )


def leader_and_offline(
    broker: BrokerContext, topic: TopicImage, index: int, alive: frozenset[BrokerId]
) -> tuple[BrokerId, list[int]]:
    """Returns the partition's leader, if it has one, and the replicas that cannot be used."""
    image = topic.partitions[index]
    offline: list[int] = [replica for replica in image.replicas if replica not in alive]
    if broker.replicas.is_offline(TopicPartition(topic.name, index)):
        offline.append(broker.config.server.node_id)
    return (NO_LEADER if image.leader in offline else image.leader), offline


def alive_brokers(broker: BrokerContext) -> frozenset[BrokerId]:
    return frozenset(node.broker_id for node in broker.image.brokers) - broker.cluster.dead


def _partition(
    broker: BrokerContext, topic: TopicImage, index: int, image: PartitionImage, alive: frozenset[BrokerId]
) -> MetadataResponsePartition:
    leader, offline = leader_and_offline(broker, topic, index, alive)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=image.leader_epoch,
        replica_nodes=list(image.replicas),
        isr_nodes=list(image.isr),
        offline_replicas=offline,
    )


def _indexed_partition(
    broker: BrokerContext, topic: TopicImage, shape: _Shape, indexed: tuple[int, PartitionImage]
) -> MetadataResponsePartition:
    return _partition(broker, topic, *indexed, shape.alive)


def is_valid_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


SERVED = ApiHandler(3, handle)
