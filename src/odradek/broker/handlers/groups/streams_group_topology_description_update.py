"""StreamsGroupTopologyDescriptionUpdate (93): a member describes its topology (KIP-1331). Version 0.

Kafka passes descriptions to a plug-in, and answers UNSUPPORTED_VERSION without one. There are no plug-ins here, and heartbeats
never ask for a description, so no client sends one unasked.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.groups.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)


def handle(
    broker: BrokerContext, context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="The broker has no streams group topology description plugin configured.",
    )


SERVED = ApiHandler(93, handle)
