"""RemoveRaftVoter (81). Version 0: a voter leaves the quorum (KIP-853).

The quorum is the controller alone, and stays so. It answers as Kafka does for a quorum of one:
UNSUPPORTED_VERSION while `kraft.version` is at 0, then VOTER_NOT_FOUND, as the last voter cannot leave.
"""

from __future__ import annotations

from odradek.broker.cluster.features import KRAFT_VERSION, level_of
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.cluster.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)


def handle(
    broker: BrokerContext, context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    image = broker.image
    if request.cluster_id is not None and request.cluster_id != image.cluster_id:
        return _refused(ErrorCode.INCONSISTENT_CLUSTER_ID, "the request is for another cluster")
    if level_of(image, KRAFT_VERSION) < 1:
        return _refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "Cluster doesn't support removing voter because the kraft.version feature is 0: the controller is a quorum of one, "
            "chosen among the brokers",
        )
    return _refused(
        ErrorCode.VOTER_NOT_FOUND,
        f"Cannot remove voter {request.voter_id} from the set of voters: it is the controller alone, chosen among the brokers",
    )


def _refused(code: ErrorCode, message: str) -> RemoveRaftVoterResponse:
    return RemoveRaftVoterResponse(error_code=code, error_message=message)


SERVED = ApiHandler(81, handle, is_quick=True)
