"""FindCoordinator (key 10): which broker keeps a group, a transactional id, or a share-group partition.

`key_type` is 0 for groups, 1 for transactions, 2 for share-group state, whose keys read
`group:topic-id:partition`. librdkafka also takes the presence of this API as a sign that the broker knows
lz4.

Versions
     1  key type; response: throttle time, error message (KIP-98)
     2  quota violations are answered first and throttled afterwards (KIP-219)
     3  flexible
     4  several keys at once, answered in `coordinators` (KIP-699)
     5  TRANSACTION_ABORTABLE (KIP-890)
     6  share groups (KIP-932)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Message, api=10, versions="0-6", flexible="3+"):
    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class Coordinator(Struct):
    key: str = string("4+")
    node_id: int = int32("4+")
    host: str = string("4+")
    port: int = int32("4+")
    error_code: int = int16("4+")
    error_message: str | None = string("4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
