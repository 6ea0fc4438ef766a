"""When certificates and delegation tokens end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.broker.metrics.expiry_families import of_certificates, of_delegation_tokens

YEAR_2026_S = 1_767_225_600
"""2026-01-01T00:00:00Z, since 1970."""


def listener(ends: str | None) -> Any:
    return SimpleNamespace(certificate={} if ends is None else {"notAfter": ends})


def test_certificates_end_in_so_many_seconds_or_have_ended() -> None:
    held = {
        "SSL": listener("Jan  2 00:00:00 2026 GMT"),
        "OLD": listener("Dec 31 23:00:00 2025 GMT"),
        "BARE": listener(None),
    }
    family = of_certificates(held, float(YEAR_2026_S))
    assert family.samples == [('listener="OLD"', -3_600.0), ('listener="SSL"', 86_400.0)]


def broker(*expires_ms: int, leads: bool = True) -> Any:
    tokens = {
        f"t{number}": SimpleNamespace(token_id=f"t{number}", owner="User:ann", expires_ms=expires)
        for number, expires in enumerate(expires_ms)
    }
    return SimpleNamespace(
        cluster=SimpleNamespace(leads=leads),
        runtime=SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 1_000)),
        image=SimpleNamespace(delegation_tokens=tokens),
    )


def test_the_tokens_that_end_first_have_series_and_all_are_counted() -> None:
    count, seconds = of_delegation_tokens(broker(*range(31_000, 1_000, -1_000)))
    assert count.samples == [("", 30)]
    assert [value for _, value in seconds.samples] == [float(left) for left in range(1, 11)]
    assert seconds.samples[0][0] == 'owner="User:ann",token_id="t29"'


def test_only_the_controller_reports_tokens() -> None:
    assert [family.samples for family in of_delegation_tokens(broker(9_000, leads=False))] == [[], []]
