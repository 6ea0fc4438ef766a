"""Certificates of listeners and delegation tokens (KIP-48), and the time until they end."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

from odradek.broker.requests.context import BrokerContext
from odradek.telemetry.metrics import Family, gauge, labels

if TYPE_CHECKING:
    from odradek.security.tls.listener_tls import ListenerCertificates

_SHOWN_MAX: Final = 10
"""The tokens that end first have series of their own."""


def of_certificates(certificates: Mapping[str, ListenerCertificates], now_s: float) -> Family:
    """Returns the seconds until the certificate of each listener with TLS ends; negative when it has ended.

    `now_s`: seconds since 1970.
    """
    seconds = gauge(
        "odradek_certificate_expires_seconds", "Time until the certificate of a listener ends, in seconds."
    )
    for listener, held in sorted(certificates.items()):
        ends = held.certificate.get("notAfter")
        if ends:
            seconds.add(ssl.cert_time_to_seconds(ends) - now_s, labels(listener=listener))
    return seconds


def of_delegation_tokens(broker: BrokerContext) -> list[Family]:
    """Returns how many tokens there are, and when the first of them end. The controller reports them for the cluster."""
    count = gauge("odradek_delegation_tokens", "Delegation tokens of the cluster.")
    seconds = gauge(
        "odradek_delegation_token_expires_seconds", "Time until the tokens that end first end, in seconds."
    )
    if broker.cluster.leads:
        now_ms = broker.runtime.clock.wall_ms()
        tokens = broker.image.delegation_tokens.values()
        count.add(len(tokens))
        for token in nsmallest(_SHOWN_MAX, tokens, key=lambda token: (token.expires_ms, token.token_id)):
            text = labels(owner=token.owner, token_id=token.token_id)
            seconds.add((token.expires_ms - now_ms) / 1_000, text)
    return [count, seconds]
