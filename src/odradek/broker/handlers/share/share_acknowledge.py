"""ShareAcknowledge (79): accept, release or reject acquired records (KIP-932). Versions 1-2; v2 renews locks (KIP-1222).

Answered when it is durable. It uses the session of ShareFetch, which alone opens one; epoch -1 closes it and
releases the records that the member did not acknowledge.
"""

from __future__ import annotations

from odradek.broker.handlers.share_acknowledging import (
    AcknowledgementOutcome,
    AcknowledgementTask,
    ReadPartition,
    acknowledge,
    close_session,
    lock_ms,
    member_of,
    session_of,
)
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.sessions.share_sessions import CLOSING
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

_SINCE_RENEWAL = 2


async def handle(
    broker: BrokerContext, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    try:
        key = member_of(
            broker, AcknowledgementTask(request.group_id, request.member_id, request.share_session_epoch)
        )
        session_of(broker, key, request.share_session_epoch, context.connection)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    acknowledgements = [
        ((topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
        for topic in request.topics
        for partition in topic.partitions
    ]
    renews = context.api_version >= _SINCE_RENEWAL and request.is_renew_ack
    verdicts = await acknowledge(broker, key, acknowledgements, renews=renews, access=context.access)
    if request.share_session_epoch == CLOSING:
        await close_session(broker, key)
    response = ShareAcknowledgeResponse(responses=_topic_responses(verdicts))
    if context.api_version < _SINCE_RENEWAL:
        return response
    return response.replace(acquisition_lock_timeout_ms=lock_ms(broker, key.group_id))


def _topic_responses(
    verdicts: dict[ReadPartition, AcknowledgementOutcome],
) -> list[ShareAcknowledgeTopicResponse]:
    topics: dict[object, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), verdict in verdicts.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
        message = verdict.message if verdict.code != ErrorCode.NONE else None
        topic.partitions.append(
            PartitionData(partition_index=index, error_code=verdict.code, error_message=message)
        )
    return list(topics.values())


SERVED = ApiHandler(79, handle)
