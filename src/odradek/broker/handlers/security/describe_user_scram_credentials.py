"""DescribeUserScramCredentials (50). Version 0: users' mechanisms and their iterations, never the keys (KIP-554).

All users, or those that are named. A named one without credentials: RESOURCE_NOT_FOUND; one that is named twice:
DUPLICATE_RESOURCE, as in Kafka.
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from odradek.security.sasl.credentials import MECHANISM_NUMBERS
from odradek.security.sasl.users import ScramUsers


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    users = broker.image.scram_users
    turn = broker.turns.begin()
    named: Counter[str] = Counter()
    for user in request.users or ():
        await turn.step()
        named[user.name] += 1
    wanted = named or Counter(dict.fromkeys(users.users, 1))
    results = await turn.map(lambda name: _result(users, name, wanted[name]), wanted)
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.NONE, error_message=None, results=results
    )


def _result(users: ScramUsers, name: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return _refused(name, ErrorCode.DUPLICATE_RESOURCE, f"the request names user {name!r} more than once")
    credentials = users.users.get(name)
    if credentials is None:
        return _refused(name, ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} has no SCRAM credentials")
    infos = [
        CredentialInfo(mechanism=number, iterations=credentials[mechanism].iterations)
        for number, mechanism in MECHANISM_NUMBERS.items()
        if mechanism in credentials
    ]
    return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=infos)


def _refused(name: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)


SERVED = ApiHandler(50, handle, is_quick=True)
