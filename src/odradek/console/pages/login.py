"""Login by name and password of the cluster's own SASL, and the end of it."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from odradek.client.aio import AsyncAdmin
from odradek.console.oidc.transport import ProviderRefusedError, ProviderUnavailableError
from odradek.console.web.application import ConsolePage, set_session_cookie
from odradek.console.web.sessions import new_id
from odradek.console.web.visit import Visit, own_path
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.telemetry import events

_log = events.caused_by_peers("console")

NAME_LENGTH_MAX: Final = 256
PASSWORD_LENGTH_MAX: Final = 1024
CHECK_S: Final = 10.0
_REFUSED: Final = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE})


async def show(visit: Visit) -> Response:
    """Shows the form, or skips it if there is nothing to log in to."""
    if visit.principal is not None:
        return visit.redirect(own_path(visit.query.get("next", "/")))
    back = own_path(visit.query.get("next", "/"))
    provider = visit.console.provider
    logout_url = ""
    if provider is not None and "ended" in visit.query:
        try:
            logout_url = await provider.logout_url()
        except (ProviderUnavailableError, ProviderRefusedError) as error:
            _log.warning("console_provider_unread", reason=str(error))
    return _form(visit, back, logout_url=logout_url)


async def log_in(visit: Visit) -> Response:
    """Tries name and password on the cluster; the id of the session is a new one."""
    console = visit.console
    if not console.options.asks_for_login or console.provider is not None:
        return visit.redirect("/")
    name, password = visit.form.get("name", ""), visit.form.get("password", "")
    back = own_path(visit.form.get("next", "/"))
    if not name or len(name) > NAME_LENGTH_MAX or len(password) > PASSWORD_LENGTH_MAX:
        return _form(visit, back, name, visit.catalogue.text("login.refused"), 401)
    address = visit.request.client.host if visit.request.client is not None else ""
    subjects = (f"name {name}", f"address {address}")
    now_s = console.clock.monotonic()
    wait_s = console.attempts.wait_s(subjects, now_s)
    if wait_s > 0:
        line = visit.catalogue.text("login.wait", time=visit.catalogue.seconds(wait_s + 0.5))
        return _form(visit, back, name, line, 429)
    console.attempts.fail(subjects, now_s)  # before the check: many attempts at the same time count, too
    settings = console.settings_of(name, password)
    try:
        await visit.run(check_login(console.options.bootstrap, settings))
    except KafkaError as error:
        if error.code in _REFUSED:
            _log.warning("console_login_refused", name=name, address=address)
            return _form(visit, back, name, visit.catalogue.text("login.refused"), 401)
        for subject in subjects:
            console.attempts.forgive(subject)
        raise
    console.attempts.forget(subjects[0])
    console.attempts.forgive(subjects[1])
    await console.end_session(visit.browser_id)
    await console.models.replace(name, settings)
    response = visit.redirect(back)
    set_session_cookie(console, response, console.sessions.begin(name, password, now_s))
    return response


async def log_out(visit: Visit) -> Response:
    """Ends the session. The login's connections end with its last one."""
    await visit.console.end_session(visit.browser_id)
    response = visit.redirect("/login?ended=1" if visit.console.provider is not None else "/login")
    set_session_cookie(visit.console, response, new_id())
    return response


async def check_login(bootstrap: str, settings: ClientSettings) -> None:
    """Logs in to the cluster, and out again. Raises the cluster's error."""
    async with AsyncAdmin(bootstrap, **settings) as admin:
        await admin.describe_cluster(timeout_s=CHECK_S)


def _form(
    visit: Visit, back: str, name: str = "", line: str = "", status: int = 200, logout_url: str = ""
) -> Response:
    provider = visit.console.provider
    return visit.render(
        "login.html",
        status,
        next=back,
        name=name,
        line=line,
        provider="" if provider is None else provider.name,
        logout_url=logout_url,
    )


PAGES: Final = (
    ConsolePage(path="/login", show=show, act=log_in, is_public=True, changes_cluster=False),
    ConsolePage(path="/logout", act=log_out, is_public=True, changes_cluster=False),
)
