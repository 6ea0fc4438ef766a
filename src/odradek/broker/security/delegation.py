"""Delegation tokens at work (KIP-48): the terms of this cluster, changes by the controller, removal of those that are over."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.cluster.link import ClusterLink
from odradek.broker.requests.context import BrokerContext, RequestContext
from odradek.cluster.documents import DELEGATION_TOKENS
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.security.sasl.delegation_tokens import DelegationToken, DelegationTokens
from odradek.security.sasl.token_decisions import (
    DelegationTerms,
    check_may_ask,
    token_of,
    without_those_over,
)
from odradek.telemetry import events

_log = events.get("security")


def enabled_terms(config: BrokerConfig) -> DelegationTerms:
    """Returns the terms of tokens. Raises DELEGATION_TOKEN_AUTH_DISABLED where brokers have no secret key."""
    if not config.delegation.secret_key:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            "delegation tokens are off: set delegation.token.secret.key on the brokers",
        )
    return DelegationTerms(
        secret_key=config.delegation.secret_key,
        max_lifetime_ms=config.delegation.max_lifetime_ms,
        expiry_ms=config.delegation.expiry_time_ms,
    )


async def change_token(
    broker: BrokerContext,
    context: RequestContext,
    proof: bytes,
    change: Callable[[DelegationToken, DelegationTerms, int], DelegationToken | None],
) -> DelegationToken | None:
    """Returns the token with the HMAC `proof`, as `change(token, terms, now_ms)` makes it; None: it was
    deleted. Every broker in service knows it then.

    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, _AUTH_DISABLED, _NOT_FOUND, _EXPIRED, or _OWNER_MISMATCH for those that may not change
    this one.
    """
    check_may_ask(context.requester)
    terms = enabled_terms(broker.config)
    now_ms = broker.runtime.clock.wall_ms()
    outcome: list[DelegationToken | None] = []

    def changed(before: DelegationTokens) -> DelegationTokens:
        token = token_of(before, terms, proof, context.principal, now_ms)
        after = change(token, terms, now_ms)
        outcome.append(after)
        return before.with_changes({token.token_id: after})

    await broker.controller.alter(DELEGATION_TOKENS, changed)
    await broker.controller.seen_by_all()
    return outcome[-1]


async def sweep_tokens(cluster: ClusterLink, now_ms: int) -> None:
    """Remove the tokens that are over, where this broker is the controller."""
    if not cluster.leads:
        return
    tokens = cluster.image.delegation_tokens
    count = len(tokens) - len(without_those_over(tokens, now_ms))
    if not count:
        return
    try:
        await cluster.controller.alter(DELEGATION_TOKENS, lambda before: without_those_over(before, now_ms))
    except KafkaError as error:  # the next round does it, here or at the next controller
        _log.warning("tokens_not_removed", count=count, reason=error.message)
        return
    _log.info("tokens_removed", count=count)
