"""IdentifyBroker (10002). Version 0: return this process's broker id and incarnation, registered or not yet
(`broker/cluster/previous_incarnation.py`)."""

from __future__ import annotations

from odradek.broker.cluster.previous_incarnation import IDENTIFY_BROKER
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.protocol.messages.cluster.identify_broker import IdentifyBrokerRequest, IdentifyBrokerResponse


def handle(
    broker: BrokerContext, context: RequestContext, request: IdentifyBrokerRequest
) -> IdentifyBrokerResponse:
    return IdentifyBrokerResponse(
        broker_id=broker.config.server.node_id,
        cluster_id=broker.image.cluster_id,
        incarnation=broker.cluster.incarnation,
    )


SERVED = ApiHandler(IDENTIFY_BROKER, handle)
