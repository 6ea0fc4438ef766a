"""The pages of groups on a real broker: why one is behind, a reset after a preview, ids that strangers chose."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of, token_of
from tests.scenarios.console.test_pages import READ_S, seen

from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.console.model.transaction_reading import read_long_transactions
from odradek.console.web.console import ANONYMOUS, ConsoleOptions
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker

HOSTILE = (
    "<script>alert(1)</script>",
    "a/../b?c=d&id=e#f",
    "\u202egroup\n\x1b[31m",
    "..",
    "{{7777*7777}}' onload='x",
)


async def group_seen(browser: Browser, group_id: str) -> None:
    """Returns once the model has the group."""
    model = await browser.console.model_of(ANONYMOUS)
    async with asyncio.timeout(READ_S):
        while group_id not in model.snapshot.groups or model.snapshot.groups[group_id].lag < 0:
            await browser.console.background.run(model.refresh_now("groups"))
            await asyncio.sleep(0.01)


def page_of(group_id: str, action: str = "") -> str:
    return f"/group{action}?{urlencode({'id': group_id})}"


def listed_row(page: str, group_id: str) -> list[str]:
    """Returns the cells of a group's row: its id, its lag in records and in time, and more."""
    row = page.partition(f">{group_id}</a>")[2].partition("</tr>")[0]
    return [group_id, *(cell.strip() for cell in re.findall("<td[^>]*>(.*?)</td>", row, re.DOTALL))]


@pytest.fixture
async def topic(broker: LocalBroker, admin: Admin, browser: Browser) -> AsyncIterator[str]:
    """A topic with two partitions of ten records each."""

    def fill() -> None:
        admin.create_topics([NewTopic("behind", 2)])
        with Producer(broker.address) as producer:
            for number in range(20):
                producer.send("behind", b"x", partition=number % 2)
            producer.flush()

    await asyncio.to_thread(fill)
    await seen(browser, "behind")
    yield "behind"
    await asyncio.to_thread(admin.delete_topics, ["behind"])


async def made(admin: Admin, browser: Browser, group_id: str, **offsets: int) -> None:
    wanted = {TopicPartition("behind", int(name[1:])): offset for name, offset in offsets.items()}
    await asyncio.to_thread(admin.alter_group_offsets, group_id, wanted)
    await group_seen(browser, group_id)


async def test_a_group_without_members_says_so_and_how_old_its_lag_is(
    browser: Browser, admin: Admin, topic: str
) -> None:
    await made(admin, browser, "billing", p0=4, p1=10)
    listed = await browser.get("/groups", params={"search": "BILL"})
    assert "billing" in listed.text
    async with asyncio.timeout(READ_S):
        while (cells := listed_row(listed.text, "billing"))[2] == "–":
            listed = await browser.get("/groups", params={"search": "BILL", "sort": "time"})
    assert cells[1] == "6"
    assert re.fullmatch("[0-9]+ s", cells[2]) is not None, "how long the first unread record waits"
    page = await browser.get(page_of("billing"))
    assert "It is behind because it has no member: 6 records wait" in page.text
    row = page.text.partition(f">{topic}-0</a>")[2].partition("</tr>")[0]
    assert re.search(r">6<.*>[0-9]+ s<.*>4<.*>10<", row, re.DOTALL) is not None
    await asyncio.to_thread(admin.delete_groups, ["billing"])


async def test_a_transaction_that_holds_a_group_back_is_named(
    browser: Browser, broker: LocalBroker, admin: Admin, topic: str
) -> None:
    def begin() -> Producer:
        producer = Producer(broker.address, transactional_id="pay-7")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0)
        producer.flush()
        return producer

    producer = await asyncio.to_thread(begin)
    await made(admin, browser, "held", p0=10)
    page = await browser.get(page_of("held"))
    assert f"An open transaction hides 1 record in {topic}-0" in page.text
    assert "pay-7" in page.text
    model = await browser.console.model_of(ANONYMOUS)
    reading = read_long_transactions(model.admin, model.clock.wall_ms() + 1_000, READ_S, open_for_ms=0)
    [transaction], count = await browser.console.background.run(reading)
    assert (transaction.transactional_id, count) == ("pay-7", 1)
    assert transaction.partitions == (TopicPartition(topic, 0),)
    assert transaction.open_ms > 0
    await asyncio.to_thread(producer.abort_transaction)
    await asyncio.to_thread(producer.close)
    await asyncio.to_thread(admin.delete_groups, ["held"])


async def test_members_are_drawn_with_what_they_read(
    browser: Browser, broker: LocalBroker, admin: Admin, topic: str
) -> None:
    def join() -> Consumer:
        consumer = Consumer(
            broker.address, group_id="readers", client_id="till-1", auto_offset_reset="earliest"
        )
        consumer.subscribe([topic])
        while not consumer.poll(0.5):
            pass
        return consumer

    consumer = await asyncio.to_thread(join)
    try:
        await asyncio.to_thread(consumer.commit)
        await group_seen(browser, "readers")
        page = await browser.get(page_of("readers"))
        assert "till-1" in page.text
        assert page.text.count("<rect class=") == 2
        refused = await browser.submit(page_of("readers", "/reset"), target="earliest")
        assert refused.status_code == 400
        assert "stop them first" in refused.text
    finally:
        await asyncio.to_thread(consumer.close)
    await asyncio.to_thread(admin.delete_groups, ["readers"])


async def test_offsets_are_set_after_a_preview_as_it_showed_them(
    browser: Browser, admin: Admin, topic: str
) -> None:
    await made(admin, browser, "again", p0=8, p1=2)
    path = page_of("again", "/reset")
    preview = await browser.submit(path, target="offset", value="5", topic=topic)
    assert "3 records will be read again, 3 will be skipped" in preview.text

    def committed() -> list[int]:
        offsets = admin.list_group_offsets("again")
        return [known.offset for _, known in sorted(offsets.items()) if known is not None]

    assert await asyncio.to_thread(committed) == [8, 2]
    match = re.search(r'name="plan" value="([^"]*)"', preview.text)
    assert match is not None
    done = await browser.post(path, token=token_of(preview.text), plan=match[1], sure="1")
    assert done.status_code == 303
    assert await asyncio.to_thread(committed) == [5, 5]
    for fields in (
        {"target": "offset", "value": "x"},
        {"target": "time", "value": "soon"},
        {"target": "none"},
    ):
        assert (await browser.submit(path, **fields)).status_code == 400
    wrong = await browser.submit(page_of("again", "/delete"), name="other")
    assert wrong.status_code == 400
    gone = await browser.submit(page_of("again", "/delete"), name="again")
    assert (gone.status_code, gone.headers["location"]) == (303, "/groups?notice=group_deleted")
    assert (await browser.get(page_of("again"))).status_code == 404


async def test_a_read_only_console_sets_no_offsets(broker: LocalBroker, admin: Admin, topic: str) -> None:
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, read_only=True)
    async with browser_of(options) as browser:
        await made(admin, browser, "kept", p0=1)
        for action in ("/reset", "/delete"):
            refused = await browser.submit(page_of("kept", action), name="kept", target="earliest", sure="1")
            assert refused.status_code == 403
    await asyncio.to_thread(admin.delete_groups, ["kept"])


async def test_ids_of_strangers_stay_text(browser: Browser, admin: Admin, topic: str) -> None:
    for group_id in HOSTILE:
        await made(admin, browser, group_id, p0=1)
    pages = [await browser.get("/groups"), await browser.get("/groups", params={"search": HOSTILE[0]})]
    for group_id in HOSTILE:
        for action in ("", "/reset", "/delete"):
            page = await browser.get(page_of(group_id, action))
            assert page.status_code == 200, (group_id, action)
            pages.append(page)
    for page in pages:
        assert "<script>alert" not in page.text
        assert "\u202e" not in page.text
        assert "\x1b" not in page.text
        assert "' onload='" not in page.text
        assert "{{7777*7777}}" in page.text or "60481729" not in page.text.partition("<main")[2]
        assert " style=" not in page.text
    assert f'href="{page_of("..")}"' in pages[0].text
    await asyncio.to_thread(admin.delete_groups, HOSTILE)


async def test_a_group_that_is_not_there_is_one_clear_line(browser: Browser) -> None:
    for group_id in ("none", ""):
        page = await browser.get(page_of(group_id))
        assert page.status_code in (404, 502)
        assert "Traceback" not in page.text
    endless = await browser.get(page_of("x" * 33_000))
    assert endless.status_code == 400
    assert "an id in Kafka has at most 32767" in endless.text
