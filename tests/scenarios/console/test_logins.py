"""Logging in to the console with a user of the cluster, and what others may try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.scenarios.console.conftest import Browser, browser_of, login_of, login_options, token_of

from odradek.client import Admin, NewTopic
from odradek.client.admin.users import NewPassword
from odradek.console.web.sessions import FREE_ATTEMPTS
from odradek.console.web.visit import SESSION_COOKIE
from odradek.security.acls import (
    Acl,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResourceType,
)
from odradek.testing import LocalBroker


@pytest.fixture
async def browser(secure_broker: LocalBroker) -> AsyncIterator[Browser]:
    async with browser_of(login_options(secure_broker)) as running:
        yield running


async def test_every_page_asks_for_a_login_first(browser: Browser) -> None:
    for path in ("/", "/topics", "/topics/a", "/topics/new"):
        page = await browser.get(path)
        assert page.status_code == 303
        assert page.headers["location"].startswith("/login")
    assert (await browser.get("/live")).status_code == 401
    assert len(browser.console.models) == 0


async def test_a_login_gets_a_new_id_and_leads_on(browser: Browser, secure_broker: LocalBroker) -> None:
    page = await browser.get("/login?next=/topics")
    before = browser.http.cookies[SESSION_COOKIE]
    response = await browser.post(
        "/login", token=token_of(page.text), next="/topics", **login_of(secure_broker)
    )
    assert (response.status_code, response.headers["location"]) == (303, "/topics")
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert browser.http.cookies[SESSION_COOKIE] != before
    page = await browser.get("/topics")
    assert page.status_code == 200
    assert login_of(secure_broker)["password"] not in page.text
    used = browser.http.cookies[SESSION_COOKIE]
    await browser.submit("/logout", on="/topics")
    browser.http.cookies.set(SESSION_COOKIE, used)
    assert (await browser.get("/topics")).status_code == 303
    assert len(browser.console.models) == 0


async def test_an_id_that_a_stranger_planted_is_not_kept(
    browser: Browser, secure_broker: LocalBroker
) -> None:
    browser.http.cookies.set(SESSION_COOKIE, "planted")
    await browser.submit("/login", **login_of(secure_broker))
    stranger = Browser(browser.console)
    stranger.http.cookies.set(SESSION_COOKIE, "planted")
    assert (await stranger.get("/topics")).status_code == 303
    await stranger.http.aclose()


async def test_wrong_passwords_are_refused_and_slowed_down(
    browser: Browser, secure_broker: LocalBroker
) -> None:
    name = login_of(secure_broker)["name"]
    for _ in range(FREE_ATTEMPTS):
        refused = await browser.submit("/login", name=name, password="wrong")
        assert refused.status_code == 401
        assert "refuses this name and password" in refused.text
    slowed = await browser.submit("/login", **login_of(secure_broker))
    assert slowed.status_code == 429
    assert len(browser.console.sessions) == 0


async def test_a_user_sees_what_their_acls_allow(browser: Browser, secure_broker: LocalBroker) -> None:
    def prepare() -> None:
        with Admin.from_config(
            {"bootstrap.servers": secure_broker.address, **secure_broker.client_settings}
        ) as admin:
            admin.create_topics([NewTopic("hers", 1), NewTopic("secret", 1)])
            admin.alter_users({"ann": NewPassword(password="ann's own")})
            pattern = AclPattern(AclResourceType.TOPIC, "hers")
            admin.create_acls([Acl(pattern, "User:ann", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)])

    await asyncio.to_thread(prepare)
    await browser.submit("/login", name="ann", password="ann's own")
    page = await browser.get("/topics")
    assert "hers</a>" in page.text
    assert "secret" not in page.text
    assert (await browser.get("/topics/secret")).status_code == 404
    overview = await browser.get("/")
    assert overview.status_code == 200
    refused = await browser.submit("/topics/hers/delete", name="hers")
    assert refused.status_code == 403
    assert "Traceback" not in refused.text
