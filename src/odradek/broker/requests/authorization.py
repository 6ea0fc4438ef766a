"""Authorization without an authorizer: clients may do everything but what only brokers may request.

- The operations that a client may do, as the bit field that Metadata, DescribeCluster and DescribeGroups carry (KIP-430): all
  that the kind of resource knows, as with Kafka.
- The ACL APIs answer SECURITY_DISABLED (`access/authorizers.py`).
- Kafka lets brokers alone ask some requests: by ClusterAction on the cluster. Nothing here tells a broker from a client but the
  listener: with `inter.broker.listener.name` these requests are served there and nowhere else, and the network decides who
  reaches its address. WriteTxnMarkers is not among them: administrators end hanging transactions with it, from anywhere.
- `control.plane.listener.name` serves what brokers ask of the controller and nothing else (KIP-291).
"""

from __future__ import annotations

from typing import Any, Final

from odradek.model.errors import ErrorCode
from odradek.protocol import Api, Message, api_by_name
from odradek.protocol.acls import AclOperation
from odradek.security.principals import ANONYMOUS, Requester

NOT_ASKED: Final = -(2**31)


def _bits(*names: str) -> int:
    return sum(1 << AclOperation[name] for name in names)


TOPIC_OPERATIONS: Final = _bits(
    "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"
)
CLUSTER_OPERATIONS: Final = _bits(
    "CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"
)
GROUP_OPERATIONS: Final = _bits("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")


_FETCH: Final = 1
_SHARE_STATE: Final = frozenset({83, 84, 85, 86, 87})
"""Their answers have no place for an error of the whole request."""
_CONTROL_PLANE: Final = frozenset(
    api_by_name(name).key
    for name in (
        *("ApiVersions", "SaslHandshake", "SaslAuthenticate"),
        *("AlterPartition", "AllocateProducerIds", "ClusterSync", "Forward"),
    )
)


def is_between_brokers(api: Api, request: Any) -> bool:
    """Tells whether a request comes from a broker: an internal API, or a follower's Fetch."""
    if api.internal:
        return True
    return api.key == _FETCH and (request.replica_id >= 0 or request.replica_state.replica_id >= 0)


def is_of_control_plane(api_key: int) -> bool:
    """Tells whether a request is served at the control plane: it is for the controller, or it comes before such a request."""
    return api_key in _CONTROL_PLANE


def speaks_for_others(requester: Requester, *, is_gated: bool) -> bool:
    """Tells whether a forwarded request counts as one of the client that it names.

    With an authorizer only who may do ClusterAction comes so far, and it must not lend its own rights to a client. Else: not
    from a client without a name.
    """
    return is_gated or requester.principal != ANONYMOUS


def refusal(api: Api) -> Message | None:
    """Returns the refusing answer; None when no answer can express it."""
    if api.key in _SHARE_STATE:
        return None
    return api.response.of_values({"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
