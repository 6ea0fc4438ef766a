"""What only brokers may ask, and the answer to anybody else: Kafka lets them by ClusterAction on the cluster.

There is no authorizer that could tell a broker from a client. What can be told is the listener: with
`inter.broker.listener.name` these requests are served there and nowhere else, and who reaches its address is the network's
affair. WriteTxnMarkers is not among them: administrators end hanging transactions with it, from anywhere.
"""

from __future__ import annotations

from typing import Any, Final

from odradek.model.errors import ErrorCode
from odradek.protocol import Api, Message

_FETCH: Final = 1
_SHARE_STATE: Final = frozenset({83, 84, 85, 86, 87})
"""Their answers have no place for an error of the whole request."""


def is_between_brokers(api: Api, request: Any) -> bool:
    """Whether a request is one of a broker: of an internal API, or a follower's Fetch."""
    if api.internal:
        return True
    return api.key == _FETCH and (request.replica_id >= 0 or request.replica_state.replica_id >= 0)


def refusal(api: Api) -> Message | None:
    """None when no answer can say it."""
    if api.key in _SHARE_STATE:
        return None
    refused: Any = api.response
    answer: Message = refused(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return answer
