"""SQL and pipelines in a real browser: rows that arrive, names that are offered, charts that grow, and what axe finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.console.conftest import console_process
from tests.interop.console.objects_of_every_kind import MADE, failing_pipeline
from tests.unit.sql.running_server import sql_server

from odradek.console.sql.live_queries import RUNNING_OF_BROWSER_MAX
from odradek.sql.rest_client import RestClient
from odradek.testing import LocalBroker

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.interop
QUERY = "SELECT customer, item, amount FROM orders EMIT CHANGES;"


@pytest.fixture(scope="module")
def sql(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    with sql_server(broker.address, "browser_tests", tmp_path_factory.mktemp("sql")) as client:
        client.execute(MADE)
        for number, customer in enumerate(("ann", "bob", "<b>cy</b>")):
            client.execute(f"INSERT INTO orders VALUES ('{customer}', 'tea', {number - 1});")
        yield client


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a next program for the pipeline, which keeps no state."""
    directory: Path = tmp_path_factory.mktemp("programs")
    (directory / "next.py").write_text(
        "from odradek.streams import Streams\napp = Streams('totals')\n"
        "app.stream('orders', key='STRING').to('users', name='out')\n"
    )
    return directory


@pytest.fixture(scope="module")
def shown(broker: LocalBroker, sql: RestClient, programs: Path) -> Iterator[str]:
    """The address of a console with a SQL server, and with a pipeline that has failed."""
    failing_pipeline(broker.address, read_offset=1)
    with console_process(
        "--bootstrap", broker.address, "--sql", sql.url, "--programs", str(programs)
    ) as address:
        yield address


@pytest.fixture
def page(chromium: Browser, shown: str) -> Iterator[Page]:
    """A page at the editor. Whatever the browser complains about fails the test."""
    context = chromium.new_context(viewport={"width": 390, "height": 800}, locale="en-US")
    opened = context.new_page()
    complaints: list[str] = []
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(f"{shown}/sql/editor")
    yield opened
    context.close()
    assert complaints == []


def run(page: Page, text: str) -> None:
    page.get_by_label("Statements").fill(text)
    page.get_by_label("from the first record on").check()
    page.get_by_label("Statements").press("Control+Enter")


def test_names_are_offered_as_one_types_and_by_the_keyboard_alone(page: Page) -> None:
    editor = page.get_by_label("Statements")
    editor.press_sequentially("SELECT * FROM ord")
    page.get_by_role("option", name="ORDERS").wait_for(timeout=60_000)
    editor.press("Escape")
    assert page.get_by_role("option").count() == 0
    editor.press("Control+ ")
    page.get_by_role("option", name="ORDERS").wait_for()
    editor.press("Tab")
    assert editor.input_value() == "SELECT * FROM ORDERS"
    editor.press("Tab")
    assert page.evaluate("document.activeElement.tagName") != "TEXTAREA", "Tab leaves the editor"


def test_rows_arrive_live_are_drawn_and_stop(page: Page, sql: RestClient) -> None:
    run(page, QUERY)
    page.get_by_text(re.compile("Running: [0-9]+ rows so far.")).wait_for()
    page.get_by_label("Chart").select_option("bars")
    page.get_by_role("button", name="Draw").click()
    page.evaluate("window.planted = true")
    sql.execute("INSERT INTO orders VALUES ('<i>dee</i>', 'desk', 250);")
    page.locator("#result-rows tr", has_text="<i>dee</i>").wait_for()
    page.locator(".value-bars li", has_text="<i>dee</i>").wait_for()
    assert page.evaluate("window.planted") is True, "the page was not loaded again"
    page.get_by_role("button", name="Stop").click()
    page.get_by_text(re.compile("Stopped after [0-9]+ rows.")).wait_for()
    assert page.get_by_role("button", name="Stop").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_pipeline_is_upgraded_after_its_dry_run(page: Page, shown: str, programs: Path) -> None:
    page.goto(f"{shown}/pipelines/pipeline?name=totals")
    page.get_by_role("link", name="Upgrade to another program").click()
    page.get_by_label("Program").fill(str(programs / "next.py"))
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text("the operator 'by-customer' with state was removed").first.wait_for(timeout=90_000)
    page.get_by_text(re.compile("it reads [0-9]+ records again, of orders")).wait_for()
    assert page.get_by_role("radio", name="keep").is_disabled()
    page.get_by_role("button", name="Upgrade").click()
    assert page.url.endswith("/pipelines/upgrade?name=totals"), "a mode must be chosen first"
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    if find_spec("axe_playwright_python") is not None:
        axe = import_module("axe_playwright_python.sync_playwright").Axe()
        violations = axe.run(page).response["violations"]
        assert [
            rule["id"] for rule in violations if rule["impact"] in ("serious", "critical", "moderate")
        ] == []
    page.get_by_role("radio", name="rebuild").check()
    page.get_by_role("button", name="Upgrade").click()
    page.get_by_text("The next version was made.").wait_for(timeout=90_000)
    page.get_by_role("heading", name=re.compile("Version 2 is being rebuilt")).wait_for()


def test_a_query_ends_when_its_browser_leaves(chromium: Browser, shown: str, sql: RestClient) -> None:
    """A further query is refused as long as the pages of the others are open, and pages can still be loaded."""
    context = chromium.new_context(locale="en-US")
    pages = []
    for _ in range(RUNNING_OF_BROWSER_MAX):
        opened = context.new_page()
        opened.goto(f"{shown}/sql/editor")
        run(opened, QUERY)
        opened.get_by_role("button", name="Stop").wait_for()
        pages.append(opened)
    more = context.new_page()
    more.goto(f"{shown}/sql/editor")
    run(more, QUERY)
    more.get_by_text("stop one first").wait_for()
    for opened in pages:
        opened.close()
    last = context.new_page()
    for _ in range(60):
        last.goto(f"{shown}/sql/editor")
        run(last, QUERY)
        last.wait_for_load_state()
        if last.get_by_role("button", name="Stop").count():
            break
        last.wait_for_timeout(500)
    last.get_by_role("button", name="Stop").wait_for()
    context.close()


def test_a_result_is_a_page_without_the_script(chromium: Browser, shown: str) -> None:
    context = chromium.new_context(java_script_enabled=False, locale="en-US")
    page = context.new_page()
    page.goto(f"{shown}/sql/editor")
    page.get_by_label("Statements").fill(QUERY)
    page.get_by_label("from the first record on").check()
    page.get_by_role("button", name="Run").click()
    while not page.locator("#result-rows tr").count():
        page.get_by_role("link", name="Load again").click()
    assert "ann" in page.locator("#result-rows").inner_text()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text(re.compile("Stopped after [0-9]+ rows.")).wait_for()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_and_nothing_is_wider_than_a_phone(
    chromium: Browser, shown: str, scheme: Any
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="absent: axe-core")
    context = chromium.new_context(
        color_scheme=scheme, locale="en-US", viewport={"width": 390, "height": 800}
    )
    page = context.new_page()
    page.goto(f"{shown}/sql/editor")
    run(page, QUERY.replace(";", " LIMIT 3;"))
    page.get_by_text("Complete: 3 rows.").wait_for()
    drawn = [f"{page.url}?chart={kind}" for kind in ("bars", "line")]
    serious = []
    for path in drawn:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path
        serious += [
            (path, rule["id"], node["html"])
            for rule in axe.Axe().run(page).response["violations"]
            for node in rule["nodes"]
            if rule["impact"] in ("serious", "critical", "moderate")
        ]
    page.goto(f"{shown}/sql/editor")
    page.get_by_label("Statements").press_sequentially("SELECT * FROM ord")
    page.get_by_role("option", name="ORDERS").wait_for(timeout=60_000)
    serious += [
        (rule["id"], rule["nodes"][0]["html"])
        for rule in axe.Axe().run(page).response["violations"]
        if rule["impact"] in ("serious", "critical", "moderate")
    ]
    context.close()
    assert serious == []
