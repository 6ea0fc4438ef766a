"""ListPartitionReassignments (46). Version 0: on one broker there are none, whatever is asked for (KIP-455)."""

from __future__ import annotations

from odradek.broker.context import Circumstances, Parts, Served
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    parts: Parts, circumstances: Circumstances, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])


SERVED = Served(46, handle)
