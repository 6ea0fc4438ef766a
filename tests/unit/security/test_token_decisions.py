"""Delegation tokens: who may make and change them, and until when they count."""

from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.security.principals import ANONYMOUS, Requester, by_certificate
from odradek.security.sasl.delegation_tokens import (
    NO_TOKENS,
    DelegationToken,
    tokens_as_json,
    tokens_from_json,
)
from odradek.security.sasl.token_decisions import (
    TOKENS_MAX,
    DelegationTerms,
    check_may_ask,
    checked_user,
    new_token,
    new_token_id,
    renewed,
    shortened,
    token_of,
    with_token,
    without_those_over,
)

NOW, DAY = 1_000_000, 86_400_000
TERMS = DelegationTerms(secret_key="key", max_lifetime_ms=7 * DAY, expiry_ms=DAY)


def token(token_id: str = "t", lifetime_ms: int = -1) -> DelegationToken:
    return new_token(
        TERMS,
        token_id=token_id,
        salts={"SCRAM-SHA-256": b"salt"},
        owner="User:alice",
        requester="User:bob",
        renewers=["User:ray", "User:ray"],
        lifetime_ms=lifetime_ms,
        now_ms=NOW,
    )


@pytest.mark.parametrize(
    ("asked_ms", "max_ms", "expires_ms"), [(-1, 7 * DAY, DAY), (3600, 3600, 3600), (99 * DAY, 7 * DAY, DAY)]
)
def test_a_token_lives_as_long_as_was_asked_for_within_the_terms(
    asked_ms: int, max_ms: int, expires_ms: int
) -> None:
    made = token(lifetime_ms=asked_ms)
    assert (made.max_ms - NOW, made.expires_ms - NOW) == (max_ms, expires_ms)


def test_a_renewal_ends_with_the_tokens_own_end() -> None:
    made = token()
    assert renewed(made, TERMS, -1, NOW + 5).expires_ms == NOW + 5 + DAY
    assert renewed(made, TERMS, 100, NOW + 5).expires_ms == NOW + 105
    assert renewed(made, TERMS, 9 * DAY, NOW + 5).expires_ms == NOW + 5 + DAY
    assert renewed(made, TERMS, -1, made.max_ms - 1).expires_ms == made.max_ms


def test_a_token_can_be_ended_now_or_later() -> None:
    assert shortened(token(), -1, NOW) is None
    later = shortened(token(), 100, NOW)
    assert later is not None
    assert later.expires_ms == NOW + 100
    far = shortened(token(), 99 * DAY, NOW)
    assert far is not None
    assert far.expires_ms == far.max_ms


@pytest.mark.parametrize(
    ("principal", "proof_of", "late_ms", "code"),
    [
        ("User:alice", "t", 0, None),
        ("User:ray", "t", 0, None),
        ("User:bob", "t", 0, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        ("User:alice", "u", 0, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        ("User:alice", "t", DAY + 1, ErrorCode.DELEGATION_TOKEN_EXPIRED),
    ],
)
def test_owner_and_renewers_change_a_token_that_counts(
    principal: str, proof_of: str, late_ms: int, code: ErrorCode | None
) -> None:
    tokens = {"t": token()}
    proof = TERMS.hmac_of(proof_of)
    if code is None:
        assert token_of(tokens, TERMS, proof, principal, NOW + late_ms).token_id == "t"
        return
    with pytest.raises(KafkaError) as caught:
        token_of(tokens, TERMS, proof, principal, NOW + late_ms)
    assert caught.value.code is code


def test_another_secret_key_makes_other_proofs() -> None:
    other = replace(TERMS, secret_key="another")
    with pytest.raises(KafkaError, match="DELEGATION_TOKEN_NOT_FOUND"):
        token_of({"t": token()}, other, TERMS.hmac_of("t"), "User:alice", NOW)


@pytest.mark.parametrize(
    "asker",
    [
        Requester(),
        Requester("User:alice", is_by_token=True, is_authenticated=True),
        by_certificate(None, "h"),
        by_certificate(ANONYMOUS, "h"),
    ],
)
def test_tokens_are_for_clients_that_logged_in_themselves(asker: Requester) -> None:
    with pytest.raises(KafkaError, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
        check_may_ask(asker)
    check_may_ask(by_certificate("User:CN=alice", "h"))


@pytest.mark.parametrize(("type_", "name"), [("Group", "x"), (None, "x"), ("User", "")])
def test_owners_and_renewers_are_users(type_: str | None, name: str) -> None:
    with pytest.raises(KafkaError, match="INVALID_PRINCIPAL_TYPE"):
        checked_user(type_, name)


def test_their_number_is_bounded_and_those_that_are_over_make_room() -> None:
    made = token()
    full = NO_TOKENS.with_changes(
        {str(number): replace(made, token_id=str(number)) for number in range(TOKENS_MAX)}
    )
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        with_token(full, made, NOW)
    assert with_token(full, made, NOW + DAY + 1) == {"t": made}
    assert without_those_over(full, NOW) == full


def test_an_id_does_not_begin_like_an_option() -> None:
    numbers = count()
    identity = new_token_id(lambda: UUID(int=(0xF8 if next(numbers) == 0 else 0x10) << 120))
    assert not identity.startswith("-")
    assert next(numbers) == 2


def test_what_is_stored_reads_back_and_shows_no_secret() -> None:
    tokens = {"t": token()}
    assert tokens_from_json(tokens_as_json(tokens)) == tokens
    assert "salt" not in repr(tokens)
    assert "key" not in repr(TERMS).replace("secret_key", "")
