"""CreatePartitions (key 37): raise the number of partitions of topics (KIP-195).

`count` is the new total. `assignments` holds one entry for each *added* partition, or is null.

Versions
     1  quota violations are answered first and throttled afterwards (KIP-219)
     2  flexible
     3  THROTTLING_QUOTA_EXCEEDED (KIP-599)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(int32, "0+")


class CreatePartitionsTopic(Struct):
    name: str = string("0+")
    count: int = int32("0+")
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, "0+", nullable="0+"
    )


class CreatePartitionsRequest(Message, api=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


class CreatePartitionsTopicResult(Struct):
    name: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class CreatePartitionsResponse(Message, api=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")
