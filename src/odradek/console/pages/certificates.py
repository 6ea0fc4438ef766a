"""Certificates and delegation tokens, those that end first before the others.

Certificates of brokers are known from their metrics listeners; tokens are those that the user may see, and where brokers show
none, those that the listeners name.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from starlette.responses import Response

from odradek.console.listeners.figures import (
    TOKENS,
    CertificateEnd,
    ListenerFigures,
    certificates_of,
    token_level,
)
from odradek.console.model.access_reading import VisibleTokens
from odradek.console.model.snapshot import UNKNOWN
from odradek.console.model.troubles import Urgency
from odradek.console.pages.offers import age_of, reading_of
from odradek.console.pages.traffic import NO_FIGURES, figures_of, obstacle_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError
from odradek.security.tls.contexts import certificate_in

ROWS_MAX: Final = 200
_WALL_S_MAX: Final = 253_402_300_799


class TokenEnd(NamedTuple):
    """A delegation token, and the seconds until it ends."""

    token_id: str
    owner: str
    renewers: str
    left_s: float

    @property
    def level(self) -> Urgency:
        return token_level(self.left_s)


async def show(visit: Visit) -> Response:
    """Shows what ends, and when."""
    obstacle = await obstacle_of(visit)
    figures, problem, read_age = NO_FIGURES, "", None
    if not obstacle:
        figures, problem, read_age = await figures_of(visit)
    visible, token_problem = await reading_of(visit, visit.model.access.tokens, VisibleTokens((), ""))
    own, own_problem = await _own_certificate(visit)
    now_s = visit.console.clock.wall_ms() / 1000
    certificates = sorted([*own, *certificates_of(figures)], key=lambda end: end.left_s)
    tokens = sorted(_tokens(visible, figures, now_s), key=lambda end: (end.left_s, end.token_id))
    return visit.render(
        "traffic/certificates.html",
        active="people",
        tab="certificates",
        obstacle=obstacle,
        problems=[line for line in (problem, own_problem, *figures.problems) if line],
        token_problem=token_problem,
        read_age=age_of(visit, visit.model.access.tokens) if read_age is None else read_age,
        certificates=[(end, _date_text(now_s + end.left_s)) for end in certificates[:ROWS_MAX]],
        certificates_left_out=max(0, len(certificates) - ROWS_MAX),
        tokens=[(end, _date_text(now_s + end.left_s)) for end in tokens[:ROWS_MAX]],
        tokens_left_out=max(0, len(tokens) - ROWS_MAX),
        token_obstacle=visible.obstacle,
        broker_id=lambda address: figures.brokers.get(address, UNKNOWN),
    )


def _tokens(visible: VisibleTokens, figures: ListenerFigures, now_s: float) -> list[TokenEnd]:
    """Returns the tokens that the user may see, and those that listeners name."""
    ends = {
        token.token_id: TokenEnd(
            token.token_id, token.owner, ", ".join(token.renewers), token.expires_ms / 1000 - now_s
        )
        for token in visible.tokens
    }
    for metrics in figures.now.by_broker.values():
        for texts, left_s in metrics.get(TOKENS, {}).items():
            labels = dict(texts)
            token_id = labels.get("token_id", "")
            ends.setdefault(token_id, TokenEnd(token_id, labels.get("owner", ""), "", left_s))
    return list(ends.values())


async def _own_certificate(visit: Visit) -> tuple[list[CertificateEnd], str]:
    """Returns the end of the console's own certificate, if it has one, and why it cannot be read."""
    path = visit.console.options.certificate
    if path is None:
        return [], ""
    try:
        ends = await asyncio.to_thread(_end_of, path)
    except (ConfigError, OSError) as error:
        return [], visit.catalogue.text("certificates.own_unread", reason=str(error))
    return [CertificateEnd("", "HTTPS", ends - visit.console.clock.wall_ms() / 1000)], ""


def _end_of(path: str) -> float:
    """Returns when the first certificate of a file ends, in seconds since 1970."""
    return float(ssl.cert_time_to_seconds(certificate_in(Path(path).read_bytes(), path)["notAfter"]))


def _date_text(at_s: float) -> str:
    """Returns a time in UTC, to the minute; a dash for one that no calendar has."""
    if not 0 <= at_s <= _WALL_S_MAX:
        return "–"
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M")


PAGES: Final = (ConsolePage(path="/people/certificates", show=show),)
