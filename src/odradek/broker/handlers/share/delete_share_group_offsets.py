"""DeleteShareGroupOffsets (92): a share group without members has never read these topics (KIP-932). Version 0."""

from __future__ import annotations

from odradek.broker.handlers.share_deletion import forget_topic
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID
from odradek.protocol.messages.share.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    try:
        await broker.groups.check_share_unused(request.group_id)
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    turn = broker.turns.begin()
    responses = []
    for name in dict.fromkeys(topic.topic_name for topic in request.topics):
        await turn.step()
        responses.append(await _topic(broker, request.group_id, name))
    return DeleteShareGroupOffsetsResponse(responses=responses)


async def _topic(broker: BrokerContext, group_id: str, name: str) -> DeleteShareGroupOffsetsResponseTopic:
    image = broker.image.topics.get(name)
    if image is None:
        message = f"there is no topic {name!r}"
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=ZERO_UUID,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=message,
        )
    response = DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=image.topic_id)
    try:
        await forget_topic(broker, group_id, image.topic_id)
    except KafkaError as error:
        return response.replace(error_code=error.code, error_message=error.message)
    return response


SERVED = ApiHandler(92, handle)
