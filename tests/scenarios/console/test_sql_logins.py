"""Who may use a SQL server through the console: its own users, a login for all; not users whose rights differ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of, login_of, login_options, token_of
from tests.unit.sql.running_server import sql_server

from odradek.console.sql.access import SqlTerms
from odradek.console.web.console import ConsoleOptions
from odradek.console.web.sessions import FREE_ATTEMPTS
from odradek.sql.rest_client import RestClient
from odradek.sql.server.gate import HttpUsers
from odradek.testing import LocalBroker

LOGIN = "/sql/login"


@pytest.fixture(scope="module")
def guarded(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    users = HttpUsers({"ann": "ann's own", "all": "everyone's"})
    with sql_server(broker.address, "guarded", tmp_path_factory.mktemp("guarded"), users=users) as client:
        owner = replace(client, user="ann", password="ann's own")
        owner.execute(
            "CREATE STREAM secrets (a STRING) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);"
        )
        yield client.url


@pytest.fixture(scope="module")
def open_server(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with sql_server(broker.address, "open", tmp_path_factory.mktemp("open")) as client:
        yield client


@pytest.fixture
async def user(secure_broker: LocalBroker, guarded: str) -> AsyncIterator[Browser]:
    """A user of the cluster who has logged in to the console."""
    terms = SqlTerms(url=guarded, is_shared=False)
    async with browser_of(replace(login_options(secure_broker), sql=terms)) as browser:
        await browser.submit("/login", **login_of(secure_broker))
        yield browser


async def test_each_user_logs_in_to_the_sql_server_too(user: Browser) -> None:
    for path in ("/sql", "/sql/editor", "/sql/source?name=SECRETS", "/live/sql?id=x"):
        response = await user.get(path)
        assert (response.status_code, response.headers["location"].startswith(LOGIN)) == (303, True)
    page = await user.get(f"{LOGIN}?next=/sql?show=streams")
    wrong = await user.post(LOGIN, token=token_of(page.text), name="ann", password="wrong")
    assert (wrong.status_code, "wrong" in wrong.text.partition("<form")[2]) == (401, False)
    done = await user.submit(LOGIN, name="ann", password="ann's own", next="/sql?show=streams")
    assert (done.status_code, done.headers["location"]) == (303, "/sql?show=streams")
    assert "SECRETS" in (await user.get("/sql?show=streams")).text
    assert "ann's own" not in repr(user.console.options)


async def test_a_logout_ends_the_login_of_the_sql_server(user: Browser, secure_broker: LocalBroker) -> None:
    await user.submit(LOGIN, name="ann", password="ann's own")
    assert (await user.get("/sql")).status_code == 200
    await user.submit("/logout", on="/")
    assert (await user.get("/sql")).headers["location"].startswith("/login")
    await user.submit("/login", **login_of(secure_broker))
    assert (await user.get("/sql")).headers["location"].startswith(LOGIN)


async def test_wrong_passwords_of_the_sql_server_have_to_wait(user: Browser) -> None:
    for _ in range(FREE_ATTEMPTS):
        assert (await user.submit(LOGIN, name="all", password="wrong")).status_code == 401
    assert (await user.submit(LOGIN, name="all", password="everyone's")).status_code == 429
    assert (await user.submit(LOGIN, name="a:b", password="everyone's")).status_code == 401


async def test_a_server_without_logins_is_not_offered_to_users_with_other_rights(
    secure_broker: LocalBroker, open_server: RestClient
) -> None:
    terms = SqlTerms(url=open_server.url, is_shared=False)
    async with browser_of(replace(login_options(secure_broker), sql=terms)) as browser:
        await browser.submit("/login", **login_of(secure_broker))
        refused = await browser.submit(LOGIN, name="ann", password="x")
        assert (refused.status_code, "lets everyone in" in refused.text) == (403, True)
        assert (await browser.get("/sql")).status_code == 303


async def test_a_login_for_all_is_used_without_a_question(
    secure_broker: LocalBroker, broker: LocalBroker, guarded: str
) -> None:
    terms = SqlTerms(url=guarded, user="all", password="everyone's")
    async with browser_of(replace(login_options(secure_broker), sql=terms)) as browser:
        assert (await browser.get("/sql")).headers["location"].startswith("/login")
        await browser.submit("/login", **login_of(secure_broker))
        assert "SECRETS" in (await browser.get("/sql?show=streams")).text
    wrong = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, sql=replace(terms, password="no"))
    async with browser_of(wrong) as browser:
        page = await browser.get("/sql")
        assert (page.status_code, "--sql-user" in page.text) == (502, True)
    assert "everyone's" not in repr(terms)
