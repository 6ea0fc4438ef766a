"""The pages of what metrics listeners say: clients, slow requests, certificates; from a listener that a test writes."""

from __future__ import annotations

import asyncio
import datetime
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of, login_of, login_options
from tests.scenarios.console.scripted_listener import ScriptedListener, scripted_listener, slow_request

from odradek.client import Admin, NewPassword
from odradek.console.listeners.reading import ListenerTerms
from odradek.console.web.console import ConsoleOptions
from odradek.net.listener_pages import ListenerAccess, ListenerAddress
from odradek.security.acls import Acl, AclOperation, AclPattern, AclPermission, AclResourceType
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest
from odradek.testing import LocalBroker

EVIL = "<script>alert(1)</script>\u202e\"'"
DAY_S = 86_400.0
READ_S = 30.0
PAGES = ("/traffic", "/traffic/slow", "/people/certificates")
NOTHING_LISTENS = ListenerAddress("127.0.0.1", 9)


@pytest.fixture
def listener() -> Iterator[ScriptedListener]:
    with scripted_listener() as running:
        yield running


@pytest.fixture
async def browser(broker: LocalBroker, listener: ScriptedListener) -> AsyncIterator[Browser]:
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, listeners=listener.terms(age_s=0.0))
    async with browser_of(options) as running:
        yield running


async def scraped_twice(browser: Browser) -> None:
    """Returns once the console has rates."""
    listeners = browser.console.listeners
    assert listeners is not None
    async with asyncio.timeout(READ_S):
        while (await browser.console.background.run(listeners.figures.get())).before is None:
            await asyncio.sleep(0.01)


async def scraped_again(browser: Browser) -> None:
    """Returns once the console has read its listeners again."""
    listeners = browser.console.listeners
    assert listeners is not None
    last = listeners.figures.last
    async with asyncio.timeout(READ_S):
        while await browser.console.background.run(listeners.figures.get()) is last:
            await asyncio.sleep(0.01)


async def test_a_flood_is_on_the_overview_and_on_the_page_of_clients(
    browser: Browser, listener: ScriptedListener
) -> None:
    listener.clients = {"crawler": (0.0, 0.0, 0.0, 0.0), "shop": (0.0, 0.0, 0.0, 0.0)}
    listener.growth = {"crawler": (1e15, 0.0, 1e6, 1.0), "shop": (0.0, 1e6, 100.0, 0.1)}
    first = await browser.get("/traffic")
    assert "Rates need two readings" in first.text
    await scraped_twice(browser)
    page = await browser.get("/traffic")
    assert page.status_code == 200
    assert page.text.index("crawler") < page.text.index("shop"), "the largest comes first"
    assert page.text.count("Floods") == 1
    by_name = await browser.get("/traffic?sort=name&reverse=1")
    assert by_name.text.index("shop</th>") < by_name.text.index(">crawler")
    overview = await browser.get("/")
    assert "Client crawler moves 100 % of all bytes" in overview.text
    assert re.search(r"Event loop busy</dt><dd>75 %", overview.text)
    assert "/people/quotas/change?client=crawler" in page.text


async def test_the_bytes_in_flight_of_each_client_are_shown_and_sorted(
    browser: Browser, listener: ScriptedListener
) -> None:
    listener.clients = dict.fromkeys(("crawler", "shop"), (0.0,) * 4)
    listener.growth = {"crawler": (1e9, 0.0, 1.0, 0.0), "shop": (1e3, 0.0, 1.0, 0.0)}
    await scraped_twice(browser)
    assert "In flight" not in (await browser.get("/traffic")).text.partition("<table")[2], (
        "an older broker has none"
    )
    listener.in_flight = {"shop": (2 << 20, 30 << 20), "crawler": (1024, 0.0), "not shown": (1e9, 1e9)}
    await scraped_again(browser)
    page = (await browser.get("/traffic?sort=flight")).text
    assert page.index(">shop") < page.index(">crawler"), "the most in flight comes first"
    cells = page.replace("\u00a0", " ")
    assert ("2.0 MiB · 30 MiB" in cells, "1.0 KiB · 0 B" in cells) == (True, True)


async def test_what_the_controller_plans_to_mend_is_on_the_overview(
    browser: Browser, listener: ScriptedListener
) -> None:
    listener.healing_due, listener.healing_partitions = {"3": 720.0, EVIL: 900.0}, 17
    await scraped_twice(browser)
    overview = await browser.get("/")
    mended = overview.text.partition('id="mended"')[2].partition("</section>")[0]
    assert re.search("in 12 min.*The replicas of dead broker 3 are made again", mended, re.DOTALL) is not None
    assert "lost replicas are being made again: 17" in mended
    assert "<script>alert" not in overview.text
    listener.healing_due, listener.healing_partitions = {}, 0
    await scraped_again(browser)
    overview = await browser.get("/")
    assert "Nothing was mended in the" in overview.text
    assert "being made again" not in overview.text


async def test_two_brokers_are_shown_apart_and_together(
    broker: LocalBroker, listener: ScriptedListener
) -> None:
    with scripted_listener(2) as other:
        listener.clients, other.clients = {"a": (0.0,) * 4}, {"a": (0.0,) * 4, "b": (0.0,) * 4}
        other.growth = {"a": (1e9, 0.0, 1.0, 0.0), "b": (1e6, 0.0, 1.0, 0.0)}
        terms = ListenerTerms(addresses=(listener.address, other.address), age_s=0.0)
        options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, listeners=terms)
        async with browser_of(options) as browser:
            await scraped_twice(browser)
            together = await browser.get("/traffic")
            alone = await browser.get("/traffic", params={"broker": str(listener.address)})
            unknown = await browser.get("/traffic", params={"broker": EVIL})
    assert "2 clients move" in together.text
    assert f'Broker 2 <span class="quiet">{other.address}' in together.text, "where it moves most"
    assert "1 client moves 0" in alone.text
    assert "2 clients move" in unknown.text
    assert "<script>alert" not in unknown.text


async def test_slow_requests_have_their_stages_and_causes(
    browser: Browser, listener: ScriptedListener
) -> None:
    listener.slow = [slow_request(), slow_request(client_id="mailer", waited_ms=1.0, sent_ms=1293.0)]
    page = await browser.get("/traffic/slow")
    assert "2 of 2 requests" in page.text
    assert "for the disk, or for followers" in page.text
    assert "2023-11-14 22:13:20.000" in page.text
    matching = await browser.get("/traffic/slow?search=mail+produce")
    assert "1 of 2 requests" in matching.text
    assert matching.text.index("Sent") < matching.text.index("Waited"), (
        "the longest stage of these comes first"
    )
    none = await browser.get("/traffic/slow?search=nobody")
    assert "No slow request matches" in none.text


async def test_certificates_and_tokens_that_end_soon(browser: Browser, listener: ScriptedListener) -> None:
    listener.certificates = {"SSL": 3.5 * DAY_S, "OLD": -60.0, "FRESH": 300 * DAY_S, "ODD": 1e20}
    listener.tokens = {"soon": 600.0}
    page = await browser.get("/people/certificates")
    assert page.status_code == 200
    for text in ("Has ended", "Ends soon", "In order", "3 d", "300 d", "User:ann", "10 min"):
        assert text in page.text, text
    assert "Brokers show tokens only to users who log in" in page.text
    overview = await browser.get("/")
    assert "The certificate of listener OLD has ended" in overview.text
    assert "A delegation token of User:ann ends soon" in overview.text


async def test_the_certificate_of_the_console_itself_is_listed(broker: LocalBroker, tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority = CertificateAuthority.new("test", now=now)
    certificate = tmp_path / "console.pem"
    certificate.write_bytes(
        authority.issue(
            CertificateRequest(name="console", hosts=("127.0.0.1",), is_server=True, days=5), now=now
        ).pem
    )
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, certificate=str(certificate))
    async with browser_of(options) as browser:
        page = await browser.get("/people/certificates")
        assert "This console" in page.text
        assert "Ends soon" in page.text
        certificate.write_text("gone")
        page = await browser.get("/people/certificates")
        assert page.status_code == 200
        assert "holds no certificate in PEM" in page.text


async def test_text_of_strangers_is_escaped_on_every_page(
    browser: Browser, listener: ScriptedListener
) -> None:
    listener.clients = {EVIL: (0.0,) * 4}
    listener.growth = {EVIL: (1e15, 0.0, 0.0, 0.0)}
    listener.certificates, listener.tokens = {EVIL: 60.0}, {EVIL: 60.0}
    listener.slow = [slow_request(client_id=EVIL, peer=EVIL, request=EVIL, version=EVIL)]
    await scraped_twice(browser)
    for path in (*PAGES, "/"):
        page = await browser.get(path)
        assert page.status_code == 200, path
        assert "&lt;script&gt;alert(1)" in page.text, path
        assert "<script>alert" not in page.text, path
        assert "\u202e" not in page.text, path


async def test_without_listeners_pages_say_what_to_set(broker: LocalBroker) -> None:
    async with browser_of(ConsoleOptions(bootstrap=broker.address, hosts=HOSTS)) as browser:
        for path in PAGES:
            page = await browser.get(path)
            assert page.status_code == 200
            assert "--set metrics.listeners=127.0.0.1:9464" in page.text, path
            assert "odradek console --metrics" in page.text, path


async def test_a_listener_that_is_away_hides_no_other(
    broker: LocalBroker, listener: ScriptedListener
) -> None:
    listener.certificates = {"SSL": 3.5 * DAY_S}
    listener.slow = [slow_request()]
    terms = ListenerTerms(addresses=(NOTHING_LISTENS, listener.address))
    async with browser_of(ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, listeners=terms)) as browser:
        for path, shown in (("/traffic/slow", "Produce v11"), ("/people/certificates", "SSL")):
            page = await browser.get(path)
            assert "no metrics listener answers at 127.0.0.1:9" in page.text, path
            assert shown in page.text, path
        assert "no metrics listener answers at 127.0.0.1:9" in (await browser.get("/traffic")).text


async def test_a_listener_wants_its_token(
    broker: LocalBroker, listener: ScriptedListener, tmp_path: Path
) -> None:
    listener.token = "token-of-the-listener"
    listener.slow = [slow_request()]
    token = tmp_path / "token"
    token.write_text("token-of-the-listener\n")
    for access, text in (
        (ListenerAccess(), "answers 401: this page needs a token"),
        (ListenerAccess(token_file=str(token)), "Produce v11"),
    ):
        options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, listeners=listener.terms(access))
        async with browser_of(options) as browser:
            page = await browser.get("/traffic/slow")
            assert text in page.text
            assert "token-of-the-listener" not in page.text
            assert "token-of-the-listener" not in repr(options)


async def test_pages_share_a_scrape_and_none_is_made_while_no_page_wants_one(
    broker: LocalBroker, listener: ScriptedListener
) -> None:
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, listeners=listener.terms())
    async with browser_of(options) as browser:
        assert listener.asked == []
        await asyncio.gather(*(browser.get("/traffic") for _ in range(10)))
        await browser.get("/people/certificates")
    assert listener.asked.count("/metrics") == 1
    assert listener.asked.count("/info") == 1
    assert "/slow" not in listener.asked


async def test_what_a_listener_sends_is_no_json(browser: Browser, listener: ScriptedListener) -> None:
    listener.slow = {"no": "list"}
    page = await browser.get("/traffic/slow")
    assert page.status_code == 200
    assert "cannot be read: expected a list" in page.text


async def test_a_user_needs_the_right_to_describe_the_cluster(
    secure_broker: LocalBroker, listener: ScriptedListener
) -> None:
    """Listeners are read with the console's rights: users without DESCRIBE on the cluster see nothing of them."""
    listener.clients, listener.certificates = {"secret-client": (0.0,) * 4}, {"SSL": 60.0}
    listener.slow = [slow_request(client_id="secret-client")]
    settings = {"bootstrap.servers": secure_broker.address, **secure_broker.client_settings}

    def change(*, grants: bool) -> None:
        with Admin.from_config(settings) as admin:
            admin.alter_users({"eve": NewPassword(password="eve's own")})
            if grants:
                cluster = AclPattern(AclResourceType.CLUSTER, "kafka-cluster")
                admin.create_acls([Acl(cluster, "User:eve", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)])

    options = replace(login_options(secure_broker), listeners=listener.terms(age_s=0.0))
    await asyncio.to_thread(change, grants=False)
    async with browser_of(options) as browser:
        assert (await browser.get("/traffic")).status_code == 303
        await browser.submit("/login", **login_of(secure_broker))
        await scraped_twice(browser)
        assert "secret-client" in (await browser.get("/traffic")).text
        stranger = Browser(browser.console)
        try:
            await stranger.submit("/login", name="eve", password="eve's own")
            for path in PAGES:
                page = await stranger.get(path)
                assert "right DESCRIBE on the cluster" in page.text, path
                assert "secret-client" not in page.text
                assert "Ends soon" not in page.text
            assert (await stranger.get("/traffic")).status_code == 403
            assert "certificate of listener" not in (await stranger.get("/")).text
        finally:
            await stranger.http.aclose()
    await asyncio.to_thread(change, grants=True)
    async with browser_of(options) as browser:
        await browser.submit("/login", name="eve", password="eve's own")
        page: httpx.Response = await browser.get("/traffic/slow")
        assert "secret-client" in page.text
