"""Logins to the console at an identity provider: the way there and back, tokens that end, and what attackers try."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from tests.kit.waiting import until
from tests.scenarios.console.conftest import ADDRESS, HOSTS, Browser
from tests.security.logins.identity_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    IdentityProvider,
    SigningKey,
    encoded,
)

from odradek.client import Admin, NewTopic
from odradek.console.oidc.provider import OidcOptions
from odradek.console.pages.oidc_login import FLOW_COOKIE
from odradek.console.web.console import Console, ConsoleOptions
from odradek.console.web.sessions import FREE_ATTEMPTS
from odradek.console.web.visit import SESSION_COOKIE
from odradek.model.errors import ConfigError
from odradek.runtime.real_clock import SystemClock
from odradek.testing import LocalBroker

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class ShiftedClock(SystemClock):
    """The system's clock, ahead by some seconds."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s

    def wall_ms(self) -> int:
        return super().wall_ms() + int(self.ahead_s * 1000)


@pytest.fixture(autouse=True)
def _callbacks_are_short() -> None:
    """Takes the place of the check of callbacks: the console has a thread for callbacks that decode large answers."""


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey("first")


@pytest.fixture(scope="module")
def broker(key: SigningKey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    keys: Path = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(json.dumps({"keys": [key.jwk()]}))
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "connection.failed.authentication.delay.ms": "1",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ann",
    }
    with LocalBroker(settings) as running:
        yield running


@dataclass(slots=True)
class Meeting:
    """A console, a broker and a provider that know each other, and a browser."""

    browser: Browser
    provider: IdentityProvider
    clock: ShiftedClock
    broker: LocalBroker

    async def begin(self, back: str = "/topics") -> str:
        """Returns the address of the provider to which the console sends the browser."""
        page = await self.browser.get("/login/oidc", params={"next": back})
        assert page.status_code == 303, page.text
        return page.headers["location"]

    async def come_back(self, url: str) -> httpx.Response:
        """Follows the provider's redirect, as browsers do: without cookies that are for the console alone."""
        session = self.browser.http.cookies.get(SESSION_COOKIE)
        if session is not None:
            self.browser.http.cookies.delete(SESSION_COOKIE)
        page = await self.browser.get(
            url.removeprefix(ADDRESS), headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        )
        if session is not None and SESSION_COOKIE not in page.cookies:
            self.browser.http.cookies.set(SESSION_COOKIE, session, domain="127.0.0.1")
        return page

    async def log_in(self, back: str = "/topics") -> httpx.Response:
        return await self.come_back(self.provider.authorized(await self.begin(back)))

    @property
    def sessions(self) -> int:
        return len(self.browser.console.sessions)


def options_of(provider: IdentityProvider, **changes: Any) -> OidcOptions:
    fields = {
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "public_url": ADDRESS,
        **changes,
    }
    return OidcOptions(**fields)


@pytest.fixture
async def meeting(broker: LocalBroker, key: SigningKey) -> AsyncIterator[Meeting]:
    clock = ShiftedClock()
    provider = IdentityProvider(clock)
    provider.key = key
    with provider.running():
        options = ConsoleOptions(
            bootstrap=broker.address,
            settings={"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
            asks_for_login=True,
            hosts=HOSTS,
            oidc=options_of(provider),
        )
        console = Console(options, clock)
        browser = Browser(console)
        try:
            yield Meeting(browser, provider, clock, broker)
        finally:
            await browser.http.aclose()
            await console.close()


async def test_a_user_goes_to_the_provider_comes_back_and_sees_the_cluster(
    meeting: Meeting, key: SigningKey
) -> None:
    asks = await meeting.browser.get("/topics")
    assert asks.headers["location"].startswith("/login?next=")
    page = await meeting.browser.get("/login?next=/topics")
    assert urlsplit(meeting.provider.issuer).netloc in page.text
    assert 'name="password"' not in page.text
    url = await meeting.begin("/topics?search=a")
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    assert query["redirect_uri"] == f"{ADDRESS}/login/callback"
    cookie = next(
        line
        for line in (await meeting.browser.get("/login/oidc")).headers.get_list("set-cookie")
        if FLOW_COOKIE in line
    )
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/login" in cookie
    url = await meeting.begin("/topics?search=a")
    done = await meeting.come_back(meeting.provider.authorized(url))
    assert done.status_code == 200, done.text
    assert 'content="0;url=/topics?search=a"' in done.text
    session = next(
        line for line in done.headers.get_list("set-cookie") if line.startswith(f"{SESSION_COOKIE}=")
    )
    assert "HttpOnly" in session
    assert "SameSite=strict" in session
    shown = await meeting.browser.get("/")
    assert shown.status_code == 200
    assert "ann@example" in shown.text
    for text in (done.text, shown.text, str(done.headers), repr(meeting.browser.console.options)):
        assert "eyJ" not in text, "tokens stay on the server"
        assert CLIENT_SECRET not in text
    assert meeting.provider.asked == ["authorization_code"]

    def create() -> None:
        token = key.signed({"sub": "ann", "aud": "kafka", "exp": meeting.clock.wall_ms() // 1000 + 60})
        with Admin(
            meeting.broker.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token=token,
        ) as admin:
            admin.create_topics([NewTopic("hers", 1)])

    await asyncio.to_thread(create)
    await until(lambda: meeting.browser.get("/topics"), holds=lambda page: "hers</a>" in page.text)


async def refused(meeting: Meeting, url: str, status: int, line: str) -> None:
    page = await meeting.come_back(url)
    assert page.status_code == status, page.text
    assert line in html.unescape(page.text)
    assert not any(value.startswith(f"{SESSION_COOKIE}=") for value in page.headers.get_list("set-cookie"))
    assert meeting.sessions == 0


async def test_an_answer_with_another_state_is_refused_before_its_code_is_used(meeting: Meeting) -> None:
    for state in ("", "x" * 43, "\u00e9"):
        url = await meeting.begin()
        await refused(meeting, meeting.provider.authorized(url, state=state), 403, "another login (state)")
    assert meeting.provider.asked == []


async def test_an_attackers_code_is_no_login_of_the_victim(meeting: Meeting) -> None:
    """The attacker begins a login of their own, and has the victim's browser open the last redirect."""
    attacker = Browser(meeting.browser.console)
    theirs = await attacker.get("/login/oidc")
    planted = meeting.provider.authorized(theirs.headers["location"])
    await refused(meeting, planted, 400, "not begun here")
    mine = parse_qs(urlsplit(await meeting.begin()).query)["state"][0]
    stolen = re.sub(r"state=[^&]+", f"state={mine}", planted)
    await refused(meeting, stolen, 403, "invalid_grant")  # PKCE: the code belongs to the attacker's verifier
    await attacker.http.aclose()


async def test_nothing_counts_twice(meeting: Meeting) -> None:
    url = await meeting.begin()
    flow = meeting.browser.http.cookies[FLOW_COOKIE]
    back = meeting.provider.authorized(url)
    assert (await meeting.come_back(back)).status_code == 200
    assert FLOW_COOKIE not in meeting.browser.http.cookies
    assert meeting.sessions == 1
    meeting.browser.http.cookies.set(FLOW_COOKIE, flow, domain="127.0.0.1", path="/login")
    replayed = await meeting.come_back(back)
    assert (replayed.status_code, meeting.sessions) == (400, 1)
    code = parse_qs(urlsplit(back).query)["code"][0]
    again = meeting.provider.authorized(await meeting.begin(), code=code)
    assert (await meeting.come_back(again)).status_code == 403
    assert meeting.sessions == 1


async def test_a_flow_is_forgotten_after_a_while_and_no_one_makes_one(meeting: Meeting) -> None:
    back = meeting.provider.authorized(await meeting.begin())
    meeting.clock.ahead_s += 601
    await refused(meeting, back, 400, "too long ago")
    for cookie in ("", "x", "W10.x", "a" * 5_000, "."):
        meeting.browser.http.cookies.set(FLOW_COOKIE, cookie, domain="127.0.0.1", path="/login")
        await refused(meeting, back, 400, "not begun here")
    assert meeting.provider.asked == []


def unsigned(claims: dict[str, Any]) -> str:
    return ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "none"}, claims)) + "."


async def test_id_tokens_that_are_not_for_this_login_are_refused(meeting: Meeting, key: SigningKey) -> None:
    other = SigningKey("other")
    namesake = SigningKey("first")

    def by_hmac(claims: dict[str, Any]) -> str:
        header = {"alg": "HS256", "kid": "first"}
        parts = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        return f"{parts}.{encoded(hmac.digest(key.jwk()['n'].encode(), parts.encode(), hashlib.sha256))}"

    now_s = meeting.clock.wall_ms() // 1000
    attempts: list[tuple[dict[str, Any], Any, str]] = [
        ({"nonce": "another"}, None, "nonce"),
        ({"nonce": None}, None, "nonce"),
        ({"aud": "another-client"}, None, "audience"),
        ({"aud": [CLIENT_ID, "another"]}, None, "azp"),
        ({"azp": "another"}, None, "azp"),
        ({"iss": "https://evil.example"}, None, "issuer"),
        ({"exp": now_s - 3600}, None, "expired"),
        ({"exp": None}, None, "expires"),
        ({"iat": now_s + 3600}, None, "future"),
        ({"sub": ""}, None, "who it is for"),
        ({}, unsigned, "algorithm"),
        ({}, by_hmac, "algorithm"),
        ({}, other.signed, "not known"),
        ({}, namesake.signed, "signature"),
        ({}, lambda claims: "no.token", "no JWT"),
    ]
    for claims, forge, line in attempts:
        meeting.provider.claims, meeting.provider.forge = claims, forge
        meeting.browser.console.attempts.forget("address 127.0.0.1")
        page = await meeting.log_in()
        assert page.status_code == 403, (claims, line)
        assert line in html.unescape(page.text), (claims, line)
        assert meeting.sessions == 0


async def test_answers_of_another_provider_are_refused(meeting: Meeting) -> None:
    for issuer in ("https://evil.example", ""):
        back = meeting.provider.authorized(await meeting.begin(), iss=issuer)
        await refused(meeting, back, 403, "another identity provider (iss)")
    assert meeting.provider.asked == []


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        ({"issuer": "https://evil.example"}, "is not of --oidc-issuer"),
        ({"token_endpoint": "http://evil.example/token"}, "expected https"),
        ({"token_endpoint": "javascript:alert(1)"}, "token_endpoint"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"jwks_uri": None}, "jwks_uri"),
    ],
)
async def test_metadata_that_does_not_fit_begins_no_login(
    meeting: Meeting, metadata: dict[str, Any], line: str
) -> None:
    meeting.provider.metadata = metadata
    page = await meeting.browser.get("/login/oidc")
    assert page.status_code == 502
    assert line in html.unescape(page.text)


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nx: y"])
async def test_a_login_leads_to_no_other_site(meeting: Meeting, back: str) -> None:
    done = await meeting.log_in(back)
    assert done.status_code == 200
    assert 'content="0;url=/"' in done.text
    assert "evil" not in done.text


async def test_a_login_begins_at_the_address_to_which_it_comes_back(meeting: Meeting) -> None:
    page = await meeting.browser.get("/login/oidc?next=/groups", headers={"host": "127.0.0.1:1"})
    assert page.headers["location"] == f"{ADDRESS}/login/oidc?next=%2Fgroups"
    assert FLOW_COOKIE not in page.cookies


async def test_a_login_that_the_user_or_the_cluster_refuses_says_why(meeting: Meeting) -> None:
    denied = meeting.provider.authorized(
        await meeting.begin(), code="", error="access_denied", error_description="<b>no</b>"
    )
    page = await meeting.come_back(denied)
    assert (page.status_code, "<b>no" in page.text) == (403, False)
    assert "access_denied" in page.text
    meeting.provider.audience = "another"
    page = await meeting.log_in()
    assert page.status_code == 403
    assert "does not accept the token" in page.text
    assert meeting.sessions == 0


async def test_wrong_answers_are_slowed_down(meeting: Meeting) -> None:
    statuses = []
    for _ in range(FREE_ATTEMPTS + 1):
        page = await meeting.come_back(meeting.provider.authorized(await meeting.begin(), code="guessed"))
        statuses.append(page.status_code)
    assert statuses == [403] * FREE_ATTEMPTS + [429]


async def test_a_token_is_refreshed_once_for_all_requests_and_the_pages_go_on(meeting: Meeting) -> None:
    await meeting.log_in()
    await until(lambda: meeting.browser.get("/"), holds=lambda page: "Nothing was read yet" not in page.text)
    meeting.clock.ahead_s += meeting.provider.lifetime_s * 0.7
    assert (await meeting.browser.get("/topics")).status_code == 200
    assert meeting.provider.asked == ["authorization_code"], "it was fresh enough"
    meeting.clock.ahead_s += meeting.provider.lifetime_s * 0.2
    pages = await asyncio.gather(*(meeting.browser.get("/topics") for _ in range(8)))
    assert {page.status_code for page in pages} == {200}
    assert meeting.provider.asked == ["authorization_code", "refresh_token"]
    assert "Nothing was read yet" not in pages[0].text
    assert len(meeting.browser.console.models) == 1


@pytest.mark.parametrize("why", ["refused", "another user"])
async def test_a_session_ends_with_a_token_that_is_not_refreshed(meeting: Meeting, why: str) -> None:
    await meeting.log_in()
    assert meeting.sessions == 1
    if why == "refused":
        meeting.provider.refuses_refresh = True
    else:
        meeting.provider.subject = "bob"
    meeting.clock.ahead_s += meeting.provider.lifetime_s + 1
    page = await meeting.browser.get("/topics")
    assert page.headers["location"].startswith("/login")
    assert (meeting.sessions, len(meeting.browser.console.models)) == (0, 0)
    assert (await meeting.browser.get("/live")).status_code == 401


async def test_a_logout_ends_the_session_its_connections_and_its_refresh_token(meeting: Meeting) -> None:
    await meeting.log_in()
    gone = await meeting.browser.submit("/logout", on="/topics")
    assert gone.headers["location"] == "/login?ended=1"
    assert (meeting.sessions, len(meeting.browser.console.models)) == (0, 0)
    page = await meeting.browser.get("/login?ended=1")
    assert html.escape(f"{meeting.provider.issuer}/logout?client_id=console") in page.text
    await until(lambda: any(line.startswith("revoke refresh-") for line in meeting.provider.asked))
    assert (await meeting.browser.get("/topics")).status_code == 303


async def test_two_logins_of_one_user_do_not_share_a_token(meeting: Meeting) -> None:
    await meeting.log_in()
    other = Meeting(Browser(meeting.browser.console), meeting.provider, meeting.clock, meeting.broker)
    await other.log_in()
    for browser in (meeting.browser, other.browser):
        assert (await browser.get("/topics")).status_code == 200
    assert (meeting.sessions, len(meeting.browser.console.models)) == (2, 2)
    await other.browser.submit("/logout", on="/topics")
    assert (await meeting.browser.get("/topics")).status_code == 200
    await other.browser.http.aclose()


async def test_a_password_is_no_way_in(meeting: Meeting) -> None:
    tried = await meeting.browser.submit("/login", on="/login", name="ann", password="x")
    assert (tried.headers["location"], meeting.sessions) == ("/", 0)


async def test_a_provider_that_is_away_is_named(meeting: Meeting) -> None:
    url = await meeting.begin()
    back = meeting.provider.authorized(url)
    meeting.provider.forge = lambda claims: "x" * (2 << 20)
    page = await meeting.come_back(back)
    assert page.status_code == 502
    assert "too long" in page.text


async def test_a_link_of_another_site_keeps_the_session(meeting: Meeting) -> None:
    """Browsers follow it without our cookie, and must not get another one."""
    await meeting.log_in()
    stranger = Browser(meeting.browser.console)
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    page = await stranger.get("/topics?search=a", headers=headers)
    assert 'content="0;url=/topics?search=a"' in page.text
    assert "set-cookie" not in page.headers
    await stranger.http.aclose()


@pytest.mark.parametrize(
    "changes",
    [
        {"issuer": "http://evil.example"},
        {"issuer": "https://user@evil.example"},
        {"issuer": "ftp://a"},
        {"issuer": ""},
        {"public_url": "https://console.example/path"},
        {"public_url": "https://console.example?x"},
        {"public_url": "http://console.example"},
    ],
)
def test_addresses_that_would_send_secrets_in_plain_text_or_elsewhere_are_refused(
    changes: dict[str, str],
) -> None:
    with pytest.raises(ConfigError):
        options_of(IdentityProvider(SystemClock()), **{"issuer": "https://id.example", **changes})
