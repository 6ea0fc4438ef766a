"""The console as an ASGI application: routes from pages, and what is the same for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from odradek.client.network.errors import explain
from odradek.console.web.console import LIVE_STREAMS_MAX, STATIC, Console
from odradek.console.web.gate import LIVE_PATH, ConsoleGate
from odradek.console.web.sessions import new_id
from odradek.console.web.streams import event_stream
from odradek.console.web.visit import SESSION_COOKIE, ForgedFormError, Visit
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.telemetry import events

_log = events.get("console")

LIVE_STEP_S: Final = 1.0
LIVE_STREAM_S: Final = 900.0
"""A stream of updates ends after this; browsers open it again."""
_STATUS: Final = {
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
}
_NOT_FOUND: Final = 404
_TEXTS: Final = {403: "error.forbidden", 404: "error.not_found", 405: "error.method"}

Handler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePage:
    """A path, and what answers it."""

    path: str
    show: Handler | None = None
    """Answers GET."""
    act: Handler | None = None
    """Answers POST; `visit.form` is read and its token checked."""
    is_public: bool = False
    """Whether a visitor sees it without a login."""
    changes_cluster: bool = True
    """Whether `act` is refused in read-only mode."""
    is_from_elsewhere: bool = False
    """Whether another site sends browsers here. Then they have no cookies of the console, and do not get new ones."""


def application(console: Console, pages: Iterable[ConsolePage]) -> ASGIApp:
    """Returns the whole application, inside its gate."""
    routes = [Route(page.path, _endpoint(console, page), methods=_methods(page)) for page in pages]
    app = Starlette(
        routes=[
            *routes,
            Route(LIVE_PATH, _live(console), methods=["GET"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        exception_handlers={HTTPException: _missing(console)},  # type: ignore[dict-item]
    )
    return ConsoleGate(app, console.options.hosts)


def _methods(page: ConsolePage) -> list[str]:
    return [method for method, handler in (("GET", page.show), ("POST", page.act)) if handler is not None]


def _endpoint(console: Console, page: ConsolePage) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        visit, is_new = _visit(console, request)
        if is_new and _is_link_of_another_site(request) and not page.is_from_elsewhere:
            return visit.render("reload.html", back=visit.here())
        response = await _respond(visit, page)
        if page.is_from_elsewhere:
            return response
        cookies = response.headers.getlist("set-cookie")
        if is_new and not any(value.startswith(f"{SESSION_COOKIE}=") for value in cookies):
            set_session_cookie(console, response, visit.browser_id)
        return response

    return endpoint


def _visit(console: Console, request: Request) -> tuple[Visit, bool]:
    browser_id = request.cookies.get(SESSION_COOKIE, "")
    return Visit(console, request, browser_id or new_id()), not browser_id


async def _respond(visit: Visit, page: ConsolePage) -> Response:
    is_post = visit.request.method == "POST"
    try:
        if not await visit.admit() and not page.is_public:
            back = visit.here() if not is_post else "/"
            return visit.redirect(f"/login?{_next(back)}" if back != "/" else "/login")
        if not is_post:
            assert page.show is not None
            return await page.show(visit)
        assert page.act is not None
        await visit.read_form()
        if page.changes_cluster and visit.console.options.read_only:
            return failure(visit, 403, visit.catalogue.text("error.read_only"))
        return await page.act(visit)
    except ForgedFormError:
        return failure(visit, 403, visit.catalogue.text("error.forged"))
    except KafkaError as error:
        return failure(visit, _STATUS.get(error.code, 502), explain(error))
    except OdradekError as error:
        return failure(visit, 502, explain(error))
    except Exception as error:  # noqa: BLE001 - the root of a request: our own bug, logged, and shown as one line
        _log.exception("console_request_failed", path=visit.request.url.path[:200])
        return failure(visit, 500, visit.catalogue.text("error.unexpected", kind=type(error).__name__))


def _is_link_of_another_site(request: Request) -> bool:
    """Browsers follow links of other sites without our cookie (SameSite). A reload of the page from itself has it."""
    return (
        request.headers.get("sec-fetch-site") == "cross-site"
        and request.headers.get("sec-fetch-mode") == "navigate"
    )


def failure(visit: Visit, status: int, line: str) -> Response:
    """Returns the page that tells in one line what went wrong."""
    return visit.render("failure.html", status, line=line)


def set_session_cookie(console: Console, response: Response, browser_id: str) -> None:
    """Gives the browser its id: no script reads it, and no other site sends it."""
    response.set_cookie(
        SESSION_COOKIE, browser_id, httponly=True, samesite="strict", secure=console.options.secure_cookies
    )


def _next(path: str) -> str:
    return urlencode({"next": path})


def _missing(console: Console) -> Callable[[Request, HTTPException], Awaitable[Response]]:
    async def missing(request: Request, error: HTTPException) -> Response:
        visit, _ = _visit(console, request)
        await visit.admit()
        key = _TEXTS.get(error.status_code, "error.not_found")
        return failure(visit, error.status_code, visit.catalogue.text(key))

    return missing


def _live(console: Console) -> Callable[[Request], Awaitable[Response]]:
    """Server-sent events: one line each time the model has changed. The page then loads its live parts again."""

    async def live(request: Request) -> Response:
        visit, _ = _visit(console, request)
        if not await visit.admit():
            return Response(status_code=401)
        if console.live_streams >= LIVE_STREAMS_MAX:
            return Response(status_code=503)
        return event_stream(_versions(console, visit), console.ended)

    return live


async def _versions(console: Console, visit: Visit) -> AsyncGenerator[str, None]:
    console.live_streams += 1
    try:
        yield "retry: 3000\n\n"
        version, began_s = visit.snapshot.version, console.clock.monotonic()
        while console.clock.monotonic() - began_s < LIVE_STREAM_S:
            await asyncio.sleep(LIVE_STEP_S)
            visit.model.touch()
            if visit.snapshot.version != version:
                version = visit.snapshot.version
                yield f"event: changed\ndata: {version}\n\n"
            else:
                yield ": alive\n\n"
            if not await visit.admit():
                return
    finally:
        console.live_streams -= 1
