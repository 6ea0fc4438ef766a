"""Views over HTTP, as an ASGI application: GET /tables, /tables/NAME, /tables/NAME/KEY. One line of JSON each."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.telemetry import events
from odradek.views.aio import AsyncTableView
from odradek.views.http.answers import (
    continued,
    error_as_json,
    freshness_as_json,
    limit_of,
    line,
    row_as_json,
    time_of,
    token_of,
)
from odradek.views.reads import KeyRange, TableRow

_log = events.caused_by_peers("views")

_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """The limits of requests and answers."""

    requests_max: int = 256
    """The requests that are served at the same time; more are refused."""
    rows_default: int = 100
    rows_max: int = 1_000
    answer_s: float = 30.0
    """A request that takes longer, or whose client does not read, is given up."""


DEFAULT_HTTP_LIMITS: Final = HttpLimits()


def application(
    views: Mapping[str, AsyncTableView],
    limits: HttpLimits = DEFAULT_HTTP_LIMITS,
    hosts: frozenset[str] | None = None,
) -> ASGIApp:
    """Returns the ASGI application that serves views. `hosts`: names that a request's Host may have; None: any. On loopback,
    others come from web pages of strangers."""
    tables = _Tables(views, limits)
    app = Starlette(
        routes=[
            Route("/tables", tables.list_tables, methods=["GET"]),
            Route("/tables/{name}", tables.rows, methods=["GET"]),
            Route("/tables/{name}/{key:path}", tables.row, methods=["GET"]),
        ],
        exception_handlers={Exception: _unexpected, OdradekError: _failed, HTTPException: _refused},  # type: ignore[dict-item]
    )
    return _Gate(app, limits, hosts)


class _Gate:
    """Admits requests up to a number at a time, and only those whose Host names this server."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._limits = limits
        self._hosts = hosts
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer_error(refusal)(scope, receive, send)
            return
        self._inside += 1
        try:
            async with asyncio.timeout(self._limits.answer_s):
                await self._app(scope, receive, send)
        finally:
            self._inside -= 1

    def _refusal(self, scope: Scope) -> KafkaError | None:
        if self._inside >= self._limits.requests_max:
            return KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{self._limits.requests_max} requests are being answered: try again soon",
            )
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if self._hosts is not None and name.lower() not in self._hosts:
            return KafkaError(
                ErrorCode.INVALID_REQUEST, f"this server answers only for {', '.join(sorted(self._hosts))}"
            )
        return None


class _Tables:
    """The handlers."""

    def __init__(self, views: Mapping[str, AsyncTableView], limits: HttpLimits) -> None:
        self._views = views
        self._limits = limits

    async def list_tables(self, request: Request) -> Response:
        how = request.query_params.get("freshness", "full")
        return _answer(
            {
                "tables": [
                    {
                        "table": name,
                        "key_format": view.codec.keys.name,
                        "value_format": view.codec.values.name,
                        "estimated_count": view.estimated_count(),
                        "freshness": freshness_as_json(view.freshness(), how),
                    }
                    for name, view in self._views.items()
                ]
            }
        )

    async def rows(self, request: Request) -> Response:
        """Returns all rows, from= one key to= another, or those with a prefix=."""
        view, asked = self._view(request), request.query_params
        start, end, prefix = asked.get("from"), asked.get("to"), asked.get("prefix")
        codec = view.codec
        if prefix is not None:
            if start is not None or end is not None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "give prefix=, or from= and to=, not both")
            keys = codec.prefix_range(codec.parsed(prefix))
        else:
            keys = codec.key_range(
                None if start is None else codec.parsed(start), None if end is None else codec.parsed(end)
            )
        return await self._page(request, view, keys)

    async def row(self, request: Request) -> Response:
        """Answers with one row; of a windowed table, with the key's windows that start from= a time to= another."""
        view, asked = self._view(request), request.query_params
        key = view.codec.parsed(request.path_params["key"])
        from_ms, to_ms = time_of(asked.get("from"), "from"), time_of(asked.get("to"), "to")
        if view.codec.is_windowed or from_ms is not None or to_ms is not None:
            return await self._page(request, view, view.codec.window_range(key, from_ms, to_ms))
        value = await view.get(key, _MISSING)
        if value is _MISSING:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, f"table {request.path_params['name']} has no key {key!r}"
            )
        return _answer(row_as_json(TableRow(key, value)) | _freshness(request, view))

    async def _page(self, request: Request, view: AsyncTableView, keys: KeyRange) -> Response:
        asked = request.query_params
        limit = limit_of(asked.get("limit"), self._limits.rows_default, self._limits.rows_max)
        page = await view.page(continued(keys, asked.get("token")), limit)
        rows = {"rows": [row_as_json(row) for row in page.rows], "next": token_of(page.next_start)}
        return _answer(rows | _freshness(request, view))

    def _view(self, request: Request) -> AsyncTableView:
        name = request.path_params["name"]
        view = self._views.get(name)
        if view is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no table {name!r} here: there are {', '.join(self._views) or 'none'}",
            )
        return view


def _freshness(request: Request, view: AsyncTableView) -> dict[str, object]:
    how = request.query_params.get("freshness", "full")
    return {"freshness": freshness_as_json(view.freshness(), how)}


def _answer(value: object, status: int = 200) -> Response:
    return Response(line(value), status, media_type="application/json")


def _answer_error(error: Exception) -> Response:
    status, body = error_as_json(error)
    response = _answer(body, status)
    if status == 503:
        response.headers["Retry-After"] = "1"
    return response


async def _failed(_: Request, error: OdradekError) -> Response:
    return _answer_error(error)


async def _refused(request: Request, error: HTTPException) -> Response:
    """Starlette's own: a path or a method that is not there."""
    body = error_as_json(
        KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{request.method} {request.url.path[:200]}: there is GET /tables, /tables/NAME and /tables/NAME/KEY",
        )
    )[1]
    return _answer(body, error.status_code)


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("view_request_failed", path=request.url.path[:200], reason=f"{type(error).__name__}: {error}")
    return _answer_error(error)
