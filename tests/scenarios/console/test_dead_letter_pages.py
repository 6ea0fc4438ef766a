"""Dead letters in the console: counted by reason, shown with their history, sent back after a preview."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of, token_of
from tests.scenarios.console.test_pages import seen

from odradek.client import Admin, NewTopic, Producer
from odradek.console.web.console import ConsoleOptions
from odradek.dead_letters import headers
from odradek.testing import LocalBroker

DEAD = "orders.dlq"
PATH = f"/dead-letters/{DEAD}"
EVIL = "<script>alert(1)</script>\u202e*[a]?"


def failed(origin: str, offset: int, error: str) -> list[tuple[str, bytes | None]]:
    fields = {
        headers.TOPIC: origin,
        headers.PARTITION: "0",
        headers.OFFSET: str(offset),
        headers.EXCEPTION: error,
        headers.MESSAGE: f"it failed: {EVIL}",
        headers.STACKTRACE: f"first line\n{EVIL}",
        headers.GROUP: EVIL,
    }
    return [(name, value.encode()) for name, value in fields.items()]


@pytest.fixture
async def letters(broker: LocalBroker, admin: Admin, browser: Browser) -> AsyncIterator[None]:
    """Three letters of `orders` with two reasons, and one that names another topic."""

    def fill() -> None:
        admin.create_topics([NewTopic(name, 1) for name in (DEAD, "orders", "elsewhere")])
        with Producer(broker.address) as producer:
            for offset, error in enumerate(("KeyError", "KeyError", EVIL)):
                producer.send(DEAD, b"v%d" % offset, headers=failed("orders", offset, error))
            producer.send(DEAD, EVIL.encode(), headers=failed("elsewhere", 0, "KeyError"))
            producer.flush()

    await asyncio.to_thread(fill)
    await seen(browser, DEAD)
    yield
    await asyncio.to_thread(admin.delete_topics, [DEAD, "orders", "elsewhere"])


async def test_letters_are_counted_by_reason_and_shown(browser: Browser, letters: None) -> None:
    topics = await browser.get("/dead-letters")
    assert f'href="{PATH}"' in topics.text
    assert "/dead-letters/elsewhere" not in topics.text
    page = await browser.get(PATH)
    assert "4 letters" in page.text
    counts = re.findall(r'<td>(orders|elsewhere)</td><td class="number">([0-9]+)</td>', page.text)
    assert sorted(counts) == [("elsewhere", "1"), ("orders", "1"), ("orders", "2")]
    links = [html.unescape(link) for link in re.findall(r'href="([^"]*\?error=[^"]*)"', page.text)]
    strange = next(link for link in links if "script" in link)
    only = await browser.get(strange)
    assert "1 letter" in only.text
    letter = await browser.get(f"{PATH}/0/2")
    assert 'href="/topics/orders/records/0/2"' in letter.text
    for shown in (page, only, letter, await browser.get(f"{PATH}/redrive?error={EVIL}")):
        assert shown.status_code == 200
        assert "<script>alert" not in shown.text
        assert "\u202e" not in shown.text
    assert (await browser.get(f"{PATH}/0/99")).status_code == 502


async def test_letters_go_back_after_a_preview_and_each_once(
    browser: Browser, broker: LocalBroker, admin: Admin, letters: None
) -> None:
    def sent() -> dict[str, int]:
        with Admin(broker.address) as client:
            ends = client.list_offsets({tp: -1 for name in ("orders", "elsewhere") for tp in [(name, 0)]})
        return {tp[0]: end.offset for tp, end in ends.items()}

    preview = await browser.submit(f"{PATH}/redrive")
    assert "Nothing is sent yet" in preview.text
    assert 'name="allow:elsewhere"' in preview.text
    assert await asyncio.to_thread(sent) == {"orders": 0, "elsewhere": 0}
    done = await browser.post(f"{PATH}/redrive", token=token_of(preview.text), sure="1")
    assert "3 letters were sent." in done.text
    assert await asyncio.to_thread(sent) == {
        "orders": 4,
        "elsewhere": 0,
    }  # with the marker of the transaction
    again = await browser.submit(f"{PATH}/redrive", sure="1")
    assert "0 letters were sent." in again.text
    assert "sent back" in (await browser.get(f"{PATH}/0/0")).text
    internal = await browser.submit(f"{PATH}/redrive", to="__consumer_offsets")
    assert internal.status_code == 400


async def test_a_read_only_console_sends_nothing(
    broker: LocalBroker, browser: Browser, letters: None
) -> None:
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, read_only=True)
    async with browser_of(options) as reader:
        await seen(reader, DEAD)
        assert (await reader.submit(f"{PATH}/redrive", sure="1")).status_code == 403
