"""What a page about users, access or the cluster offers: what the user's rights permit, and nothing in read-only mode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from odradek.client.network.errors import explain
from odradek.console.model.access_reading import SharedReading
from odradek.console.pages.topics import page_number, pages_of
from odradek.console.web.visit import Visit
from odradek.model.errors import OdradekError
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.security.acl_decision import AclJudge

PAGE_ROWS: Final = 50
READING_S: Final = 5.0
SEARCH_LENGTH_MAX: Final = 500
LOCAL_HOST: Final = "127.0.0.1"
_OF_MARKERS: Final = frozenset({AclOperation.ALTER, AclOperation.CLUSTER_ACTION})
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOffers:
    """Whether changes are offered. The cluster decides in any case: an offer is no permission."""

    alter: bool
    """Users, access rules, moves, elections: ALTER on the cluster."""
    alter_configs: bool
    """Quotas and throttles: ALTER_CONFIGS on the cluster."""
    end_transactions: bool
    """Markers of transactions that hang: ALTER or CLUSTER_ACTION on the cluster."""


async def offers_of(visit: Visit) -> PageOffers:
    """Asks the cluster what the user may do, or remembers it."""
    if visit.console.options.read_only:
        return PageOffers(alter=False, alter_configs=False, end_transactions=False)
    operations = await visit.run(visit.model.rights.operations())
    return PageOffers(
        alter=operations is None or AclOperation.ALTER in operations,
        alter_configs=operations is None or AclOperation.ALTER_CONFIGS in operations,
        end_transactions=operations is None or bool(_OF_MARKERS & operations),
    )


async def may_write_transactions(visit: Visit, transactional_id: str | None = None) -> bool:
    """Returns whether ending a transaction at its coordinator is offered: WRITE on its transactional id, by the access rules.

    Without an id, whether it may be offered at all. Where the user may not see the rules, and at an identity provider, whose
    users brokers may name otherwise, the cluster alone decides.
    """
    if visit.console.options.read_only:
        return False
    options = visit.console.options
    if transactional_id is None or not options.asks_for_login or options.oidc is not None:
        return True
    access = visit.model.access
    try:
        async with asyncio.timeout(READING_S):
            acls, (settings,) = await visit.run(access.acls.get()), await visit.run(access.settings.get())
    except (TimeoutError, OdradekError):
        return True
    if settings is None or not settings.get("authorizer.class.name"):
        return True
    about = [
        acl
        for acl in acls
        if acl.pattern.resource_type == AclResourceType.TRANSACTIONAL_ID
        and acl.pattern.covers(transactional_id)
    ]
    judge = AclJudge(about, settings)
    hosts = {
        LOCAL_HOST,
        *(acl.host for acl in about),
    }  # the console's address, as brokers see it, is not known here
    return any(
        judge.judge(
            f"User:{visit.principal}",
            host,
            AclOperation.WRITE,
            AclResourceType.TRANSACTIONAL_ID,
            transactional_id,
        )[0]
        for host in hosts
    )


async def reading_of(visit: Visit, reading: SharedReading[T], empty: T) -> tuple[T, str]:
    """Returns what was read and "", or `empty` and the reason why it was not. A late reading continues for the next page."""
    try:
        async with asyncio.timeout(READING_S):
            return await visit.run(reading.get()), ""
    except TimeoutError:
        return empty, visit.catalogue.text("people.slow", time=visit.catalogue.seconds(READING_S))
    except OdradekError as error:
        return empty, explain(error)


def age_of(visit: Visit, reading: SharedReading[T]) -> float | None:
    """Returns the seconds since the last success; None before one."""
    if reading.read_ms < 0:
        return None
    return max(0.0, (visit.console.clock.wall_ms() - reading.read_ms) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage:
    """One page of the rows that match a search."""

    rows: Sequence[Any]
    search: str
    matching: int
    total: int
    page: int
    pages: int


def list_page(visit: Visit, rows: Sequence[tuple[str, Any]]) -> ListPage:
    """Returns the page of a query: rows whose text has every word of `search`, in any case. Rows: text, and what is shown."""
    search = visit.query.get("search", "").strip()[:SEARCH_LENGTH_MAX]
    words = search.lower().split()
    matching = [shown for text, shown in rows if all(word in text.lower() for word in words)]
    page = page_number(visit.query.get("page", ""), len(matching), PAGE_ROWS)
    return ListPage(
        rows=matching[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        search=search,
        matching=len(matching),
        total=len(rows),
        page=page,
        pages=pages_of(len(matching), PAGE_ROWS),
    )
