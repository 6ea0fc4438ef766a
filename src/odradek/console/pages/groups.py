"""The groups: a list from the model, and one group with its members, its lag, and the reasons for the lag.

A group's id may have any character, so it is a parameter of a query and no part of a path.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.console.model.group_lag import GroupDetail, reasons_of
from odradek.console.model.snapshot import GroupFigures
from odradek.console.pages.topics import order_of, page_number, pages_of
from odradek.console.pictures.assignment import WIDTH, assignment_rows
from odradek.console.pictures.lag_line import lag_line
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

PAGE_ROWS: Final = 50
PARTITION_ROWS: Final = 100
AGES_WAIT_S: Final = 0.5
"""The longest wait of the list for its groups' lag in time; what arrives later is shown at its next update."""
SORTED_BY_TIME_MAX: Final = 200
"""The number of groups, the ones with the most unread records first, whose time is read if the list is sorted by it."""
DETAIL_WAIT_S: Final = 8.0
SORTS: Final[dict[str, Callable[[GroupFigures], SupportsRichComparison]]] = {
    "lag": lambda group: group.lag,
    "name": lambda group: group.group_id,
    "state": lambda group: group.state,
    "time": lambda group: group.waits_ms,
    "members": lambda group: group.members,
    "type": lambda group: group.type,
}
_LARGEST_FIRST: Final = frozenset({"lag", "time", "members"})


async def show_all(visit: Visit) -> Response:
    """Shows one page of the groups that match, the largest lag first."""
    await visit.wait_until_read()
    query, groups = visit.query, visit.snapshot.groups
    search = query.get("search", "").strip()
    words = search.lower().split()
    matching = [
        group
        for name, group in groups.items()
        if all(word in name.lower() for word in words) and ("behind" not in query or group.lag > 0)
    ]
    order = order_of(query, SORTS, _LARGEST_FIRST)
    matching.sort(key=lambda group: group.group_id)
    if order.column == "time":
        behind = heapq.nlargest(SORTED_BY_TIME_MAX, matching, key=lambda group: group.lag)
        await visit.run(visit.model.groups.ages.begin([group.group_id for group in behind], AGES_WAIT_S))
        matching = _with_ages(visit, matching)
    matching.sort(key=SORTS[order.column], reverse=order.direction == "descending")
    page = page_number(query.get("page", ""), len(matching), PAGE_ROWS)
    rows = matching[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    await visit.run(visit.model.groups.ages.begin([group.group_id for group in rows], AGES_WAIT_S))
    return visit.render(
        "groups.html",
        active="groups",
        rows=_with_ages(visit, rows),
        matching=len(matching),
        page=page,
        pages=pages_of(len(matching), PAGE_ROWS),
        order=order,
        search=search,
        behind="behind" in query,
        group_link=group_link,
    )


def _with_ages(visit: Visit, groups: Iterable[GroupFigures]) -> list[GroupFigures]:
    age_of = visit.model.groups.ages.of
    return [group._replace(waits_ms=age_of(group.group_id)) for group in groups]


async def show(visit: Visit) -> Response:
    """Shows one group."""
    detail = await known_group(visit)
    rows = sorted(detail.partitions, key=lambda row: (-row.lag, row.partition))
    page = page_number(visit.query.get("page", ""), len(rows), PARTITION_ROWS)
    return visit.render(
        "group.html",
        active="groups",
        group=detail,
        reasons=reasons_of(detail),
        rows=rows[(page - 1) * PARTITION_ROWS : page * PARTITION_ROWS],
        page=page,
        pages=pages_of(len(rows), PARTITION_ROWS),
        assignment=assignment_rows(detail),
        assignment_width=WIDTH,
        line=lag_line(visit.model.groups.history.of(detail.group_id)),
        clients={member.member_id: member.client_id for member in detail.members},
        group_link=group_link,
    )


def group_link(group_id: str, action: str = "") -> str:
    """Returns the path of a group's page, or of an action on the group."""
    return f"/group{'/' + action if action else ''}?{urlencode({'id': group_id})}"


async def known_group(visit: Visit) -> GroupDetail:
    """Returns the group that the query names. KafkaError if the cluster has none, or does not show it, or is too slow."""
    await visit.wait_until_read()
    name = visit.query.get("id", "")
    try:
        async with asyncio.timeout(DETAIL_WAIT_S):
            return await visit.run(visit.model.groups.detail(name))
    except TimeoutError:
        line = visit.catalogue.text("group.slow", time=visit.catalogue.seconds(DETAIL_WAIT_S))
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, line) from None


PAGES: Final = (ConsolePage(path="/groups", show=show_all), ConsolePage(path="/group", show=show))
