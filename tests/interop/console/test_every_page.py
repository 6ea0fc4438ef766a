"""Every page of the console, each with something to show: what axe finds, and what does not fit on a phone.

A page that is not in the lists here fails `test_every_route_is_looked_at`.
"""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest
from tests.interop.console.conftest import console_process
from tests.interop.console.objects_of_every_kind import (
    DEAD,
    GROUP,
    HELD_GROUP,
    SHARE_GROUP,
    STREAMS_GROUP,
    objects_of_every_kind,
)
from tests.kit.waiting import eventually
from tests.scenarios.console.scripted_listener import ScriptedListener, scripted_listener, slow_request
from tests.scenarios.console.test_sql_queries import ScriptedSqlServer
from tests.unit.sql.running_server import sql_server

import odradek.broker.coordinators.streams_topics
import odradek.broker.coordinators.transaction_verifier  # noqa: F401 - two threads must not rewrite asserts at the same time
from odradek.console.all_pages import PAGES
from odradek.testing import LocalBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.interop
PLAIN = {
    "/": ["/"],
    "/topics": ["/topics", "/topics?search=nothing-has-this-name"],
    "/topics/new": ["/topics/new"],
    "/topics/{name}": ["/topics/flights"],
    "/topics/{name}/delete": ["/topics/flights/delete"],
    "/topics/{name}/settings/{setting}": ["/topics/flights/settings/retention.ms"],
    "/topics/{name}/produce": ["/topics/flights/produce"],
    "/topics/{name}/records": ["/topics/flights/records", "/topics/flights/records?from=beginning"],
    "/topics/{name}/records/{partition}/{offset}": ["/topics/flights/records/0/0"],
    "/groups": ["/groups"],
    "/group": [f"/group?id={name}" for name in (GROUP, HELD_GROUP, SHARE_GROUP, STREAMS_GROUP)],
    "/group/reset": [f"/group/reset?id={GROUP}"],
    "/group/delete": [f"/group/delete?id={GROUP}"],
    "/transactions": ["/transactions", "/transactions?find=1&minutes=0"],
    "/transactions/terminate": ["/transactions/terminate?id=payments"],
    "/transactions/abort": ["/transactions?find=1&minutes=0 a[href^='/transactions/abort']"],
    "/dead-letters": ["/dead-letters"],
    "/dead-letters/{name}": [f"/dead-letters/{DEAD}"],
    "/dead-letters/{name}/redrive": [f"/dead-letters/{DEAD}/redrive"],
    "/dead-letters/{name}/{partition}/{offset}": [f"/dead-letters/{DEAD}/0/0"],
    "/cluster": ["/cluster"],
    "/cluster/plan": ["/cluster/plan"],
    "/cluster/cancel": ["/cluster/cancel"],
    "/cluster/elect": ["/cluster/elect"],
    "/people": ["/people"],
    "/people/users/password": [
        "/people/users/password",
        "/people/users/password?name=ann&mechanism=SCRAM-SHA-512",
    ],
    "/people/users/remove": ["/people/users/remove?name=ann&mechanism=SCRAM-SHA-512"],
    "/people/rules": ["/people/rules"],
    "/people/rules/new": ["/people/rules/new"],
    "/people/rules/remove": ["/people/rules a[href^='/people/rules/remove']"],
    "/people/explain": ["/people/explain?principal=ann&operation=read&kind=topic&name=flights"],
    "/people/quotas": ["/people/quotas"],
    "/people/quotas/change": ["/people/quotas/change", "/people/quotas/change?user=ann"],
    "/people/audit": ["/people/audit"],
    "/people/certificates": ["/people/certificates"],
    "/traffic": ["/traffic"],
    "/traffic/slow": ["/traffic/slow", "/traffic/slow?search=nothing-has-this-name"],
    "/pipelines": ["/pipelines"],
    "/pipelines/pipeline": ["/pipelines/pipeline?name=totals"],
    "/pipelines/upgrade": ["/pipelines/upgrade?name=totals"],
    "/sql": ["/sql?show=streams", "/sql?show=tables"],
    "/sql/source": ["/sql/source?name=ORDERS"],
    "/sql/editor": ["/sql/editor"],
}
"""The paths that are looked at, by route. After a space: the first link on that page that a selector finds."""
SCRIPTED = {
    "/sql": ["/sql"],
    "/sql/query": ["/sql/query?id=CTAS_TOTALS_1"],
    "/traffic": ["/traffic"],
    "/traffic/slow": ["/traffic/slow"],
    "/people/certificates": ["/people/certificates"],
}
"""Pages of queries that fail, of a SQL server that exists in answers alone; and of traffic, without a metrics listener."""
LOGIN = {"/login": ["/login"], "/sql/login": ["/sql/login"]}
"""Pages of a console that asks for a login, and then for one of the SQL server."""
ELSEWHERE = {
    "/sql/results/{result}": "test_sql_in_a_browser looks at results, and at their charts",
    "/topics/{name}/records/{partition}/{offset}/{part}": "a download",
    "/sql/complete": "names for the editor, as JSON",
    "/live/tail": "events",
    "/live/sql": "events",
    "/login/oidc": "leads to the provider",
    "/login/callback": "leads back from it; test_browser_at_a_provider looks at what is wrong there",
}
MENU = ("/", "/topics", "/groups", "/dead-letters", "/pipelines", "/sql", "/cluster", "/traffic", "/people")
SERIOUS = ("serious", "critical", "moderate")


class Consoles(NamedTuple):
    """The addresses of three consoles."""

    plain: str
    scripted: str
    login: str
    user: str
    password: str

    def paths(self) -> Iterator[tuple[str, str]]:
        """Yields every console and path to look at."""
        for address, routes in ((self.plain, PLAIN), (self.scripted, SCRIPTED), (self.login, LOGIN)):
            yield from ((address, path) for paths in routes.values() for path in paths)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A broker with access rules and an audit, in which everyone may do everything all the same."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "odradek.audit.sinks": "topic",
        "transaction.partition.verification.enable": "false",
    }
    with LocalBroker(settings) as running:
        yield running


@pytest.fixture(scope="module")
def consoles(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consoles]:
    directory: Path = tmp_path_factory.mktemp("every-page")
    (directory / "next.py").write_text("")
    scripted = ScriptedSqlServer()
    answering = threading.Thread(target=scripted.http.serve_forever)
    answering.start()
    try:
        with ExitStack() as stack:
            sql = stack.enter_context(sql_server(broker.address, "every_page", directory / "sql"))
            stack.enter_context(objects_of_every_kind(broker, sql))
            secure = stack.enter_context(LocalBroker(secure=True))
            login = directory / "login.properties"
            login.write_text("".join(f"{key}={value}\n" for key, value in secure.client_settings.items()))
            login.chmod(0o600)
            here = ("--bootstrap", broker.address)
            listener = stack.enter_context(scripted_listener())
            fill(listener)
            metrics = ("--metrics", str(listener.address))
            plain = stack.enter_context(
                console_process(*here, *metrics, "--sql", sql.url, "--programs", str(directory))
            )
            wait_for_rates(plain)
            yield Consoles(
                plain=plain,
                scripted=stack.enter_context(console_process(*here, "--sql", scripted.url)),
                login=stack.enter_context(
                    console_process(
                        "--bootstrap", secure.address, "--command-config", str(login), "--sql", scripted.url
                    )
                ),
                user=secure.client_settings["sasl.username"],
                password=secure.client_settings["sasl.password"],
            )
    finally:
        scripted.http.shutdown()
        scripted.http.server_close()
        answering.join()


def fill(listener: ScriptedListener) -> None:
    """Has the listener show a client that floods, slow requests, and certificates and tokens of each state."""
    listener.clients = dict.fromkeys(("crawler", "shop", "mailer-of-the-north-1", ""), (0.0,) * 4)
    listener.growth = {
        "crawler": (9e9, 1e6, 4e4, 3.0),
        "shop": (1e7, 4e7, 900.0, 0.2),
        "mailer-of-the-north-1": (0.0, 3e6, 80.0, 0.1),
    }
    listener.in_flight = {"crawler": (48e6, 9e5), "shop": (2e4, 31e6)}
    listener.healing_due, listener.healing_partitions = {"3": 720.0}, 12
    day_s = 86_400.0
    listener.certificates = {"SSL": 3.4 * day_s, "INTERNAL": -day_s, "CONTROLLER": 300 * day_s}
    listener.tokens = {"token-1": 1_500.0, "token-2": 6 * day_s}
    listener.slow = [
        slow_request(client_id=name, waited_ms=1290.0 / (1 + number), sent_ms=number * 400.0)
        for number, name in enumerate(("shop", "crawler", "mailer-of-the-north-1"))
    ]


def wait_for_rates(console: str) -> None:
    """Returns once the console has read its metrics listener twice."""

    def shown() -> bool:
        with urllib.request.urlopen(f"{console}/traffic", timeout=30) as opened:
            return b"crawler" in opened.read()

    eventually(shown, "rates of clients", every_s=0.5)


def test_every_route_is_looked_at() -> None:
    """A page without a case here is one that no one has looked at on a phone, in the dark, or in Russian."""
    shown = {page.path for page in PAGES if page.show is not None}
    listed = PLAIN.keys() | SCRIPTED.keys() | LOGIN.keys() | ELSEWHERE.keys()
    assert (shown - listed, listed - shown) == (set(), set())


def opened(page: Page, address: str, path: str) -> str:
    """Opens a path, and returns the path that is shown. It must be a page, and not the page of a failure."""
    path, _, selector = path.partition(" ")
    answered = page.goto(address + path)
    if selector:
        page.locator(selector).first.wait_for()
        answered = page.goto(address + str(page.locator(selector).first.get_attribute("href")))
    assert answered is not None
    assert answered.status == 200, (path, answered.status, page.inner_text("main"))
    shown = page.url.removeprefix(address)
    assert selector or shown.partition("?")[0] == path.partition("?")[0], "it led elsewhere"
    return shown


def log_in(page: Page, consoles: Consoles) -> None:
    page.locator("input[name='name']").fill(consoles.user)
    page.locator("input[name='password']").fill(consoles.password)
    page.locator("main button").first.click()
    page.locator("nav.menu").wait_for()


@pytest.mark.parametrize(
    ("scheme", "locale", "width"),
    [("light", "en-US", 1280), ("dark", "ru-RU", 390)],
    ids=["english-light-wide", "russian-dark-phone"],
)
def test_axe_finds_nothing_serious_on_any_page(
    chromium: Browser, consoles: Consoles, scheme: Literal["light", "dark"], locale: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="absent: axe-core").Axe()
    context = chromium.new_context(
        color_scheme=scheme, locale=locale, viewport={"width": width, "height": 800}
    )
    page = context.new_page()
    problems: list[Any] = []
    for address, listed in consoles.paths():
        if listed == "/sql/login":
            log_in(page, consoles)
        path = opened(page, address, listed)
        assert page.locator("html").get_attribute("lang") == locale[:2], path
        problems += [
            (path, rule["id"], node["html"])
            for rule in axe.run(page).response["violations"]
            for node in rule["nodes"]
            if rule["impact"] in SERIOUS
        ]
        page.set_viewport_size({"width": 390, "height": 800})
        if (shown := page.evaluate("document.documentElement.scrollWidth")) != 390:
            problems.append((path, "wider than a phone", shown))
        page.set_viewport_size({"width": width, "height": 800})
    context.close()
    assert problems == []


@pytest.mark.parametrize("locale", ["en-US", "ru-RU"])
def test_the_menu_leads_everywhere_on_a_phone(chromium: Browser, consoles: Consoles, locale: str) -> None:
    context = chromium.new_context(
        viewport={"width": 390, "height": 800}, locale=locale, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto(consoles.plain)
    for path in MENU:
        page.locator(f"nav.menu a[href='{path}']").tap()
        page.wait_for_url(re.compile(re.escape(consoles.plain + path) + r"/?\Z"))
        assert page.locator("nav.menu a[aria-current='page']").get_attribute("href") == path
    context.close()
