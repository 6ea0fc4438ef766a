"""Queries, streams and tables of the SQL server: lists, one source, one query with its plan as a picture, and its state."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.console.model.group_lag import GroupDetail
from odradek.console.pages.groups import group_link
from odradek.console.pages.record_forms import time_text
from odradek.console.pages.sql.entry import with_sql
from odradek.console.pages.topics import page_number, pages_of
from odradek.console.pictures.flow_graph import FlowBox, FlowGraph, flow_graph
from odradek.console.sql.access import SqlAccess
from odradek.console.sql.listing import (
    QueryDescription,
    QueryLine,
    query_description,
    query_lines,
    source_description,
    source_lines,
)
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ErrorCode, KafkaError
from odradek.sql.shell.plan_picture import plan_graph

PAGE_ROWS: Final = 50
LISTS: Final = ("queries", "streams", "tables")
ACTIONS: Final = {"pause": "PAUSE", "resume": "RESUME", "terminate": "TERMINATE"}
_QUERY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,250}")
_NAME_CHARS_MAX: Final = 250
LAGS_S: Final = 5.0
"""A page waits so long for the lags of its queries, and is shown without those that are missing after that."""
_LIST_STATEMENTS: Final = "SHOW QUERIES; SHOW STREAMS; SHOW TABLES;"


async def show_all(visit: Visit, server: SqlAccess) -> Response:
    """Shows one of the lists, searched, a page of it."""
    entities = await server.read(_LIST_STATEMENTS)
    search = visit.query.get("search", "").strip()
    words = search.lower().split()
    chosen = visit.query.get("show", "")
    active_list = chosen if chosen in LISTS else LISTS[0]
    queries = query_lines(entities)
    sources = {kind: source_lines(entities, kind) for kind in ("streams", "tables")}
    matching: list[object]
    if active_list == "queries":
        matching = [line for line in queries if _matches(words, line.query_id, line.sink, line.text)]
    else:
        matching = [line for line in sources[active_list] if _matches(words, line.name, line.topic)]
    page = page_number(visit.query.get("page", ""), len(matching), PAGE_ROWS)
    rows = matching[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    return visit.render(
        "sql/list.html",
        active="sql",
        url=server.url,
        lists=LISTS,
        active_list=active_list,
        counts={"queries": len(queries)} | {kind: len(lines) for kind, lines in sources.items()},
        failing=sum(1 for line in queries if line.failure_count or line.state == "ERROR"),
        rows=rows,
        lags=await _lags(visit, [line.group_id for line in rows if isinstance(line, QueryLine)]),
        matching=len(matching),
        page=page,
        pages=pages_of(len(matching), PAGE_ROWS),
        search=search,
        source_path=source_path,
        query_path=query_path,
        time_text=time_text,
    )


async def _lags(visit: Visit, group_ids: Iterable[str]) -> dict[str, GroupDetail]:
    """Returns the lag of queries, by the group in which they commit; only groups that can be read in time."""
    wanted = [group_id for group_id in group_ids if group_id]
    if not wanted:
        return {}
    return await visit.run(visit.model.groups.details(wanted, LAGS_S))


def _matches(words: list[str], *texts: str) -> bool:
    text = " ".join(texts).lower()
    return all(word in text for word in words)


async def show_source(visit: Visit, server: SqlAccess) -> Response:
    """Shows one stream or table."""
    name = visit.query.get("name", "")
    if not name or "`" in name or len(name) > _NAME_CHARS_MAX:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no stream or table {name!r:.80}")
    source = source_description(await server.read(f"DESCRIBE `{name}` EXTENDED;"))
    if source is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no stream or table {name!r:.80}")
    return visit.render(
        "sql/source.html",
        active="sql",
        source=source,
        query_path=query_path,
        editor_path=editor_path,
        written=_written(source.name),
        time_text=time_text,
    )


async def show_query(visit: Visit, server: SqlAccess) -> Response:
    """Shows one query with its plan."""
    query = await _query(visit, server, visit.query.get("id", ""))
    return await _query_page(visit, query)


async def change_query(visit: Visit, server: SqlAccess) -> Response:
    """Pauses, resumes or terminates a query; terminating must be confirmed."""
    query = await _query(visit, server, visit.form.get("id", ""))
    action = visit.form.get("action", "")
    if action not in ACTIONS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no action {action!r:.40}")
    if action == "terminate" and visit.form.get("sure") != "1":
        return await _query_page(visit, query, confirms=True)
    await server.execute(f"{ACTIONS[action]} {query.query_id};")
    if action == "terminate":
        return visit.redirect("/sql", "query_terminated")
    return visit.redirect(query_path(query.query_id), f"query_{action}d")


async def _query(visit: Visit, server: SqlAccess, query_id: str) -> QueryDescription:
    if not _QUERY_ID.fullmatch(query_id):
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no query {query_id!r:.80}")
    query = query_description(await server.read(f"EXPLAIN {query_id};"))
    if query is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no query {query_id!r:.80}")
    return query


async def _query_page(visit: Visit, query: QueryDescription, *, confirms: bool = False) -> Response:
    return visit.render(
        "sql/query.html",
        active="sql",
        query=query,
        graph=plan_picture(query.plan),
        confirms=confirms,
        lag=(await _lags(visit, [query.group_id])).get(query.group_id),
        group_link=group_link,
        source_path=source_path,
        editor_path=editor_path,
        query_path=query_path,
        time_text=time_text,
    )


def plan_picture(plan: str) -> FlowGraph | None:
    """Returns the picture of a plan; None for one that is too large."""
    boxes, edges = plan_graph(plan)
    shown = {
        key: FlowBox(
            kind=box.kind, name=box.name, details=box.details, full=box.full, has_state=box.has_state
        )
        for key, box in boxes.items()
    }
    return flow_graph(shown, dict.fromkeys(edges, ""))


def source_path(name: str) -> str:
    """Returns the path of a source's page: a name may have any character."""
    return f"/sql/source?{urlencode({'name': name})}"


def query_path(query_id: str) -> str:
    """Returns the path of a query's page."""
    return f"/sql/query?{urlencode({'id': query_id})}"


def editor_path(text: str) -> str:
    """Returns the path of the editor with a text in it."""
    return f"/sql/editor?{urlencode({'text': text})}"


def _written(name: str) -> str:
    return name if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else f"`{name}`"


PAGES: Final = (
    ConsolePage(path="/sql", show=with_sql(show_all)),
    ConsolePage(path="/sql/source", show=with_sql(show_source)),
    ConsolePage(path="/sql/query", show=with_sql(show_query), act=with_sql(change_query)),
)
