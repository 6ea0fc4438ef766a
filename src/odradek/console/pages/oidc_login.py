"""Login at the cluster's identity provider: the browser goes there with a question of ours, and comes back with a code."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode, urlsplit

from starlette.responses import Response

from odradek.client.network.errors import explain
from odradek.console.oidc.flow import FLOW_S
from odradek.console.oidc.provider import CALLBACK_PATH, OidcProvider, OidcTokens
from odradek.console.oidc.transport import ProviderRefusedError, ProviderUnavailableError
from odradek.console.pages.login import check_login
from odradek.console.web.application import ConsolePage, failure, set_session_cookie
from odradek.console.web.visit import Visit, own_path
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.telemetry import events

_log = events.caused_by_peers("console")

FLOW_COOKIE: Final = "odradek_console_flow"
_COOKIE_PATH: Final = "/login"
_REFUSED: Final = frozenset({ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE})


async def begin(visit: Visit) -> Response:
    """Sends the browser to the provider. It begins at the address to which it comes back: there its cookie counts."""
    provider = _provider(visit)
    back = own_path(visit.query.get("next", "/"))
    own = urlsplit(provider.options.origin).netloc.lower()
    if visit.request.headers.get("host", "").lower() != own:
        return visit.redirect(f"{provider.options.origin}/login/oidc?{urlencode({'next': back})}")
    cookie, flow = visit.console.flows.begin(back, visit.console.clock.monotonic())
    try:
        response = visit.redirect(await provider.authorization_url(flow))
    except (ProviderUnavailableError, ProviderRefusedError) as error:
        return failure(visit, 502, str(error))
    response.set_cookie(
        FLOW_COOKIE,
        cookie,
        max_age=int(FLOW_S),
        path=_COOKIE_PATH,
        httponly=True,
        samesite="lax",  # the browser comes back from another site, and has to send it then
        secure=visit.console.options.secure_cookies,
    )
    return response


async def come_back(visit: Visit) -> Response:
    """Checks what the browser brings, fetches the tokens, and tries them on the cluster; then begins a session."""
    console, provider = visit.console, _provider(visit)
    now_s = console.clock.monotonic()
    flow = console.flows.read(visit.request.cookies.get(FLOW_COOKIE, ""), now_s)
    if flow is None:
        return failure(visit, 400, visit.catalogue.text("login.unfinished"))
    subjects = (f"address {visit.request.client.host if visit.request.client is not None else ''}",)
    wait_s = console.attempts.wait_s(subjects, now_s)
    if wait_s > 0:
        time = visit.catalogue.seconds(wait_s + 0.5)
        return failure(visit, 429, visit.catalogue.text("login.wait", time=time))
    console.flows.use(flow, now_s)
    console.attempts.fail(subjects, now_s)
    try:
        tokens = await provider.exchange(await provider.code_of(visit.query, flow), flow)
        await _try(visit, console.settings_with(tokens))
    except ProviderUnavailableError as error:
        console.attempts.forgive(subjects[0])
        return _without_flow(failure(visit, 502, str(error)))
    except ProviderRefusedError as error:
        _log.warning("console_login_refused", address=subjects[0], reason=str(error))
        return _without_flow(failure(visit, 403, str(error)))
    except KafkaError as error:
        if error.code not in _REFUSED:
            console.attempts.forgive(subjects[0])
            raise
        _log.warning("console_login_refused", name=tokens.name, address=subjects[0], reason=explain(error))
        return _without_flow(
            failure(visit, 403, visit.catalogue.text("login.not_accepted", reason=explain(error)))
        )
    console.attempts.forgive(subjects[0])
    await console.end_session(visit.browser_id)
    return _logged_in(visit, tokens, flow.back)


async def _try(visit: Visit, settings: ClientSettings) -> None:
    await visit.run(check_login(visit.console.options.bootstrap, settings))


def _logged_in(visit: Visit, tokens: OidcTokens, back: str) -> Response:
    """Begins the session. A page leads on, and no redirect: in one from another site, browsers leave our cookie out."""
    console = visit.console
    response = visit.render("reload.html", back=own_path(back))
    session_id = console.sessions.begin(tokens.name, "", console.clock.monotonic(), tokens)
    set_session_cookie(console, response, session_id)
    return _without_flow(response)


def _without_flow(response: Response) -> Response:
    response.delete_cookie(FLOW_COOKIE, path=_COOKIE_PATH, httponly=True, samesite="lax")
    return response


def _provider(visit: Visit) -> OidcProvider:
    if visit.console.provider is None:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, visit.catalogue.text("error.not_found"))
    return visit.console.provider


PAGES: Final = (
    ConsolePage(path="/login/oidc", show=begin, is_public=True),
    ConsolePage(path=CALLBACK_PATH, show=come_back, is_public=True, is_from_elsewhere=True),
)
