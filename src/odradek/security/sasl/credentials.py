"""New SCRAM credentials: what is allowed, and those that a new cluster begins with (KIP-554)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from odradek.config.jaas import parse_pairs
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.java_numbers import is_digits
from odradek.security.sasl.scram import (
    HASHES,
    credential_of,
    salted,
)
from odradek.security.sasl.users import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    NO_USERS,
    SALT_BYTES,
    ScramCredential,
    ScramUsers,
)

MECHANISM_NUMBERS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Kafka's numbers, in both APIs."""
_FIRST_USER: Final = re.compile(r"\s*(SCRAM-SHA-(?:256|512))=\[(.*)\]\s*\Z", re.DOTALL)
_FIRST_KEY: Final = "odradek.scram.first.users"


def mechanism_name(number: int) -> str:
    """Returns the mechanism's name. Raises UNSUPPORTED_SASL_MECHANISM for an unknown number."""
    name = MECHANISM_NUMBERS.get(number)
    if name is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"SCRAM mechanism {number} is not known")
    return name


def check_new(user: str, iterations: int, salt: bytes, salted_password: bytes) -> None:
    """Raises UNACCEPTABLE_CREDENTIAL for what must not be stored."""
    problem = None
    if not user:
        problem = "the user's name is empty"
    elif any(unicodedata.category(character) == "Cc" for character in user):
        problem = f"the user's name {user!r} has a control character, with which not every client can log in"
    elif iterations < ITERATIONS_MIN:
        problem = f"{iterations} iterations are too few: at least {ITERATIONS_MIN}"
    elif iterations > ITERATIONS_MAX:
        problem = f"{iterations} iterations are too many: at most {ITERATIONS_MAX}"
    elif not salt or not salted_password:
        problem = "the salt or the salted password is empty"
    if problem is not None:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)


def first_users(text: str, random_bytes: Callable[[int], bytes]) -> ScramUsers:
    """Returns the users in `odradek.scram.first.users`; `random_bytes(count)` makes salts. Raises ConfigError, without values.

    SCRAM-SHA-512=[name=alice,password=secret,iterations=8192];...
    """
    users: dict[str, dict[str, ScramCredential]] = {}
    for number, part in enumerate(filter(str.strip, re.split(r";(?![^\[]*\])", text)), start=1):
        match = _FIRST_USER.match(part)
        if match is None:
            raise ConfigError(
                f"{_FIRST_KEY}=(hidden) is not allowed: user {number} is not SCRAM-SHA-512=[name=NAME,password=PASSWORD]"
            )
        mechanism, values = match[1], parse_pairs(match[2], _FIRST_KEY)
        written = values.get("iterations", str(ITERATIONS_MIN))
        iterations = int(written) if is_digits(written) else 0
        name, password = values.get("name", ""), values.get("password", "")
        if not name or not password or not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ConfigError(
                f"{_FIRST_KEY}=(hidden) is not allowed: user {number} needs name, password, and iterations of {ITERATIONS_MIN} "
                f"to {ITERATIONS_MAX}"
            )
        users.setdefault(name, {})[mechanism] = new_credential(
            mechanism, password, random_bytes(SALT_BYTES), iterations
        )
    return ScramUsers(seed=random_bytes(32).hex(), users=NO_USERS.with_changes(users))


def new_credential(
    mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> ScramCredential:
    assert mechanism in HASHES
    return credential_of(mechanism, salted(mechanism, password, salt, iterations), salt, iterations)
