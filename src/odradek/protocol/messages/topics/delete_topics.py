"""DeleteTopics (key 20): delete topics by name or id.

Versions
     1  response: throttle time
     2  quota violations are answered first and throttled afterwards (KIP-219)
     3  TOPIC_DELETION_DISABLED in place of INVALID_REQUEST
     4  flexible
     5  response: error message; THROTTLING_QUOTA_EXCEEDED (KIP-599)
     6  `topics` with name or id in place of `topic_names` (KIP-516)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: UUID = uuid("6+")


class DeleteTopicsRequest(Message, api=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Struct):
    name: str | None = string("0+", nullable="6+")
    topic_id: UUID = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")
