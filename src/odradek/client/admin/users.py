"""Users and their SCRAM credentials (KIP-554): the messages and their answers. Passwords are salted here, and not sent."""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from odradek.security.sasl.credentials import MECHANISM_NUMBERS
from odradek.security.sasl.scram import salted
from odradek.security.sasl.users import ITERATIONS_MAX, SALT_BYTES

_NUMBERS: Final = {name: number for number, name in MECHANISM_NUMBERS.items()}
DEFAULT_ITERATIONS: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassword:
    """A user's new password for one mechanism."""

    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"
    iterations: int = DEFAULT_ITERATIONS


UserChanges = Mapping[str, NewPassword | str]
"""A new password, or the name of the mechanism whose credentials are deleted, by user."""


def user_name_problem(name: str) -> str | None:
    """Returns what is wrong with a name by which no client could log in, or not from a file of settings; else None."""
    categories = {unicodedata.category(character) for character in name}
    if not name:
        return "is empty"
    if "Cs" in categories:  # lone surrogates are other bytes of a command line
        return "is not UTF-8 text"
    if "Cc" in categories:
        return "has a control character"
    if name != name.strip():
        return "begins or ends with a blank, which files of settings drop"
    return None


def describe_users() -> Exchange:
    """Describes all users: their iterations by mechanism."""

    def read(response: DescribeUserScramCredentialsResponse) -> CallOutcome:
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message)
        outcome = CallOutcome.none()
        for user in response.results:
            outcome.results[user.user] = {
                MECHANISM_NUMBERS.get(info.mechanism, str(info.mechanism)): info.iterations
                for info in user.credential_infos
            }
        return outcome

    request = DescribeUserScramCredentialsRequest(users=None)
    return Exchange(request=request, answer=DescribeUserScramCredentialsResponse, read=read)


def alter_users(changes: UserChanges) -> Exchange:
    """Returns the exchange. Raises ConfigError for a mechanism that has no credentials."""
    upsertions, deletions = [], []
    for user, change in changes.items():
        if isinstance(change, str):
            deletions.append(ScramCredentialDeletion(name=user, mechanism=_number(change)))
        else:
            upsertions.append(_upsertion(user, change))
    request = AlterUserScramCredentialsRequest(upsertions=upsertions, deletions=deletions)

    def read(response: AlterUserScramCredentialsResponse) -> CallOutcome:
        outcome = CallOutcome.none()
        for user in response.results:
            outcome.note(user.user, user.error_code, user.error_message)
        return outcome

    return Exchange(request=request, answer=AlterUserScramCredentialsResponse, read=read)


def _number(mechanism: str) -> int:
    number = _NUMBERS.get(mechanism)
    if number is None:
        raise ConfigError(
            f"mechanism {mechanism!r:.100} has no stored credentials: use {', '.join(_NUMBERS)}"
        )
    return number


def _upsertion(user: str, new: NewPassword) -> ScramCredentialUpsertion:
    """Returns a change of a credential. Raises ConfigError for a password that is no text, and for iterations that would hold
    the event loop: the salting happens here."""
    if not new.password.isascii() and any(
        unicodedata.category(character) == "Cs" for character in new.password
    ):
        raise ConfigError(f"the password of {user!r:.100} is not UTF-8 text")
    if not 0 < new.iterations <= ITERATIONS_MAX:
        raise ConfigError(
            f"iterations of {user!r:.100}: {new.iterations} is not between 1 and {ITERATIONS_MAX}"
        )
    salt = secrets.token_bytes(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=user,
        mechanism=_number(new.mechanism),
        iterations=new.iterations,
        salt=salt,
        salted_password=salted(new.mechanism, new.password, salt, new.iterations),
    )
