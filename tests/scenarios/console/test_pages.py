"""The pages of the console on a real broker: what they show, what they change, what they refuse."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.kit.waiting import until
from tests.scenarios.console.conftest import ADDRESS, HOSTS, Browser, browser_of, token_of

from odradek.client import Admin, ConfigResource, NewTopic
from odradek.client.aio import AsyncProducer
from odradek.console.model.refreshing import ClusterModel
from odradek.console.web.console import ANONYMOUS, ConsoleOptions
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker

READ_S = 30.0


async def seen(browser: Browser, topic: str) -> None:
    """Returns once the model has the topic, without waiting for its pause."""
    model = await browser.console.model_of(ANONYMOUS)
    async with asyncio.timeout(READ_S):
        while topic not in model.snapshot.topics:
            await browser.console.background.run(model.refresh_now("topics"))
            await asyncio.sleep(0.01)


@pytest.fixture
async def topic(admin: Admin, browser: Browser) -> AsyncIterator[str]:
    name = "orders.eu"
    await asyncio.to_thread(admin.create_topics, [NewTopic(name, 3, configs={"retention.ms": "7777"})])
    await seen(browser, name)
    yield name
    await asyncio.to_thread(admin.delete_topics, [name])


async def test_the_overview_says_that_all_is_in_order_once_all_of_it_was_read(browser: Browser) -> None:
    model = await browser.console.model_of(ANONYMOUS)
    await until(lambda: not any(part.is_awaited for part in model.snapshot.readings.values()), seconds=READ_S)
    page = await browser.get("/")
    assert page.status_code == 200
    assert "Everything is in order." in page.text
    assert "Broker 1" in page.text


async def test_topics_are_searched_and_the_page_says_how_many_were(browser: Browser, topic: str) -> None:
    page = await browser.get("/topics", params={"search": "EU ord"})
    assert f'href="/topics/{topic}"' in page.text
    assert re.search(r"\b1 of [0-9]+ topics", page.text)
    none = await browser.get("/topics", params={"search": "nothing-like-it"})
    assert re.search(r"All [0-9]+ topics were searched", none.text)


async def test_a_topic_has_partitions_and_settings_that_differ_come_first(
    browser: Browser, topic: str
) -> None:
    page = await browser.get(f"/topics/{topic}")
    assert page.status_code == 200
    assert "7777" in page.text
    assert page.text.index("retention.ms</code>") < page.text.index("cleanup.policy</code>")


async def test_a_setting_says_what_it_goes_back_to(browser: Browser, admin: Admin) -> None:
    name = "orders.small"
    await asyncio.to_thread(admin.create_topics, [NewTopic(name, 1, configs={"segment.bytes": "1048576"})])
    await seen(browser, name)
    line = "Without the topic&#39;s own value it is 1073741824: the default, log.segment.bytes."
    for path, is_said in (("", True), ("/settings/segment.bytes", True), ("/settings/cleanup.policy", False)):
        page = await browser.get(f"/topics/{name}{path}")
        assert (line in page.text) is is_said, path
    preview = await browser.submit(f"/topics/{name}/settings/segment.bytes", default="1")
    assert line in preview.text
    await asyncio.to_thread(admin.delete_topics, [name])


async def test_a_setting_is_changed_after_a_preview(browser: Browser, topic: str, admin: Admin) -> None:
    path = f"/topics/{topic}/settings/retention.ms"
    resource = ConfigResource.topic(topic)

    def value() -> str | None:
        return admin.describe_configs([resource])[resource]["retention.ms"].value

    preview = await browser.submit(path, value="8888")
    assert "It is not made yet" in preview.text
    assert await asyncio.to_thread(value) == "7777"
    changed = await browser.post(path, token=token_of(preview.text), value="8888", sure="1")
    assert changed.status_code == 303
    assert await asyncio.to_thread(value) == "8888"
    refused = await browser.submit(path, value="many")
    assert refused.status_code == 400
    assert "Traceback" not in refused.text
    await browser.submit(path, default="1", sure="1")
    assert await asyncio.to_thread(value) == "604800000"


async def test_a_topic_is_made_after_a_preview_and_deleted_by_its_name(
    browser: Browser, admin: Admin
) -> None:
    fields = {"name": "fresh", "partitions": "2", "replication": "", "settings": "retention.ms=5000\n"}
    preview = await browser.submit("/topics/new", **fields)
    assert "It is not created yet" in preview.text
    assert "fresh" not in await asyncio.to_thread(admin.list_topics)
    created = await browser.post("/topics/new", token=token_of(preview.text), sure="1", **fields)
    assert created.status_code == 303
    assert "fresh" in await asyncio.to_thread(admin.list_topics)
    await seen(browser, "fresh")
    wrong = await browser.submit("/topics/fresh/delete", name="Fresh")
    assert wrong.status_code == 400
    assert "fresh" in await asyncio.to_thread(admin.list_topics)
    gone = await browser.submit("/topics/fresh/delete", name="fresh")
    assert gone.status_code == 303
    assert "fresh" not in await asyncio.to_thread(admin.list_topics)


@pytest.mark.parametrize(
    "fields", [{"name": "bad name"}, {"name": "a", "partitions": "-3"}, {"name": "a", "settings": "x"}]
)
async def test_a_topic_that_cannot_be_is_explained(browser: Browser, fields: dict[str, str]) -> None:
    page = await browser.submit("/topics/new", **fields)
    assert page.status_code == 400
    assert 'role="alert"' in page.text


async def test_what_is_not_there_is_one_clear_line(browser: Browser) -> None:
    for path in (
        "/topics/none",
        "/topics/none/delete",
        "/topics/none/settings/x",
        "/none",
        "/static/../secret",
    ):
        page = await browser.get(path)
        assert page.status_code == 404, path
        assert "Traceback" not in page.text


async def test_languages_and_colours_are_kept(browser: Browser) -> None:
    assert 'lang="ru"' in (await browser.get("/", headers={"accept-language": "ru"})).text
    await browser.submit("/preferences", on="/", language="ru", theme="dark", back="/topics")
    page = await browser.get("/topics")
    assert '<html lang="ru" data-theme="dark">' in page.text
    away = await browser.submit("/preferences", on="/", language="en", back="//evil.example")
    assert away.headers["location"] == "/"


async def test_a_read_only_console_changes_nothing(broker: LocalBroker, admin: Admin) -> None:
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, read_only=True)
    async with browser_of(options) as browser:
        page = await browser.submit("/topics/new", name="fresh", sure="1")
        assert page.status_code == 403
        assert "fresh" not in await asyncio.to_thread(admin.list_topics)
        assert (await browser.submit("/preferences", on="/", language="ru")).status_code == 303


async def test_a_cluster_that_is_not_there_is_said_first() -> None:
    async with browser_of(ConsoleOptions(bootstrap="127.0.0.1:1", hosts=HOSTS)) as browser:
        page = await browser.get("/topics")
        assert page.status_code == 200
        model: ClusterModel = await browser.console.model_of(ANONYMOUS)
        async with asyncio.timeout(READ_S):
            await browser.console.background.run(model.wait_until_read())
        assert "The cluster does not answer" in (await browser.get("/")).text


# -- what strangers may try


def assert_headers(response: httpx.Response) -> None:
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "server" not in response.headers


async def test_every_response_has_the_headers(browser: Browser) -> None:
    for path in ("/", "/topics", "/none", "/static/console.css", "/static/none"):
        assert_headers(await browser.get(path))
    assert_headers(await browser.get("/", headers={"host": "evil.example"}))
    assert_headers(await browser.post("/topics/new", name="a"))


async def test_pages_have_no_script_or_style_inside(browser: Browser, topic: str) -> None:
    for path in ("/", "/topics", f"/topics/{topic}", "/topics/new"):
        page = (await browser.get(path)).text
        assert " style=" not in page
        assert "<style" not in page
        assert " onclick=" not in page
        assert page.count("<script") == 1
        assert "http://" not in page.replace("http://www.w3.org/", "")


async def test_a_form_needs_the_token_of_its_own_browser(browser: Browser, admin: Admin) -> None:
    fields: dict[str, Any] = {"name": "forged", "sure": "1"}
    assert (await browser.post("/topics/new", **fields)).status_code == 403
    assert (await browser.post("/topics/new", token="0" * 64, **fields)).status_code == 403
    other = Browser(browser.console)
    stolen = token_of((await other.get("/topics/new")).text)
    await other.http.aclose()
    assert (await browser.post("/topics/new", token=stolen, **fields)).status_code == 403
    assert "forged" not in await asyncio.to_thread(admin.list_topics)


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
)
async def test_a_form_from_another_site_is_refused(browser: Browser, headers: dict[str, str]) -> None:
    token = token_of((await browser.get("/topics/new")).text)
    response = await browser.post("/topics/new", headers=headers, token=token, name="forged", sure="1")
    assert response.status_code == 403


async def test_a_name_that_was_rebound_to_this_address_is_refused(browser: Browser) -> None:
    assert (await browser.get("/", headers={"host": "evil.example"})).status_code == 421
    assert (await browser.get(ADDRESS + "/")).status_code == 200


@pytest.mark.parametrize("size", [13 << 20])
async def test_a_form_has_a_size_that_it_may_have(browser: Browser, size: int) -> None:
    response = await browser.post("/topics/new", name="x" * size)
    assert response.status_code == 400
    assert "bytes" in response.text


async def test_text_of_strangers_stays_text(browser: Browser) -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e{{7777*7777}}"
    for path in (f"/topics/{evil}", f"/{evil}"):
        page = await browser.get(path)
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert "\u202e" not in page.text
        assert "60481729" not in page.text.partition("<main")[2]
    search = await browser.get("/topics", params={"search": evil, "page": evil, "sort": evil, "notice": evil})
    assert search.status_code == 200
    assert "<script>alert" not in search.text
    form = await browser.submit("/topics/new", name=evil, settings=f"a={evil}")
    assert "<script>alert" not in form.text
    assert "<img" not in form.text


EVIL = "x'\"><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\u2066\x1b]0;owned\x07{{7777*7777}}{% raw %}"
"""Quotes, tags, turned text, controls of a terminal, and braces of a template."""


async def test_a_group_that_a_stranger_named_stays_text(browser: Browser, admin: Admin, topic: str) -> None:
    def abandon() -> None:
        admin.alter_group_offsets(EVIL, {TopicPartition(topic, 0): 0})

    async def listed() -> ClusterModel:
        model = await browser.console.model_of(ANONYMOUS)
        async with asyncio.timeout(READ_S):
            while EVIL not in model.snapshot.groups or model.snapshot.groups[EVIL].lag < 1:
                await browser.console.background.run(model.refresh_now("groups"))
                await asyncio.sleep(0.01)
        return model

    async with AsyncProducer(browser.console.options.bootstrap) as producer:
        await (await producer.send(topic, b"v", partition=0))
    await asyncio.to_thread(abandon)
    await listed()
    page = (await browser.get("/")).text
    assert "No one reads for group x&#39;&#34;&gt;&lt;script&gt;alert(1)" in page
    assert "<img" not in page
    assert not {"\u202e", "\u2066", "\x1b", "\x07"} & set(page)
    assert "{{7777*7777}}{% raw %}" in page
    await asyncio.to_thread(admin.delete_groups, [EVIL])
