"""The list of topics: searched, sorted and paged on the server, from the model only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import Response

from odradek.console.model.snapshot import UNKNOWN, ModelSnapshot, TopicFigures
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.java_numbers import is_digits

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

PAGE_ROWS: Final = 50
SORTS: Final[dict[str, Callable[[ModelSnapshot, TopicFigures], SupportsRichComparison]]] = {
    "name": lambda _, topic: topic.name,
    "partitions": lambda _, topic: topic.partitions,
    "replication": lambda _, topic: topic.replication_factor,
    "size": lambda snapshot, topic: snapshot.sizes.get(topic.name, UNKNOWN),
    "state": lambda _, topic: (topic.offline, topic.under_replicated),
}
_LARGEST_FIRST: Final = frozenset({"partitions", "replication", "size", "state"})


async def show(visit: Visit) -> Response:
    """Shows one page of the topics that match."""
    await visit.wait_until_read()
    snapshot, query = visit.snapshot, visit.query
    search = query.get("search", "").strip()
    matching = matching_topics(
        snapshot, search, internal="internal" in query, problems_only="problems" in query
    )
    order = order_of(query, SORTS, _LARGEST_FIRST)
    key = SORTS[order.column]
    matching.sort(key=lambda topic: key(snapshot, topic), reverse=order.direction == "descending")
    page = page_number(query.get("page", ""), len(matching), PAGE_ROWS)
    return visit.render(
        "topics.html",
        active="topics",
        rows=matching[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        matching=len(matching),
        page=page,
        pages=pages_of(len(matching), PAGE_ROWS),
        order=order,
        search=search,
        internal="internal" in query,
        problems="problems" in query,
    )


def matching_topics(
    snapshot: ModelSnapshot, search: str, *, internal: bool, problems_only: bool
) -> list[TopicFigures]:
    """Returns the topics whose names have every word of the search, in any case."""
    words = search.lower().split()
    return [
        topic
        for name, topic in snapshot.topics.items()
        if (internal or problems_only or not topic.internal)
        and (not problems_only or topic.offline or topic.under_replicated)
        and all(word in name.lower() for word in words)
    ]


class Order(NamedTuple):
    """The column by which a table is sorted. `direction` is what aria-sort calls it."""

    column: str
    is_reversed: bool
    direction: str


def order_of(query: Mapping[str, str], columns: Collection[str], largest_first: Collection[str]) -> Order:
    """Returns the order that `sort` and `reverse` of a query ask for; the first column without them."""
    column = query.get("sort", "")
    column = column if column in columns else next(iter(columns))
    is_reversed = "reverse" in query
    is_descending = (column in largest_first) != is_reversed
    return Order(column, is_reversed, "descending" if is_descending else "ascending")


def pages_of(rows: int, page_rows: int) -> int:
    """Returns the number of pages; an empty list has one."""
    return max(1, -(-rows // page_rows))


def page_number(text: str, rows: int, page_rows: int) -> int:
    """Returns the page that is asked for, or the nearest that there is."""
    wanted = int(text) if is_digits(text) and len(text) <= 9 else 1
    return min(max(1, wanted), pages_of(rows, page_rows))


PAGES: Final = (ConsolePage(path="/topics", show=show),)
