"""The console as a person has it: a real browser, its script, its policies, its keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.interop.console.conftest import console_process

from odradek.client import Admin, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.interop
DEMO = {
    "/topics": "bookings.eu",
    "/groups": "check-in",
    "/dead-letters": "flights.board.dlq",
    "/sql?show=streams": "FLIGHTS",
    "/cluster": "Broker",
    "/people": "bob",
    "/people/rules": "User:ann",
    "/people/quotas": "departures",
    "/people/audit": "CreateTopics",
    "/people/certificates": "Ends soon",
    "/traffic": "departures",
    "/traffic/slow": "Produce v",
}
"""Something to see on each page of the demo."""
TOPICS = ("flights", "orders.eu", "orders.us")


@pytest.fixture(scope="module")
def filled(broker: LocalBroker, console: str) -> str:
    with Admin(broker.address) as admin:
        admin.create_topics([NewTopic(name, 3) for name in TOPICS])
    return console


@pytest.fixture
def page(chromium: Browser, filled: str) -> Iterator[Page]:
    """A page at the list of topics. Whatever the browser complains about fails the test."""
    context = chromium.new_context(viewport={"width": 390, "height": 800}, locale="en-US")
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(f"{filled}/topics")
    opened.get_by_role("link", name="flights").wait_for()  # live: the model may read them only now
    yield opened
    context.close()
    assert complaints == []


def rows(page: Page) -> list[str]:
    return page.locator("#list tbody th a").all_inner_texts()


def test_topics_are_searched_as_one_types(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("orders")
    page.get_by_text(re.compile("2 of [0-9]+ topics")).wait_for()  # other tests make topics, too
    assert rows(page) == ["orders.eu", "orders.us"]
    assert page.url.endswith("search=orders")
    page.keyboard.type(".none")
    page.get_by_text(re.compile("No topic matches. All [0-9]+ topics were searched.")).wait_for()


def test_a_page_follows_the_cluster_without_being_loaded_again(page: Page, broker: LocalBroker) -> None:
    page.evaluate("window.planted = true")
    with Admin(broker.address) as admin:
        admin.create_topics([NewTopic("arrives-later", 1)])
        page.get_by_role("link", name="arrives-later").wait_for()
        admin.delete_topics(["arrives-later"])
    page.get_by_role("link", name="arrives-later").wait_for(state="detached")
    assert page.evaluate("window.planted") is True


def test_a_setting_is_changed_by_hand(page: Page) -> None:
    page.get_by_role("link", name="flights").click()
    page.get_by_role("link", name="Change retention.ms").click()
    page.get_by_label("Value").fill("86400000")
    page.get_by_role("button", name="Check the change").click()
    page.get_by_role("button", name="Make the change").click()
    page.get_by_text("The setting was changed.").wait_for()
    assert "this topic" in page.locator("tr", has_text="retention.ms").first.inner_text()


def test_language_and_colours_are_kept(page: Page) -> None:
    page.get_by_role("button", name="Русский").click()
    page.get_by_role("heading", name="Топики").wait_for()
    page.get_by_role("button", name="Тёмная").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.reload()
    assert page.locator("html").get_attribute("lang") == "ru"


def test_everything_works_without_the_script(chromium: Browser, filled: str) -> None:
    context = chromium.new_context(java_script_enabled=False, locale="en-US")
    page = context.new_page()
    page.goto(f"{filled}/topics")
    page.get_by_label("Search topics").fill("us")
    page.get_by_role("button", name="Search").click()
    assert rows(page) == ["orders.us"]
    page.get_by_role("link", name="orders.us").click()
    page.get_by_role("heading", name="orders.us").wait_for()
    context.close()


def test_the_demo_has_something_to_look_at(chromium: Browser) -> None:
    with console_process("--demo") as address:
        page = chromium.new_page(locale="en-US")
        page.goto(address)
        page.get_by_text("No one reads for group billing").wait_for(timeout=60_000)
        assert page.locator(".broker").count() == 3
        for path, shown in DEMO.items():
            page.goto(address + path)
            page.get_by_text(shown).first.wait_for(timeout=60_000)
        page.goto(f"{address}/sql/editor?text=SELECT * FROM flights EMIT CHANGES;")
        page.get_by_role("button", name="Run").click()
        page.locator("#result-rows tr").nth(3).wait_for(timeout=60_000)
        page.close()


def test_records_arrive_live_and_a_search_goes_on_by_itself(
    page: Page, filled: str, broker: LocalBroker
) -> None:
    with Producer(broker.address) as producer:
        page.goto(f"{filled}/topics/flights/records?from=tail&partition=0")
        page.get_by_role("button", name="Stop").wait_for()
        while not page.locator("#rows tr").count():  # the tail may begin behind the first records
            producer.send("flights", b'{"to": "<b>RIX</b>"}', key=b"live", partition=0)
            producer.flush()
            page.wait_for_timeout(100)
        assert "<b>RIX</b>" in page.locator("#rows").inner_text()
        page.get_by_role("button", name="Stop").click()
    page.goto(f"{filled}/topics/flights/records?from=beginning")
    page.get_by_label("Condition on the value").fill("$.to ~ rix")
    page.get_by_role("button", name="Show records").click()
    page.locator("#rows tr").first.get_by_role("link").click()
    page.get_by_role("heading", name="Partition 0, offset 0").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").last.click()
    assert download.value.suggested_filename == "value-0-0.bin"


def test_a_group_is_found_and_its_offsets_are_set_by_hand(
    page: Page, filled: str, broker: LocalBroker
) -> None:
    with Admin(broker.address) as admin:
        admin.alter_group_offsets("travel <agency>", {TopicPartition("flights", 1): 1})
    page.goto(f"{filled}/groups")
    page.get_by_role("link", name="travel <agency>").click()
    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_role("button", name="Show what would happen").click()
    previewed = int(page.locator("tbody tr").first.locator("td").nth(1).inner_text())
    assert previewed != 1, "the group had committed 1"
    page.get_by_role("button", name="Set these offsets").click()
    page.get_by_text("The offsets were set.").wait_for()
    with Admin(broker.address) as admin:
        assert admin.list_group_offsets("travel <agency>")[TopicPartition("flights", 1)].offset == previewed
