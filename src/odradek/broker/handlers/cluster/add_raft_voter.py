"""AddRaftVoter (80). Versions 0-1: a voter joins the quorum (KIP-853).

The quorum is the controller alone, and stays so: DUPLICATE_VOTER for the controller, UNSUPPORTED_VERSION for all others.
"""

from __future__ import annotations

from odradek.broker.cluster.features import KRAFT_VERSION, level_of
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.cluster.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


def handle(
    broker: BrokerContext, context: RequestContext, request: AddRaftVoterRequest
) -> AddRaftVoterResponse:
    image = broker.image
    if request.cluster_id is not None and request.cluster_id != image.cluster_id:
        return _refused(ErrorCode.INCONSISTENT_CLUSTER_ID, "the request is for another cluster")
    if level_of(image, KRAFT_VERSION) >= 1 and request.voter_id == image.controller_id:
        return _refused(
            ErrorCode.DUPLICATE_VOTER,
            f"The voter id for {request.voter_id} is already part of the set of voters",
        )
    return _refused(
        ErrorCode.UNSUPPORTED_VERSION,
        "Cluster doesn't support adding voter: the controller is a quorum of one, chosen among the brokers",
    )


def _refused(code: ErrorCode, message: str) -> AddRaftVoterResponse:
    return AddRaftVoterResponse(error_code=code, error_message=message)


SERVED = ApiHandler(80, handle, is_quick=True)
