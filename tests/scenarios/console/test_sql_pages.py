"""Streams, tables, queries and the editor of the console, on a real SQL server without Spark."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from tests.kit.waiting import until
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of, token_of
from tests.unit.sql.running_server import sql_server

from odradek.console.sql import live_queries
from odradek.console.sql.access import SqlTerms
from odradek.console.sql.live_queries import RUNNING_OF_BROWSER_MAX, SqlResult
from odradek.console.web.console import ConsoleOptions
from odradek.sql.rest_client import RestClient
from odradek.testing import LocalBroker

EVIL = "<script>alert(1)</script>\u202e"
EDITOR = "/sql/editor"
MADE = """
CREATE STREAM orders (customer STRING KEY, item STRING, amount DOUBLE)
    WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE users (id STRING PRIMARY KEY, city STRING)
    WITH (KAFKA_TOPIC='users', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM `strange <name>` (a STRING) WITH (KAFKA_TOPIC='strange', VALUE_FORMAT='JSON', PARTITIONS=1);
"""


@pytest.fixture(scope="module")
def sql(broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestClient]:
    directory: Path = tmp_path_factory.mktemp("sql")
    with sql_server(broker.address, "console_tests", directory) as client:
        client.execute(MADE)
        for customer, amount in (("ann", 2.5), ("bob", -1), (EVIL, 7)):
            client.execute(f"INSERT INTO orders VALUES ('{customer}', 'tea', {amount});")
        yield client


@pytest.fixture
async def page(broker: LocalBroker, sql: RestClient) -> AsyncIterator[Browser]:
    async with browser_of(options(broker, sql)) as running:
        yield running


def options(broker: LocalBroker, sql: RestClient, *, read_only: bool = False) -> ConsoleOptions:
    return ConsoleOptions(
        bootstrap=broker.address, hosts=HOSTS, sql=SqlTerms(url=sql.url), read_only=read_only
    )


async def run(browser: Browser, text: str, **fields: str) -> httpx.Response:
    """Runs a text, and returns the page of its result, or of its error."""
    response = await browser.submit(EDITOR, text=text, **fields)
    return await browser.get(response.headers["location"]) if response.status_code == 303 else response


def cells(page: str) -> list[list[str]]:
    body = page.partition('id="result-rows"')[2].partition("</tbody>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", body, re.S)
    return [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in row.split("</td>")[:-1]] for row in rows]


def result_of(browser: Browser, response: httpx.Response) -> SqlResult:
    assert browser.console.sql is not None
    session = browser.http.cookies["odradek_console"]
    return browser.console.sql.results.get(session, str(response.url).rpartition("/")[2])


async def test_sources_are_listed_and_described(page: Browser) -> None:
    streams = await page.get("/sql?show=streams")
    assert "/sql/source?name=ORDERS" in streams.text
    assert html.escape("strange <name>") in streams.text
    assert "<name>" not in streams.text
    source = await page.get("/sql/source", params={"name": "ORDERS"})
    assert "AMOUNT" in source.text
    assert "CREATE STREAM orders" in html.unescape(source.text)
    strange = await page.get("/sql/source", params={"name": "strange <name>"})
    assert strange.status_code == 200
    only = await page.get("/sql?show=streams&search=strange")
    assert "ORDERS" not in only.text
    for name in ("NOT_THERE", "`; DROP STREAM orders; --", ""):
        assert (await page.get("/sql/source", params={"name": name})).status_code in (404, 502)
    assert "ORDERS" in (await page.get("/sql?show=streams")).text


async def test_a_console_without_a_server_says_how_to_get_it(browser: Browser) -> None:
    for path in ("/sql", EDITOR, "/sql/complete?before=SEL"):
        assert "odradek sql serve" in (await browser.get(path)).text


async def test_rows_of_strangers_are_escaped_and_cut(page: Browser) -> None:
    shown = await run(page, "SELECT * FROM orders EMIT CHANGES LIMIT 3;", beginning="1")
    response = await page.get(live_path(shown.text))
    assert "Complete: 3 rows." in response.text or "Complete: 3 rows." in shown.text
    shown = await page.get(str(shown.url))
    assert "<script>alert" not in shown.text
    assert "\u202e" not in shown.text
    assert cells(shown.text) == [
        ["<script>alert(1)</script>\\u202e", "tea", "7.0"],
        ["bob", "tea", "-1.0"],
        ["ann", "tea", "2.5"],
    ]


def live_path(page: str) -> str:
    match = re.search(r'data-rows="([^"]*)"', page)
    return html.unescape(match[1]) if match else "/live/sql"


async def test_a_push_query_fills_its_page_and_ends_with_stop(page: Browser, sql: RestClient) -> None:
    shown = await run(page, "SELECT customer, amount FROM orders WHERE amount > 100 EMIT CHANGES;")
    assert "Running: 0 rows so far." in shown.text
    outcome = result_of(page, shown)
    stream = asyncio.create_task(page.get(live_path(shown.text)))
    async with asyncio.timeout(60):
        while not outcome.count:  # the query may begin behind the first records
            await asyncio.to_thread(sql.execute, "INSERT INTO orders VALUES ('cy', 'desk', 250);")
    await page.post(str(shown.url), token=token_of(shown.text))
    events = (await stream).text
    assert "event: rows" in events
    assert "<code>cy</code>" in events
    assert "Stopped after" in events
    assert events.rstrip().endswith("event: end\ndata: end")
    assert "Stopped after" in (await page.get(str(shown.url))).text


async def test_a_query_ends_when_no_page_shows_it(page: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_queries, "LEASE_S", 0.05)
    shown = await run(page, "SELECT * FROM orders EMIT CHANGES;")
    outcome = result_of(page, shown)
    await until(lambda: outcome.is_over)
    assert outcome.state == "stopped"


async def test_a_stream_of_events_that_ends_lets_the_query_go(
    page: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = await run(page, "SELECT * FROM orders EMIT CHANGES;")
    outcome = result_of(page, shown)
    monkeypatch.setattr(live_queries, "LEASE_S", 0.05)
    stream = asyncio.create_task(page.get(live_path(shown.text)))
    async with asyncio.timeout(30):
        while not outcome.watchers:
            await asyncio.sleep(0.01)
        stream.cancel()
        while not outcome.is_over:
            await asyncio.sleep(0.02)
    assert page.console.live_streams == 0


async def test_queries_of_a_browser_are_bounded(page: Browser) -> None:
    first = await run(page, "SELECT * FROM orders EMIT CHANGES;")
    for _ in range(RUNNING_OF_BROWSER_MAX - 1):
        assert (await run(page, "SELECT * FROM orders EMIT CHANGES;")).status_code == 200
    refused = await run(page, "SELECT * FROM orders EMIT CHANGES;")
    assert "stop one first" in refused.text
    await page.post(str(first.url), token=token_of(first.text))
    assert (await run(page, "SELECT * FROM orders EMIT CHANGES;")).status_code == 200


async def test_a_result_is_of_the_browser_that_ran_it(page: Browser) -> None:
    shown = await run(page, "SHOW TABLES;")
    assert "USERS" in shown.text
    stranger = Browser(page.console)
    assert (await stranger.get(str(shown.url.path))).status_code == 404
    await stranger.http.aclose()


async def test_errors_point_at_their_place(page: Browser) -> None:
    refused = await run(page, "SHOW STREAMS; SELECT amuont FROM orders EMIT CHANGES;")
    assert refused.status_code == 400
    assert "^" in refused.text
    assert "AMUONT" in refused.text
    assert "SELECT amuont" in html.unescape(refused.text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "no statement"),
        ("RUN SCRIPT '/etc/passwd';", "for the shell alone"),
        ("SPOOL '/tmp/x';", "for the shell alone"),
        ("exit", "for the shell alone"),
        ("SELECT * FROM orders; SHOW STREAMS;", "has to be the last"),
        ("SHOW STREAMS; " * 101, "Too many statements"),
        ("SELECT" + " " * 70_000 + "1;", "too long"),
    ],
)
async def test_what_is_for_the_shell_or_too_much_is_refused(page: Browser, text: str, line: str) -> None:
    refused = await run(page, text)
    assert (refused.status_code, line in refused.text) == (400, True)


@pytest.mark.parametrize(
    "text",
    [
        "DROP STREAM orders;",
        "INSERT INTO orders VALUES ('x', 'y', 1);",
        "SHOW STREAMS; DROP STREAM orders;",
        "SHOW STREAMS 'a;' DROP STREAM orders;",
        "-- SELECT\nDROP STREAM orders;",
        "/* ; */ DROP STREAM orders;",
        "DEFINE x = '; DROP STREAM orders'; SHOW STREAMS;",
        "SHOW /*' ; DROP STREAM orders; '*/ STREAMS;",
        "CREATE STREAM large AS SELECT * FROM orders;",
        "TERMINATE ALL;",
    ],
)
async def test_a_read_only_console_only_reads(broker: LocalBroker, sql: RestClient, text: str) -> None:
    async with browser_of(options(broker, sql, read_only=True)) as reader:
        assert (await run(reader, text)).status_code == 400
    assert [stream["name"] for stream in sql.execute("SHOW STREAMS;")[0]["streams"]].count("ORDERS") == 1


async def test_a_read_only_console_shows_and_queries(broker: LocalBroker, sql: RestClient) -> None:
    async with browser_of(options(broker, sql, read_only=True)) as reader:
        text = "SET 'auto.offset.reset'='earliest'; DESCRIBE orders; PRINT 'orders' LIMIT 1;"
        shown = await run(reader, text)
        assert shown.status_code == 200
        assert "AMOUNT" in shown.text


async def test_nothing_runs_without_the_token_or_by_get(page: Browser, sql: RestClient) -> None:
    text = "DROP STREAM orders;"
    prefilled = await page.get(EDITOR, params={"text": text + EVIL})
    assert text in prefilled.text
    assert "<script>alert" not in prefilled.text
    assert "\u202e" not in prefilled.text
    assert (await page.post(EDITOR, text=text, token="0" * 64)).status_code == 403
    assert (await page.post(EDITOR, headers={"origin": "http://evil"}, text=text)).status_code == 403
    assert "ORDERS" in json.dumps(sql.execute("SHOW STREAMS;"))


async def test_a_statement_changes_what_there_is(page: Browser, sql: RestClient) -> None:
    done = await run(
        page, "CREATE STREAM short_lived (a STRING) WITH (KAFKA_TOPIC='strange', VALUE_FORMAT='JSON');"
    )
    assert done.status_code == 200
    assert "SHORT_LIVED" in (await page.get("/sql?show=streams")).text
    await run(page, "DROP STREAM short_lived;")
    assert "SHORT_LIVED" not in (await page.get("/sql?show=streams")).text


async def test_completions_are_names_of_the_server(page: Browser) -> None:
    await page.get(EDITOR)
    offers = await until(
        lambda: page.get("/sql/complete", params={"before": "SELECT * FROM ord"}),
        holds=lambda response: response.json(),
    )
    assert offers.json() == [{"text": "ORDERS", "kind": "source", "replaces": 3}]
    long = await page.get("/sql/complete", params={"before": "x" * 20_000})
    assert long.json() == []


async def test_a_result_is_drawn_as_bars_and_as_a_line(page: Browser) -> None:
    shown = await run(page, "SELECT customer, amount FROM orders EMIT CHANGES LIMIT 3;", beginning="1")
    await page.get(live_path(shown.text))
    query = urlencode({"chart": "bars", "of": "AMOUNT", "label": "CUSTOMER"})
    bars = await page.get(f"{shown.url}?{query}")
    assert "AMOUNT by CUSTOMER: 3 values, from -1 to 7." in bars.text
    assert bars.text.count('class="bar-leads"') == 3
    line = await page.get(f"{shown.url}?chart=line&of=nothing&label={EVIL}")
    assert "<polyline" in line.text
    assert "<script>alert" not in line.text


async def test_a_server_that_is_away_is_named(broker: LocalBroker) -> None:
    away = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, sql=SqlTerms(url="http://127.0.0.1:9"))
    async with browser_of(away) as browser:
        for path in ("/sql", "/sql/source?name=A"):
            response = await browser.get(path)
            assert (
                response.status_code,
                "there is no SQL server at http://127.0.0.1:9" in response.text,
            ) == (502, True)
        refused = await run(browser, "SHOW STREAMS;")
        assert "there is no SQL server" in refused.text
