"""DescribeUserScramCredentials (50). Version 0: no one has credentials, since clients cannot log in yet (KIP-554).

All users: an empty list. A named one: RESOURCE_NOT_FOUND, and DUPLICATE_RESOURCE when it is named twice, as in Kafka.
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    named = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[_result(name, count) for name, count in named.items()],
    )


def _result(name: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"the request names user {name!r} more than once"
    else:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} has no SCRAM credentials"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)


SERVED = ApiHandler(50, handle)
