"""IdentifyBroker (10002). Version 0: say which broker this process is, registered or not yet
(`broker/cluster/former_self.py`)."""

from __future__ import annotations

from odradek.broker.cluster.former_self import IDENTIFY_BROKER
from odradek.broker.context import Circumstances, Parts, Served
from odradek.protocol.messages.cluster.identify_broker import IdentifyBrokerRequest, IdentifyBrokerResponse


def handle(
    parts: Parts, circumstances: Circumstances, request: IdentifyBrokerRequest
) -> IdentifyBrokerResponse:
    return IdentifyBrokerResponse(
        broker_id=parts.config.server.node_id,
        cluster_id=parts.image.cluster_id,
        incarnation=parts.cluster.incarnation,
    )


SERVED = Served(IDENTIFY_BROKER, handle)
