"""Keys and values are copied to the clipboard as a page shows them, whatever they are and whatever the browser offers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.interop.console.conftest import console_process

from odradek.client import Admin, NewTopic, Producer
from odradek.testing import LocalBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.interop
TOPIC, MASKED = "copied", "masked"
SSN = "078-05-1120"
EVIL = "</pre><script>window.ran = true</script>\"'<img src=x onerror=alert(1)>"
KEY = f"key {EVIL}"
LONG = "x" * 100_000
VALUES = (EVIL, LONG, "first\u202e\n  second\n")
NO_API = 'Object.defineProperty(navigator, "clipboard", { value: undefined });'
"""What a page finds that came by http from another machine."""
REFUSED = 'navigator.clipboard.writeText = () => Promise.reject(new DOMException("no", "NotAllowedError"));'
NO_COMMAND = "document.execCommand = () => false;"


@pytest.fixture(scope="module")
def records(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of the records of a topic, in a console that masks a field of another topic."""
    masks = Path(tmp_path_factory.mktemp("masks")) / "masks.toml"
    masks.write_text(f'[[mask]]\ntopics = ["{MASKED}"]\nnames = ["ssn"]\n')
    with Admin(broker.address) as admin:
        admin.create_topics([NewTopic(TOPIC, 1), NewTopic(MASKED, 1)])
    with Producer(broker.address) as producer:
        for value in VALUES:
            producer.send(TOPIC, value.encode(), key=KEY.encode())
        producer.send(MASKED, b'{"name": "Ann", "ssn": "%s"}' % SSN.encode())
    with console_process("--bootstrap", broker.address, "--masks", str(masks)) as address:
        yield f"{address}/topics/{TOPIC}/records/0"


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A browser that may use the clipboard. Whatever its pages complain about fails the test."""
    opened = chromium.new_context(locale="en-US", permissions=["clipboard-read", "clipboard-write"])
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("weberror", lambda error: complaints.append(str(error.error)))
    yield opened
    opened.close()
    assert complaints == []


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()


def pasted(context: BrowserContext, records: str) -> str:
    """Returns the clipboard's text, of which no other form may be there."""
    other = context.new_page()
    other.goto(f"{records}/0")
    kinds = other.evaluate("navigator.clipboard.read().then((all) => all.flatMap((item) => item.types))")
    text: str = other.evaluate("navigator.clipboard.readText()")
    other.close()
    assert kinds == ["text/plain"]
    return text


def test_hostile_keys_and_values_are_copied_as_text_by_keyboard(
    context: BrowserContext, page: Page, records: str
) -> None:
    page.goto(f"{records}/0")
    for part in ("value", "key"):
        button = page.get_by_role("button", name=f"Copy the {part}", exact=True)
        button.focus()
        page.keyboard.press("Enter")
        page.locator(f"#{part}-content-copied", has_text="Copied.").wait_for()
        assert pasted(context, records) == (EVIL if part == "value" else KEY)
    assert page.evaluate("window.ran") is None


def test_a_masked_field_stays_masked_and_invisible_characters_are_seen(
    context: BrowserContext, page: Page, records: str
) -> None:
    page.goto(f"{records}/0".replace(TOPIC, MASKED))
    page.get_by_role("button", name="Copy the value").click()
    page.get_by_text("Copied.").wait_for()
    text = pasted(context, records)
    assert SSN not in text
    assert text.splitlines() == ["{", '  "name": "Ann",', '  "ssn": "•••"', "}"]
    page.goto(f"{records}/2")
    page.get_by_role("button", name="Copy the value").click()
    page.get_by_text("Copied.").wait_for()
    assert pasted(context, records) == "first\\u202e\n  second\n"


def test_a_value_that_is_cut_says_so_when_it_is_copied(
    context: BrowserContext, page: Page, records: str
) -> None:
    page.goto(f"{records}/1")
    page.get_by_role("button", name="Copy the value").click()
    page.get_by_text("What is shown was copied. The download has all of it.").wait_for()
    text = pasted(context, records)
    assert len(text) < len(LONG)
    assert LONG.startswith(text)


@pytest.mark.parametrize("clipboard", [NO_API, REFUSED], ids=["no API", "refused"])
def test_without_the_clipboards_api_the_browsers_command_copies(
    context: BrowserContext, page: Page, records: str, clipboard: str
) -> None:
    page.add_init_script(clipboard)
    page.goto(f"{records}/0")
    page.get_by_role("button", name="Copy the value").click()
    page.get_by_text("Copied.").wait_for()
    assert pasted(context, records) == EVIL


def test_where_nothing_copies_the_text_is_selected_and_the_page_says_so(page: Page, records: str) -> None:
    page.add_init_script(NO_API + NO_COMMAND)
    page.goto(f"{records}/0")
    page.get_by_role("button", name="Русский").click()
    page.get_by_role("button", name="Копировать значение").click()
    page.get_by_text("Браузер не разрешает странице копировать. Текст выделен: нажмите Ctrl+C.").wait_for()
    assert page.evaluate("getSelection().toString()").strip() == EVIL


def test_without_the_script_no_button_is_offered(chromium: Browser, records: str) -> None:
    context = chromium.new_context(java_script_enabled=False, locale="en-US")
    page = context.new_page()
    page.goto(f"{records}/0")
    page.get_by_role("link", name="Download").first.wait_for()
    assert page.get_by_role("button", name="Copy the value").count() == 0
    context.close()
