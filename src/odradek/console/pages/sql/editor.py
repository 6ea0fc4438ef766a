"""The editor: statements by POST, their results by GET, rows of queries as they arrive, completions.

Running a text makes a result, which has a page of its own. So nothing is carried out when a page is loaded again, drawn as a
chart, or looked at without JavaScript.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from itertools import islice
from typing import Final, TypedDict
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import Response

from odradek.console.pages.sql.entry import with_sql
from odradek.console.pictures.result_chart import (
    KINDS,
    ResultChart,
    chart_choice,
    is_number_column,
    result_chart,
)
from odradek.console.sql.access import EditorFailure, SqlAccess
from odradek.console.sql.editor_text import EditorRefusal, editor_run
from odradek.console.sql.live_queries import ResultRow, SqlResult, SqlResults
from odradek.console.web.application import ConsolePage
from odradek.console.web.console import LIVE_STREAMS_MAX
from odradek.console.web.gate import SQL_LIVE_PATH
from odradek.console.web.streams import event_stream
from odradek.console.web.visit import Visit
from odradek.model.errors import OdradekError
from odradek.model.java_numbers import is_digits
from odradek.model.safe_text import safe_lines
from odradek.sql.rest_client import ServerUnreachable
from odradek.sql.shell.rendering import TextTable, cell

ROWS_SHOWN_MAX: Final = 200
"""The rows of a push query in a page; the newest come first."""
EVENT_ROWS_MAX: Final = 100
CELL_CHARS_MAX: Final = 300
COLUMNS_MAX: Final = 100
PART_ROWS_MAX: Final = 1_000
PART_CHARS_MAX: Final = 200_000
BEFORE_CHARS_MAX: Final = 500
COMPLETIONS_MAX: Final = 20
LIVE_S: Final = 900.0
_STEP_S: Final = 0.5
_DIGITS_MAX: Final = 12
_WHOLE_MAX: Final = 1e15
SAMPLES: Final = (
    ("sql.sample_streams", "SHOW STREAMS;"),
    ("sql.sample_queries", "SHOW QUERIES;"),
    ("sql.sample_functions", "SHOW FUNCTIONS;"),
)


async def show(visit: Visit, server: SqlAccess) -> Response:
    """Shows the editor, with the text of the query `text` in it. Nothing is run.

    A link of a stranger may name the text, so what is invisible in it is written as escapes.
    """
    server.refresh_names()
    return _editor(visit, server, safe_lines(visit.query.get("text", "").replace("\t", "    ")))


async def run(visit: Visit, server: SqlAccess) -> Response:
    """Runs the text, and leads to its result."""
    text = visit.form.get("text", "").replace("\r\n", "\n")
    from_beginning = "beginning" in visit.form
    results = _results(visit)
    try:
        wanted = editor_run(text, read_only=visit.console.options.read_only)
        if wanted.query:
            results.check_room(visit.browser_id)
        outcome = await server.run(text, wanted, from_beginning=from_beginning)
    except EditorRefusal as refusal:
        line = visit.catalogue.text(f"sql.refused.{refusal.key}", **refusal.values)
        return _editor(visit, server, text, line, from_beginning=from_beginning, status=400)
    except EditorFailure as refusal:
        return _editor(
            visit,
            server,
            text,
            refusal.message,
            from_beginning=from_beginning,
            status=400,
            parts=refusal.parts,
        )
    except ServerUnreachable as error:
        return _editor(visit, server, text, str(error), from_beginning=from_beginning, status=502)
    results.add(visit.browser_id, outcome)
    return visit.redirect(_path(outcome))


def _editor(
    visit: Visit,
    server: SqlAccess,
    text: str,
    problem: str = "",
    *,
    from_beginning: bool = False,
    status: int = 200,
    parts: tuple[str | TextTable, ...] = (),
) -> Response:
    return visit.render(
        "sql/editor.html",
        status,
        active="sql",
        text=Markup.escape(text),
        url=server.url,
        from_beginning=from_beginning,
        problem=problem,
        shown_parts=_parts(parts),
        samples=SAMPLES,
        result=None,
    )


async def show_result(visit: Visit, server: SqlAccess) -> Response:
    """Shows a result as it is now, and the editor with its text."""
    server.refresh_names()
    outcome = _results(visit).get(visit.browser_id, visit.request.path_params["result"])
    # in this order: what arrives between the two is sent by the stream of events
    is_over, rows = outcome.is_over, outcome.rows()
    chart = _chart_query(visit)
    after = rows[-1].number if rows else 0
    live = {"id": outcome.result_id, "after": str(after), **chart}
    return visit.render(
        "sql/editor.html",
        active="sql",
        text=Markup.escape(outcome.text),
        url=server.url,
        from_beginning=outcome.from_beginning,
        problem="",
        shown_parts=_parts(outcome.parts),
        samples=(),
        result=outcome,
        result_path=_path(outcome),
        live_path="" if is_over else f"{SQL_LIVE_PATH}?{urlencode(live)}",
        chart_kinds=KINDS,
        **_result_values(outcome, rows, chart),
    )


async def stop(visit: Visit, server: SqlAccess) -> Response:
    """Ends the query of a result; its rows stay."""
    outcome = _results(visit).get(visit.browser_id, visit.request.path_params["result"])
    outcome.stop()
    await outcome.wait(_STEP_S)
    return visit.redirect(_path(outcome))


def _results(visit: Visit) -> SqlResults:
    assert visit.console.sql is not None
    return visit.console.sql.results


def _path(outcome: SqlResult) -> str:
    return f"/sql/results/{outcome.result_id}"


def _chart_query(visit: Visit) -> dict[str, str]:
    kind = visit.query.get("chart", "")
    if kind not in KINDS:
        return {}
    return {"chart": kind, "label": visit.query.get("label", ""), "of": visit.query.get("of", "")}


def _result_values(outcome: SqlResult, rows: list[ResultRow], chart: dict[str, str]) -> dict[str, object]:
    """Returns what the templates of a result need. A push query's newest rows come first."""
    columns = outcome.columns[:COLUMNS_MAX]
    shown = rows[-ROWS_SHOWN_MAX:][::-1] if outcome.is_push else rows
    choice = chart_choice(columns, chart.get("label", ""), chart.get("of", "")) if chart else None
    drawn: ResultChart | None = None
    if choice is not None:
        values = [row.values for row in rows if row.values is not None]
        drawn = result_chart(chart["chart"], outcome.columns, values, choice)
    return {
        "columns": columns,
        "columns_left": len(outcome.columns) - len(columns),
        "numbers": [is_number_column(kind) for _, kind in columns],
        "number_names": [name for name, kind in columns if is_number_column(kind)],
        "rows": [row_cells(row) for row in shown],
        "rows_count": len(shown),
        "chart": drawn,
        "chart_query": chart,
        "choice": choice,
        "state": outcome.state,
        "count": outcome.count,
        "failed": outcome.problem,
        "rows_shown_max": ROWS_SHOWN_MAX,
        "short": short_cell,
        "number_text": number_text,
    }


def row_cells(row: ResultRow) -> list[str | None]:
    """Returns the cells of a row; None for null. A row that cannot be decoded is one cell."""
    if row.values is None:
        return ["…"]
    return [None if value is None else short_cell(value) for value in row.values[:COLUMNS_MAX]]


def short_cell(value: object) -> str:
    """Returns a value as text, cut where it is long."""
    text = value if isinstance(value, str) else cell(value)
    return text if len(text) <= CELL_CHARS_MAX else text[:CELL_CHARS_MAX] + "…"


def number_text(value: float) -> str:
    """Returns a number of a chart; whole ones without a point."""
    is_whole = value == int(value) and abs(value) < _WHOLE_MAX
    return str(int(value)) if is_whole else f"{value:.6g}"


class _ShownPart(TypedDict):
    """A part of a result as the template draws it: a table, of which `left` rows are not shown, or lines of text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    left: int
    lines: list[str]


def _parts(parts: tuple[str | TextTable, ...]) -> list[_ShownPart]:
    """Returns texts as lines and tables as rows, within limits."""
    shown: list[_ShownPart] = []
    for part in parts:
        if isinstance(part, TextTable):
            rows = part.rows[:PART_ROWS_MAX]
            shown.append(
                {"columns": part.columns, "rows": rows, "left": len(part.rows) - len(rows), "lines": []}
            )
        elif shown and not shown[-1]["columns"]:
            shown[-1]["lines"] += part[:PART_CHARS_MAX].splitlines()
        else:
            lines = part[:PART_CHARS_MAX].splitlines()
            shown.append({"columns": (), "rows": (), "left": 0, "lines": lines})
    return shown


async def live(visit: Visit, server: SqlAccess) -> Response:
    """Server-sent events: rows of a result as they arrive, its state, its chart."""
    outcome = _results(visit).get(visit.browser_id, visit.query.get("id", ""))
    if visit.console.live_streams >= LIVE_STREAMS_MAX:
        return Response(status_code=503)
    seen = visit.request.headers.get("last-event-id", "") or visit.query.get("after", "")
    after = int(seen) if is_digits(seen) and len(seen) <= _DIGITS_MAX else 0
    return event_stream(_events(visit, outcome, after), visit.console.ended)


async def _events(visit: Visit, outcome: SqlResult, after: int) -> AsyncGenerator[str, None]:
    console, results, chart = visit.console, _results(visit), _chart_query(visit)
    console.live_streams += 1
    results.watch(outcome)
    try:
        yield "retry: 2000\n\n"
        began_s = console.clock.monotonic()
        while console.clock.monotonic() - began_s < LIVE_S:
            is_over, fresh = outcome.is_over, outcome.rows(after)
            if fresh or is_over:
                shown = fresh[-EVENT_ROWS_MAX:] if outcome.is_push else fresh
                values = _result_values(outcome, outcome.rows() if chart else shown, chart)
                if fresh:
                    after = fresh[-1].number
                    values["rows"] = [row_cells(row) for row in (shown[::-1] if outcome.is_push else shown)]
                    yield _event(visit, "rows", "sql/result_rows.html", values, after)
                values["result"] = outcome
                yield _event(visit, "state", "sql/result_state.html", values, after)
                if chart:
                    yield _event(visit, "chart", "sql/result_chart.html", values, after)
            if is_over:
                yield "event: end\ndata: end\n\n"
                return
            if not fresh:
                yield ": alive\n\n"
            await asyncio.sleep(_STEP_S)
            if not await visit.admit():
                return
    finally:
        console.live_streams -= 1
        results.leave(visit.browser_id, outcome)


def _event(visit: Visit, name: str, template: str, values: dict[str, object], number: int) -> str:
    html = visit.console.templates.get_template(template).render(**visit.values() | values)
    lines = [line for line in html.splitlines() if line.strip()] or [""]
    data = "".join(f"data: {line}\n" for line in lines)
    return f"event: {name}\nid: {number}\n{data}\n"


async def complete(visit: Visit, server: SqlAccess) -> Response:
    """Sends the names and words that may follow the text before the cursor, as JSON."""
    server.refresh_names()
    before = visit.query.get("before", "")[-BEFORE_CHARS_MAX:]
    try:
        matches = [
            {"text": text, "kind": kind, "replaces": count}
            for text, kind, count in islice(server.names.matching(before), COMPLETIONS_MAX)
        ]
    except OdradekError:
        matches = []
    return Response(json.dumps(matches), media_type="application/json")


PAGES: Final = (
    ConsolePage(path="/sql/editor", show=with_sql(show), act=with_sql(run), changes_cluster=False),
    ConsolePage(
        path="/sql/results/{result}", show=with_sql(show_result), act=with_sql(stop), changes_cluster=False
    ),
    ConsolePage(path="/sql/complete", show=with_sql(complete)),
    ConsolePage(path=SQL_LIVE_PATH, show=with_sql(live)),
)
