"""Traffic: the largest clients of each broker, and the slow requests with their stages, from the brokers' metrics listeners.

The listeners are read with the console's own rights, and show client ids and addresses of everyone. So a user who logs in sees
them only with DESCRIBE on the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.console.listeners.figures import (
    STAGES,
    ListenerFigures,
    SlowRequestRow,
    busiest_brokers,
    flooding,
    stage_shares,
)
from odradek.console.listeners.reading import SlowRequestList
from odradek.console.model.snapshot import UNKNOWN
from odradek.console.pages.offers import age_of, list_page, reading_of
from odradek.console.pages.topics import order_of, page_number, pages_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.protocol.acls import AclOperation
from odradek.telemetry.scraped_metrics import ClientTraffic, InFlight, MetricsSnapshot

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

PAGE_ROWS: Final = 50
SORTS: Final[dict[str, Callable[[ClientTraffic], SupportsRichComparison]]] = {
    "moved": lambda client: client.bytes_moved,
    "in": lambda client: client.bytes_in,
    "out": lambda client: client.bytes_out,
    "requests": lambda client: client.requests,
    "busy": lambda client: client.busy,
    "name": lambda client: client.client_id,
}
_LARGEST_FIRST: Final = (SORTS.keys() | {"flight"}) - {"name"}
NOTHING: Final = InFlight()
NO_FIGURES: Final = ListenerFigures(now=MetricsSnapshot(at_s=0.0))
_BAR: Final = 300
"""The length of the bar of a request in the picture of its stages."""


async def obstacle_of(visit: Visit) -> str:
    """Returns why the visitor cannot see the listeners' figures: `no_listeners`, `no_right`, or nothing."""
    if visit.console.listeners is None:
        return "no_listeners"
    if visit.console.options.asks_for_login:
        operations = await visit.run(visit.model.rights.operations())
        if operations is None or AclOperation.DESCRIBE not in operations:
            return "no_right"
    return ""


async def known_figures(visit: Visit) -> ListenerFigures:
    """Returns the last scrape, and has the listeners read again, without waiting for them; no figures if there are none, or
    if the visitor may not see them."""
    listeners = visit.console.listeners
    if listeners is None or await obstacle_of(visit):
        return NO_FIGURES
    await visit.run(listeners.figures.begin())
    return listeners.figures.last or NO_FIGURES


async def figures_of(visit: Visit) -> tuple[ListenerFigures, str, float | None]:
    """Returns the figures of all listeners, why they are missing, and the seconds since they were read."""
    listeners = visit.console.listeners
    assert listeners is not None
    figures, problem = await reading_of(visit, listeners.figures, NO_FIGURES)
    return figures, problem, age_of(visit, listeners.figures)


async def show(visit: Visit) -> Response:
    """Shows the clients of one broker, or of all, those that move the most bytes first."""
    obstacle = await obstacle_of(visit)
    if obstacle:
        return _obstructed(visit, "clients", obstacle)
    figures, problem, read_age = await figures_of(visit)
    addresses = [str(address) for address in _addresses(visit)]
    chosen = visit.query.get("broker", "")
    chosen = chosen if chosen in addresses else ""
    clients = figures.clients(chosen)
    total = sum(client.bytes_moved for client in clients)
    flood = flooding(figures.clients())
    held = figures.in_flight(chosen)
    sorts = {**SORTS, "flight": lambda client: held.get(client.client_id, NOTHING).total_bytes}
    order = order_of(visit.query, sorts, _LARGEST_FIRST)
    clients.sort(key=lambda client: client.client_id)
    clients.sort(key=sorts[order.column], reverse=order.direction == "descending")
    page = page_number(visit.query.get("page", ""), len(clients), PAGE_ROWS)
    return visit.render(
        "traffic/clients.html",
        active="traffic",
        tab="clients",
        obstacle="",
        problems=[problem] if problem else figures.problems,
        left_out=figures.left_out,
        read_age=read_age,
        span_s=figures.span_s,
        is_measured=figures.before is not None,
        rows=[
            (client, client.bytes_moved / total if total else 0.0)
            for client in clients[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
        ],
        shown=len(clients),
        total=total,
        in_flight=lambda client_id: held.get(client_id, NOTHING),
        shows_in_flight=bool(held),
        busiest=busiest_brokers(figures),
        flood=flood[0].client_id if flood is not None else None,
        order=order,
        page=page,
        pages=pages_of(len(clients), PAGE_ROWS),
        brokers=[(address, figures.brokers.get(address, UNKNOWN)) for address in addresses],
        broker_ids=figures.brokers,
        chosen=chosen,
        quota_link=lambda client_id: "/people/quotas/change?" + urlencode({"client": client_id}),
        slow_link=lambda client_id: "/traffic/slow?" + urlencode({"search": client_id}),
    )


async def show_slow(visit: Visit) -> Response:
    """Shows the slow requests of all brokers, the newest first, with the time of each stage."""
    obstacle = await obstacle_of(visit)
    if obstacle:
        return _obstructed(visit, "slow", obstacle)
    listeners = visit.console.listeners
    assert listeners is not None
    slow, problem = await reading_of(visit, listeners.slow, SlowRequestList([], []))
    listed = list_page(
        visit, [(f"{row.client_id} {row.request} {row.peer} {row.broker}", row) for row in slow.rows]
    )
    words = listed.search.lower().split()
    matching = [row for row in slow.rows if all(word in _searched(row) for word in words)]
    longest_ms = max((row.total_ms for row in listed.rows), default=0.0) or 1.0
    return visit.render(
        "traffic/slow.html",
        active="traffic",
        tab="slow",
        obstacle="",
        problems=[problem] if problem else slow.problems,
        read_age=age_of(visit, listeners.slow),
        listed=listed,
        rows=[(row, _time_text(row.at_ms), _bar(row, longest_ms)) for row in listed.rows],
        stages=STAGES,
        shares=stage_shares(matching),
        broker_ids={} if listeners.figures.last is None else listeners.figures.last.brokers,
        bar=_BAR,
    )


def _obstructed(visit: Visit, tab: str, obstacle: str) -> Response:
    """Returns a page that names what to set, or which right is missing."""
    return visit.render(
        f"traffic/{tab}.html",
        403 if obstacle == "no_right" else 200,
        active="traffic",
        tab=tab,
        obstacle=obstacle,
    )


def _addresses(visit: Visit) -> list[str]:
    listeners = visit.console.listeners
    return [] if listeners is None else [str(address) for address in listeners.terms.addresses]


def _searched(row: SlowRequestRow) -> str:
    return f"{row.client_id} {row.request} {row.peer} {row.broker}".lower()


def _time_text(at_ms: int) -> str:
    """Returns a time in UTC, to the millisecond."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")


def _bar(row: SlowRequestRow, longest_ms: float) -> list[tuple[str, float, float]]:
    """Returns the parts of the bar of a request: the stage, where it begins, and its length."""
    parts, begin = [], 0.0
    for stage, stage_ms in zip(STAGES, row.stages_ms, strict=True):
        length = _BAR * min(stage_ms / longest_ms, 1.0)
        parts.append((stage, round(min(begin, _BAR), 1), round(min(length, _BAR - min(begin, _BAR)), 1)))
        begin += length
    return parts


PAGES: Final = (
    ConsolePage(path="/traffic", show=show),
    ConsolePage(path="/traffic/slow", show=show_slow),
)
