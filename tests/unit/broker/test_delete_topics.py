"""DeleteTopics at a controller whose own broker has not applied yet what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from odradek.broker.handlers.topics.delete_topics import handle
from odradek.broker.requests.context import RequestContext
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.runtime.real import real_runtime
from odradek.runtime.turns import Turns
from odradek.security.quotas import Quotas

OLD, NEW = (TopicImage(name="t", topic_id=UUID(int=number), partitions=()) for number in (1, 2))
EMPTY = ClusterImage(
    version=1, cluster_id="c", controller_id=BrokerId(1), brokers=(), topics={}, topics_by_id={}
)


class Controller:
    """It knows of the new topic."""

    latest = EMPTY.with_topics([NEW])

    def __init__(self) -> None:
        self.deleted: list[UUID | None] = []

    async def delete_topics(self, wanted: Sequence[tuple[str, UUID | None]]) -> list[TopicImage | KafkaError]:
        self.deleted += [topic_id for _, topic_id in wanted]
        return [self.latest.topics[name] for name, _ in wanted]


@pytest.fixture
def controller() -> Controller:
    return Controller()


async def code_of_deleting(topic_id: UUID, controller: Controller) -> int:
    broker = SimpleNamespace(
        config=BrokerConfig(),
        image=EMPTY.with_topics([OLD]),
        controller=controller,
        quotas=Quotas(),
        runtime=(runtime := real_runtime()),
        turns=Turns(runtime.clock.monotonic),
    )
    context = RequestContext(connection=cast(Any, None), api_version=6, client_id="test")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=1)
    response = await handle(cast(Any, broker), context, request)
    return response.responses[0].error_code


async def test_a_topic_that_is_committed_is_found_by_its_id(controller: Controller) -> None:
    assert await code_of_deleting(NEW.topic_id, controller) == ErrorCode.NONE
    assert controller.deleted == [NEW.topic_id]


async def test_the_id_of_a_topic_that_was_does_not_delete_the_next_one_of_its_name(
    controller: Controller,
) -> None:
    assert await code_of_deleting(OLD.topic_id, controller) == ErrorCode.UNKNOWN_TOPIC_ID
    assert not controller.deleted
