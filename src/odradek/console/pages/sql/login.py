"""Login to the SQL server, where each user of the console has rights of their own."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from odradek.console.pages.login import NAME_LENGTH_MAX, PASSWORD_LENGTH_MAX
from odradek.console.pages.sql.entry import LOGIN_PATH, needs_sql_login
from odradek.console.sql.access import SqlServers
from odradek.console.web.application import ConsolePage, failure
from odradek.console.web.visit import Visit, own_path
from odradek.sql.rest_client import ServerRefusal, ServerUnreachable
from odradek.telemetry import events

_log = events.caused_by_peers("console")
_UNAUTHORIZED: Final = 40100


async def show(visit: Visit) -> Response:
    """Shows the form."""
    if not needs_sql_login(visit):
        return visit.redirect("/sql")
    return _form(visit, own_path(visit.query.get("next", "/sql")))


async def log_in(visit: Visit) -> Response:
    """Tries name and password on the SQL server. A server that lets everyone in is not offered to users with other rights."""
    console, servers = visit.console, visit.console.sql
    session = console.sessions.get(visit.browser_id, console.clock.monotonic())
    if servers is None or session is None or not needs_sql_login(visit):
        return visit.redirect("/sql")
    name, password = visit.form.get("name", ""), visit.form.get("password", "")
    back = own_path(visit.form.get("next", "/sql"))
    if not name or ":" in name or len(name) > NAME_LENGTH_MAX or len(password) > PASSWORD_LENGTH_MAX:
        return _form(visit, back, name, visit.catalogue.text("login.refused"), 401)
    address = visit.request.client.host if visit.request.client is not None else ""
    subjects = (f"sql name {name}", f"sql address {address}")
    now_s = console.clock.monotonic()
    wait_s = console.attempts.wait_s(subjects, now_s)
    if wait_s > 0:
        line = visit.catalogue.text("login.wait", time=visit.catalogue.seconds(wait_s + 0.5))
        return _form(visit, back, name, line, 429)
    console.attempts.fail(subjects, now_s)  # before the check: many attempts at the same time count, too
    try:
        if await _is_open(servers, session.principal):
            return failure(visit, 403, visit.catalogue.text("sql.open_server", url=servers.terms.url))
        await servers.of(session.principal, name, password).info()
    except ServerRefusal as refusal:
        if refusal.code != _UNAUTHORIZED:
            return _form(visit, back, name, refusal.message, 502)
        _log.warning("console_sql_login_refused", name=name, address=address)
        return _form(visit, back, name, visit.catalogue.text("login.refused"), 401)
    except ServerUnreachable as error:
        for subject in subjects:
            console.attempts.forgive(subject)
        return _form(visit, back, name, str(error), 502)
    console.attempts.forget(subjects[0])
    console.attempts.forgive(subjects[1])
    session.sql_user, session.sql_password = name, password
    return visit.redirect(back)


async def _is_open(servers: SqlServers, principal: str) -> bool:
    try:
        await servers.of(principal, None, "").info()
    except ServerRefusal as refusal:
        if refusal.code == _UNAUTHORIZED:
            return False
        raise
    return True


def _form(visit: Visit, back: str, name: str = "", line: str = "", status: int = 200) -> Response:
    servers = visit.console.sql
    url = "" if servers is None else servers.terms.url
    return visit.render("sql/login.html", status, active="sql", next=back, name=name, line=line, url=url)


PAGES: Final = (ConsolePage(path=LOGIN_PATH, show=show, act=log_in, changes_cluster=False),)
