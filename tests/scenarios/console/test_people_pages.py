"""Users, access rules, quotas and the audit in the console: what is offered to whom, previewed, changed, and refused."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlencode

import pytest
from tests.kit.waiting import until
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of, login_of, login_options, token_of

from odradek.client import Admin, NewTopic
from odradek.client.admin.quotas import QuotaEntity
from odradek.client.admin.users import NewPassword
from odradek.console.web.console import ConsoleOptions
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.security.acls import Acl, AclPattern
from odradek.security.audit import AUDIT_TOPIC
from odradek.testing import LocalBroker

ORDERS = AclPattern(AclResourceType.TOPIC, "orders")
PAGES = ("/people", "/people/rules", "/people/quotas", "/people/explain", "/people/audit", "/cluster")


@pytest.fixture(scope="module")
def audited() -> Iterator[LocalBroker]:
    with LocalBroker({"odradek.audit.sinks": "topic"}, secure=True) as running:
        yield running


@pytest.fixture
def admin(audited: LocalBroker) -> Iterator[Admin]:
    with Admin.from_config({"bootstrap.servers": audited.address, **audited.client_settings}) as client:
        yield client


@pytest.fixture
async def browser(audited: LocalBroker) -> AsyncIterator[Browser]:
    async with browser_of(login_options(audited)) as running:
        await running.submit("/login", **login_of(audited))
        yield running


def text_of(page: str) -> str:
    """Returns what a reader sees: no tags, one blank between words."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


async def test_a_user_is_added_with_a_password_that_is_shown_once(
    browser: Browser, admin: Admin, audited: LocalBroker
) -> None:
    ask = "/people/users/password?name=carol&mechanism=SCRAM-SHA-512"
    preview = await browser.get(ask)
    assert "adds the user carol" in preview.text
    assert "carol" not in await asyncio.to_thread(admin.describe_users)
    made = await browser.submit(ask, password="", again="")
    password = re.search(r"<pre[^>]*>([^<]+)</pre>", made.text)
    assert password is not None
    assert "carol" in (await browser.get("/people?search=car")).text
    assert password[1] not in (await browser.get("/people")).text
    async with browser_of(login_options(audited)) as other:
        assert (await other.submit("/login", name="carol", password=password[1])).status_code == 303
    differs = await browser.submit(ask, password="a", again="b")
    assert (differs.status_code, "passwords differ" in differs.text) == (400, True)
    assert "logs in by SCRAM-SHA-512 already" in (await browser.get(ask)).text
    rule = Acl(ORDERS, "User:carol", "*", AclOperation.READ, AclPermission.ALLOW)
    await asyncio.to_thread(admin.create_acls, [rule])
    gone = await browser.get("/people/users/remove?name=carol&mechanism=SCRAM-SHA-512")
    assert "User:carol may READ TOPIC orders" in gone.text, "the rules that stay are named"
    removed = await browser.submit("/people/users/remove?name=carol&mechanism=SCRAM-SHA-512")
    assert removed.headers["location"] == "/people?notice=user_removed"
    assert "carol" not in await asyncio.to_thread(admin.describe_users)
    assert (await browser.get("/people/users/remove?name=carol&mechanism=SCRAM-SHA-512")).status_code == 404


@pytest.mark.parametrize("name", ["", " carol", "ca\x00rol", "x" * 300])
async def test_a_name_with_which_no_client_could_log_in_is_refused(
    browser: Browser, admin: Admin, name: str
) -> None:
    before = await asyncio.to_thread(admin.describe_users)
    query = urlencode({"name": name, "mechanism": "SCRAM-SHA-512"})
    refused = await browser.submit(
        f"/people/users/password?{query}", on="/people", password="a secret", again="a secret"
    )
    assert refused.status_code == 400
    assert "a secret" not in refused.text
    assert await asyncio.to_thread(admin.describe_users) == before


async def test_rules_show_what_changes_for_whom_before_they_are_added_and_removed(
    browser: Browser, admin: Admin
) -> None:
    fields = {
        "principal": "dave",
        "permission": "allow",
        "kind": "topic",
        "name": "parcels",
        "operation-read": "1",
        "operation-describe": "1",
    }
    preview = await browser.submit("/people/rules/new", **fields)
    shown = text_of(preview.text)
    assert "Rules that would be added: 2. Nothing is changed yet." in shown
    assert "User:dave may read parcels" in shown
    assert "everyone else" not in shown.partition("What changes for whom")[2], (
        "others may no more than before"
    )
    wanted = AclPattern(AclResourceType.TOPIC, "parcels")
    assert [acl for acl in await asyncio.to_thread(admin.describe_acls) if acl.pattern == wanted] == []
    assert f'action="/people/rules/new?{html.escape(urlencode(fields))}"' in preview.text
    added = await browser.post(
        f"/people/rules/new?{urlencode(fields)}", token=token_of(preview.text), sure="1"
    )
    assert added.status_code == 303
    acls = [acl for acl in await asyncio.to_thread(admin.describe_acls) if acl.pattern == wanted]
    assert {acl.operation for acl in acls} == {AclOperation.READ, AclOperation.DESCRIBE}
    listed = await browser.get("/people/rules?search=dave+read")
    link = re.search(r'href="(/people/rules/remove\?[^"]+)"', listed.text)
    assert link is not None
    shown = text_of((await browser.get(html.unescape(link[1]))).text)
    assert "User:dave may not read parcels" in shown
    removed = await browser.submit(html.unescape(link[1]))
    assert removed.headers["location"] == "/people/rules?notice=rule_removed"
    left = [acl for acl in await asyncio.to_thread(admin.describe_acls) if acl.pattern == wanted]
    assert {acl.operation for acl in left} == {AclOperation.DESCRIBE}


async def test_a_prefix_is_compared_on_the_topics_that_begin_so(browser: Browser, admin: Admin) -> None:
    await asyncio.to_thread(admin.create_topics, [NewTopic("fleet.a", 1), NewTopic("fleet.b", 1)])
    fields = {
        "principal": "erin",
        "permission": "deny",
        "kind": "topic",
        "name": "fleet.",
        "prefix": "1",
        "operation-all": "1",
    }
    allow = Acl(
        AclPattern(AclResourceType.TOPIC, "fleet.a"), "User:erin", "*", AclOperation.READ, AclPermission.ALLOW
    )
    await asyncio.to_thread(admin.create_acls, [allow])
    await until(lambda: browser.get("/topics?search=fleet"), holds=lambda page: "fleet.b" in page.text)
    shown = text_of((await browser.submit("/people/rules/new", **fields)).text)
    assert "User:erin may not read fleet.a" in shown
    assert "resources: 2" in shown


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"operation-read": ""}, "Choose at least one operation"),
        ({"operation-cluster-action": "1"}, "cluster-action cannot be done to a topic"),
        ({"kind": "planet"}, "Choose a kind"),
        ({"name": ""}, "Name the resource"),
        ({"principal": " "}, "Name a user"),
        ({"permission": "maybe"}, "allows or denies"),
        ({"host": "nowhere"}, "is no address"),
    ],
)
async def test_a_rule_that_is_none_is_refused_in_one_line(
    browser: Browser, change: dict[str, str], line: str
) -> None:
    fields = {"principal": "a", "permission": "allow", "kind": "topic", "name": "t", "operation-read": "1"}
    fields = {name: value for name, value in (fields | change).items() if value}
    refused = await browser.submit("/people/rules/new", **fields)
    assert refused.status_code == 400
    assert line in text_of(refused.text)


async def test_the_rule_that_decides_is_named(browser: Browser, admin: Admin, audited: LocalBroker) -> None:
    rules = [
        Acl(ORDERS, "User:frank", "*", AclOperation.READ, AclPermission.ALLOW),
        Acl(ORDERS, "User:frank", "10.0.0.9", AclOperation.READ, AclPermission.DENY),
    ]
    await asyncio.to_thread(admin.create_acls, rules)
    question = "/people/explain?principal=frank&operation=read&kind=topic&name=orders&host="
    allowed = text_of((await browser.get(question + "10.0.0.1")).text)
    assert "may User:frank: read topic:orders from 10.0.0.1" in allowed
    assert "User:frank allow read topic:orders *" in allowed
    denied = text_of((await browser.get(question + "10.0.0.9")).text)
    assert "may not User:frank" in denied
    assert "User:frank deny read topic:orders 10.0.0.9" in denied
    name = login_of(audited)["name"]
    admins = text_of(
        (await browser.get(f"/people/explain?principal={name}&operation=alter&kind=cluster")).text
    )
    assert "super user" in admins
    wrong = await browser.get("/people/explain?principal=a&operation=write&kind=group&name=g")
    assert wrong.status_code == 400


async def test_quotas_are_checked_shown_set_and_removed(browser: Browser, admin: Admin) -> None:
    entity = QuotaEntity(user="grace")
    ask = "/people/quotas/change?user=grace"
    wrong = await browser.submit(ask, producer_byte_rate="many")
    assert (wrong.status_code, "write a number" in wrong.text) == (400, True)
    fields = {"producer_byte_rate": "1000000", "consumer_byte_rate": ""}
    preview = await browser.submit(ask, **fields)
    assert "no limit → 1000000" in text_of(preview.text)
    assert entity not in await asyncio.to_thread(admin.describe_quotas)
    done = await browser.post(ask, token=token_of(preview.text), sure="1", **fields)
    assert done.status_code == 303
    assert (await asyncio.to_thread(admin.describe_quotas))[entity] == {"producer_byte_rate": 1e6}
    assert "grace" in (await browser.get("/people/quotas?search=producer")).text
    await browser.submit(ask, producer_byte_rate="", sure="1")
    assert entity not in await asyncio.to_thread(admin.describe_quotas)
    for nobody in ("", "?user=a&any-user=1", "?user=a&ip=10.0.0.1"):
        page = await browser.get("/people/quotas/change" + nobody)
        assert 'name="producer_byte_rate"' not in page.text


async def test_the_audit_is_searched_and_says_how_far(browser: Browser, admin: Admin) -> None:
    await asyncio.to_thread(admin.create_topics, [NewTopic("seen-by-the-audit", 1)])
    async with asyncio.timeout(30):
        while True:
            page = await browser.get("/people/audit?kind=change&api=Create*&resource=seen-by-the-audit")
            if "seen-by-the-audit" in text_of(page.text).partition("that were looked at:")[2]:
                break
            await asyncio.sleep(0.2)
    shown = text_of(page.text)
    assert re.search("Events that were looked at: [0-9]+, shown: 1", shown)
    assert "The oldest of them is of 20" in shown
    nothing = await browser.get("/people/audit?principal=User:nobody-at-all")
    assert "No event fits among those that were looked at." in nothing.text
    assert (await browser.get("/people/audit?since=soon")).text.count("Write a time") == 1
    assert "more than five stars" in (await browser.get("/people/audit?api=" + "*a" * 6)).text


async def test_pages_offer_nothing_that_the_user_may_not_do(audited: LocalBroker, admin: Admin) -> None:
    def prepare() -> None:
        admin.alter_users({"heidi": NewPassword(password="heidi's own")})

    await asyncio.to_thread(prepare)
    before = await asyncio.to_thread(admin.describe_acls)
    async with browser_of(login_options(audited)) as limited:
        await limited.submit("/login", name="heidi", password="heidi's own")
        for path in PAGES:
            page = await limited.get(path)
            assert page.status_code == 200, path
            assert "Traceback" not in page.text
            for link in (
                "/people/rules/new",
                "/people/users/password",
                "/people/quotas/change",
                "/cluster/plan",
            ):
                assert f'href="{link}' not in page.text, (path, link)
        token = token_of((await limited.get("/people")).text)
        fields = {"principal": "heidi", "permission": "allow", "kind": "cluster", "operation-all": "1"}
        refused = await limited.post(f"/people/rules/new?{urlencode(fields)}", token=token, sure="1")
        assert refused.status_code == 400
        path = "/people/users/password?name=admin&mechanism=SCRAM-SHA-512"
        assert (await limited.post(path, token=token, password="p", again="p")).status_code == 400
        quota = {"producer_byte_rate": "1", "sure": "1"}
        assert (
            await limited.post("/people/quotas/change?user=heidi", token=token, **quota)
        ).status_code == 400
        plan = f"{AUDIT_TOPIC} 0 1 1 0"
        assert (await limited.post("/cluster/plan", token=token, plan=plan)).status_code == 400
    assert await asyncio.to_thread(admin.describe_acls) == before


async def test_read_only_mode_offers_and_does_nothing(audited: LocalBroker, admin: Admin) -> None:
    async with browser_of(login_options(audited, read_only=True)) as reader:
        await reader.submit("/login", **login_of(audited))
        page = await reader.get("/people/rules")
        assert "/people/rules/new" not in page.text
        token = token_of(page.text)
        for path in (
            "/people/rules/new",
            "/people/users/password",
            "/people/quotas/change",
            "/cluster/elect",
        ):
            assert (await reader.post(path, token=token, sure="1")).status_code == 403


async def test_forms_of_strangers_change_nothing(browser: Browser, admin: Admin) -> None:
    for path in ("/people/rules/new", "/people/users/password", "/cluster/plan", "/cluster/cancel"):
        assert (await browser.post(path, token="0" * 64, sure="1")).status_code == 403
        forged = await browser.post(path, headers={"origin": "http://evil.example"}, sure="1")
        assert forged.status_code == 403


async def test_text_of_strangers_is_shown_as_text(browser: Browser, admin: Admin) -> None:
    evil = '<img src=x onerror="alert(1)">\u202e'
    rule = Acl(
        AclPattern(AclResourceType.GROUP, evil, PatternType.PREFIXED),
        f"User:{evil}",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )
    await asyncio.to_thread(admin.create_acls, [rule])
    page = await browser.get("/people/rules?search=onerror")
    assert "<img" not in page.text
    assert "\u202e" not in page.text
    link = re.search(r'href="(/people/rules/remove\?[^"]+)"', page.text)
    assert link is not None
    removing = await browser.get(html.unescape(link[1]))
    assert removing.status_code == 200
    assert "<img" not in removing.text
    gone = await browser.post(html.unescape(link[1]), token=token_of(removing.text))
    assert gone.headers["location"] == "/people/rules?notice=rule_removed"
    assert rule not in await asyncio.to_thread(admin.describe_acls)


async def test_a_cluster_without_users_and_rules_says_so() -> None:
    with LocalBroker() as plain:
        async with browser_of(ConsoleOptions(bootstrap=plain.address, hosts=HOSTS)) as browser:
            for path in PAGES:
                page = await browser.get(path)
                assert page.status_code == 200, path
            assert "There are no such users yet." in (await browser.get("/people")).text
            assert "or you may not see it" in (await browser.get("/people/audit")).text
