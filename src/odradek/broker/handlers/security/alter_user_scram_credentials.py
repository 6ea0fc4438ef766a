"""AlterUserScramCredentials (51). Version 0: set and delete the SCRAM credentials of users (KIP-554).

Each user succeeds or fails by itself; one that is altered twice by the same mechanism is refused. All that can be made is made
in one step, and known to every broker in service before the answer.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.documents import SCRAM_USERS
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.parted import PartedEdit
from odradek.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.runtime.turns import Turn
from odradek.security.sasl.credentials import check_new, mechanism_name
from odradek.security.sasl.scram import credential_of
from odradek.security.sasl.users import ScramUsers

USERS_MAX: Final = 20_000
"""The limit of users: every broker has the credentials of all of them in memory, half a kilobyte each."""
Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    turn = broker.turns.begin()
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    refused: dict[str, KafkaError] = {}
    counts: Counter[tuple[str, int]] = Counter()
    for alteration in alterations:
        await turn.step()
        counts[alteration.name, alteration.mechanism] += 1
        try:
            _check(alteration)
            if counts[alteration.name, alteration.mechanism] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "the request alters a user's credentials twice"
                )
        except KafkaError as error:
            refused[alteration.name] = error.as_outcome()
    wanted: list[Alteration] = []
    for alteration in alterations:
        await turn.step()
        if alteration.name not in refused:
            wanted.append(alteration)
    if wanted:
        seed = broker.runtime.entropy.uuid().hex + broker.runtime.entropy.uuid().hex
        try:
            await broker.controller.alter_in_turns(
                SCRAM_USERS, lambda before: _after(turn, before, wanted, refused, seed)
            )
            await broker.controller.seen_by_all()
        except KafkaError as error:
            refused.update(dict.fromkeys((alteration.name for alteration in wanted), error.as_outcome()))
    names = await turn.unique(await turn.map(attrgetter("name"), alterations))
    return AlterUserScramCredentialsResponse(
        results=await turn.map(lambda name: _result(name, refused.get(name)), names)
    )


def _check(alteration: Alteration) -> None:
    mechanism_name(alteration.mechanism)
    if isinstance(alteration, ScramCredentialUpsertion):
        check_new(alteration.name, alteration.iterations, alteration.salt, alteration.salted_password)
    elif not alteration.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user's name is empty")


async def _after(
    turn: Turn, before: ScramUsers, wanted: list[Alteration], refused: dict[str, KafkaError], seed: str
) -> ScramUsers:
    """Returns the users after the alterations. An alteration that is impossible is put into `refused`."""
    edit = PartedEdit(before.users)
    for alteration in wanted:
        await turn.step()
        mechanism = mechanism_name(alteration.mechanism)
        credentials = dict(edit.get(alteration.name) or {})
        if isinstance(alteration, ScramCredentialUpsertion):
            salted_password, salt = bytes(alteration.salted_password), bytes(alteration.salt)
            credentials[mechanism] = credential_of(mechanism, salted_password, salt, alteration.iterations)
        elif credentials.pop(mechanism, None) is None:
            refused[alteration.name] = KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, f"user {alteration.name!r} has no credentials for {mechanism}"
            )
        edit.change(alteration.name, credentials or None)
    users = edit.mapping()
    if len(users) > max(USERS_MAX, len(before.users)):
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the cluster would have credentials of {len(users)} users, and the limit is {USERS_MAX}",
        )
    return ScramUsers(seed=before.seed or seed, users=users)


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


SERVED = ApiHandler(51, handle)
