"""Topics that this broker needs, made by a controller that is another broker: a CreateTopics request like a client's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from odradek.broker.cluster.forwarding import Forwarding
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.cluster.planning import TopicSpec
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import RequestHeader, api_by_name, decode_response, encode_request
from odradek.protocol.messages.topics.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.security.principals import BROKER_ITSELF, Requester

_API: Final = api_by_name("CreateTopics")
_TIMEOUT_MS: Final = 15_000
_SIZE_BYTES: Final = 4


class TopicCreationCluster(Protocol):
    @property
    def forwarding(self) -> Forwarding: ...

    @property
    def image(self) -> ClusterImage: ...


async def create_topics(
    cluster: TopicCreationCluster, wanted: Sequence[TopicSpec]
) -> list[TopicImage | KafkaError] | None:
    """Returns one outcome for each topic, in order; None when no other controller answers."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=new.name,
                num_partitions=new.partition_count,
                replication_factor=new.replication_factor,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in new.configs.items()],
            )
            for new in wanted
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    header = RequestHeader(_API.key, _API.latest_stable, 0, "broker")
    frame = encode_request(header, request)[_SIZE_BYTES:]
    try:
        response = await cluster.forwarding.answer(frame, Requester(BROKER_ITSELF))
    except KafkaError as error:
        return [error.as_outcome()] * len(wanted)
    if response is None:
        return None
    _, created = decode_response(_API.key, _API.latest_stable, b"".join(response)[_SIZE_BYTES:])
    assert isinstance(created, CreateTopicsResponse)
    return [_outcome(cluster.image, topic) for topic in created.topics]


def _outcome(image: ClusterImage, created_topic: CreatableTopicResult) -> TopicImage | KafkaError:
    if created_topic.error_code != ErrorCode.NONE:
        return KafkaError(
            ErrorCode.of(created_topic.error_code),
            created_topic.error_message or f"topic {created_topic.name!r} was not made",
        )
    topic = image.topics.get(created_topic.name)
    if topic is None:
        message = f"topic {created_topic.name!r} was made, but is not known here yet: try again"
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
    return topic
