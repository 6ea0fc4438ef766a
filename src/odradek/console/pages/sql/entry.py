"""Shared parts of the SQL pages: the server with the visitor's login, and what is shown where there is no server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.console.sql.access import SqlAccess
from odradek.console.web.application import Handler, failure
from odradek.console.web.visit import Visit, own_path
from odradek.sql.rest_client import ServerRefusal, ServerUnreachable

LOGIN_PATH: Final = "/sql/login"
_UNAUTHORIZED, _FORBIDDEN = (401, 403)
_CODES_PER_STATUS: Final = 100
"""A code of ksqlDB is the HTTP status, then two digits."""
SqlHandler = Callable[[Visit, SqlAccess], Awaitable[Response]]


def with_sql(handler: SqlHandler) -> Handler:
    """Returns a handler of the console: it answers with help where there is no SQL server, or no login for it."""

    async def handle(visit: Visit) -> Response:
        servers = visit.console.sql
        if servers is None:
            return visit.render("sql/none.html", active="sql")
        user, password = servers.terms.user, servers.terms.password
        if needs_sql_login(visit):
            session = visit.console.sessions.get(visit.browser_id, visit.console.clock.monotonic())
            if session is None or not session.sql_user:
                back = visit.here() if visit.request.method == "GET" else "/sql"
                return visit.redirect(f"{LOGIN_PATH}?{_next(back)}")
            user, password = session.sql_user, session.sql_password
        try:
            return await handler(visit, servers.of(visit.principal or "", user, password))
        except ServerRefusal as refusal:
            status = refusal.code // _CODES_PER_STATUS
            if status == _UNAUTHORIZED:
                return failure(visit, 502, visit.catalogue.text("sql.unauthorized", url=servers.terms.url))
            return failure(visit, 403 if status == _FORBIDDEN else 502, refusal.message)
        except ServerUnreachable as error:
            return failure(visit, 502, str(error))

    return handle


def needs_sql_login(visit: Visit) -> bool:
    """Tells whether each user of the console logs in to the SQL server with a login of their own."""
    servers = visit.console.sql
    return servers is not None and visit.console.options.asks_for_login and not servers.terms.is_shared


def _next(path: str) -> str:
    return urlencode({"next": own_path(path)})
