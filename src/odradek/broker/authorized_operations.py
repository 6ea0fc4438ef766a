"""The operations a client may do, as the bit field that Metadata, DescribeCluster and DescribeGroups carry (KIP-430).

Without an authorizer everything is allowed, and Kafka lists all operations that the kind of resource knows.
"""

from __future__ import annotations

from typing import Final

from odradek.protocol.acls import AclOperation

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
