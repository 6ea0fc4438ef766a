"""Pages of persistent queries: a SQL server that exists in answers alone, so that queries fail as a test needs it."""

from __future__ import annotations

import asyncio
import html
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of
from tests.scenarios.console.test_pages import seen

from odradek.client import Admin, NewTopic, Producer
from odradek.console.records.masking import MaskRule, RecordMasks
from odradek.console.sql import access
from odradek.console.sql.access import SqlTerms
from odradek.console.web.console import ConsoleOptions
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker

EVIL = "<script>alert(1)</script>\u202e"
PLAN = """\
write to topic totals, key KAFKA, value JSON
  stateful: aggregate by CUSTOMER
    native: read stream ORDERS from topic orders
"""
GROUP = "__odradek_sink.sql.tests.CTAS_TOTALS_1.to-1"
FAILING = {
    "consumerGroupId": GROUP,
    "id": "CTAS_TOTALS_1",
    "queryString": f"CREATE TABLE totals AS SELECT '{EVIL}' FROM orders;",
    "sinks": ["TOTALS"],
    "sinkKafkaTopics": ["totals"],
    "state": "ERROR",
    "failureCount": 3,
    "failingSince": 1_000,
    "queryErrors": [{"timestamp": 1_000, "errorMessage": f"it failed: {EVIL}"}],
}
RUNNING = {
    "id": "CSAS_LARGE_2",
    "consumerGroupId": "__odradek_sink.that.is.not.there",
    "queryString": "CREATE STREAM large AS …",
    "sinks": ["LARGE"],
    "state": "RUNNING",
}
EXPLAINED = {
    "@type": "queryDescription",
    "queryDescription": {
        "id": "CTAS_TOTALS_1",
        "statementText": FAILING["queryString"],
        "sources": ["ORDERS"],
        "sinks": ["TOTALS"],
        "fields": [{"name": "CUSTOMER", "schema": {"type": "STRING"}, "type": "KEY"}],
        "executionPlan": PLAN,
        **{
            name: FAILING[name]
            for name in ("state", "failureCount", "failingSince", "queryErrors", "consumerGroupId")
        },
    },
}


class ScriptedSqlServer:
    """Answers SHOW and EXPLAIN, and keeps all other statements that it gets."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.is_released = threading.Event()
        """Until then, the stream SLOW has no description."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = json.loads(self.rfile.read(int(self.headers["content-length"])))["ksql"]
                content = json.dumps(outer.reply(text)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def reply(self, text: str) -> list[dict[str, Any]]:
        if text.startswith("DESCRIBE `SLOW`"):
            self.is_released.wait(60)
        if text.startswith("SHOW"):
            queries = {"@type": "queries", "queries": [RUNNING, FAILING]}
            return [queries, {"@type": "streams", "streams": []}, {"@type": "tables", "tables": []}]
        if text.startswith("EXPLAIN"):
            return [EXPLAINED]
        self.statements.append(text)
        return []


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedSqlServer]:
    scripted = ScriptedSqlServer()
    thread = threading.Thread(target=scripted.http.serve_forever)
    thread.start()
    yield scripted
    scripted.http.shutdown()
    scripted.http.server_close()
    thread.join()


@pytest.fixture
async def page(broker: LocalBroker, server: ScriptedSqlServer) -> AsyncIterator[Browser]:
    server.statements.clear()
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, sql=SqlTerms(url=server.url))
    async with browser_of(options) as running:
        yield running


async def test_queries_that_fail_come_first_with_their_reason(page: Browser) -> None:
    listed = await page.get("/sql")
    assert listed.text.index("CTAS_TOTALS_1") < listed.text.index("CSAS_LARGE_2")
    assert "it failed:" in listed.text
    assert "1 failing" in listed.text
    assert "<script>alert" not in listed.text
    assert "\u202e" not in listed.text


async def test_each_query_shows_how_many_records_and_how_long_it_is_behind(
    page: Browser, broker: LocalBroker, admin: Admin
) -> None:
    """The figures are those of the group in which the query commits; a query whose group cannot be read has none."""

    def fill() -> None:
        admin.create_topics([NewTopic("orders", 1)])
        hour_ago_ms = int(time.time() * 1000) - 3_600_000
        with Producer(broker.address) as producer:
            for _ in range(12):
                producer.send("orders", b"x", timestamp_ms=hour_ago_ms, partition=0)
        admin.alter_group_offsets(GROUP, {TopicPartition("orders", 0): 5})

    await asyncio.to_thread(fill)
    await seen(page, "orders")
    listed = html.unescape((await page.get("/sql")).text)
    assert [cells(row) for row in listed.partition("<tbody>")[2].split("<tr>")[1:]] == [
        ["7", "60 min"],
        ["–", "–"],
    ]
    assert "It failed 3 times since 1970-01-01 00:00:01.000" in listed
    shown = html.unescape((await page.get("/sql/query?id=CTAS_TOTALS_1")).text)
    figures = shown.partition('id="lag"')[2].partition("</dl>")[0]
    assert ("<dd>7</dd>" in figures, "<dd>60 min</dd>" in figures) == (True, True)
    assert "/group?id=__odradek_sink.sql.tests.CTAS_TOTALS_1.to-1" in figures


def cells(row: str) -> list[str]:
    return re.findall(r'<td class="number">([^<]*)</td>', row)


async def test_with_masks_the_reason_of_a_failure_is_hidden(
    broker: LocalBroker, server: ScriptedSqlServer
) -> None:
    masks = RecordMasks([MaskRule(topics=("cards",), value=True)])
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, sql=SqlTerms(url=server.url), masks=masks)
    async with browser_of(options) as reader:
        for path in ("/sql", "/sql/query?id=CTAS_TOTALS_1"):
            shown = await reader.get(path)
            assert "it failed:" not in shown.text
            assert "may quote a masked record" in shown.text


async def test_a_query_has_its_failures_and_its_plan_as_a_picture(page: Browser) -> None:
    shown = await page.get("/sql/query?id=CTAS_TOTALS_1")
    text = html.unescape(shown.text)
    assert shown.status_code == 200
    assert "It failed 3 times since 1970-01-01 00:00:01.000" in text
    assert text.count('class="graph-node') == 3
    assert "write to topic totals, key KAFKA, value JSON" in text
    assert "<script>alert" not in shown.text
    for query_id in ("", "A;DROP TABLE x", "`", "a" * 300):
        assert (await page.get("/sql/query", params={"id": query_id})).status_code == 404


async def test_a_query_is_paused_by_a_button_and_terminated_after_a_question(
    page: Browser, server: ScriptedSqlServer
) -> None:
    path = "/sql/query?id=CTAS_TOTALS_1"
    done = await page.submit("/sql/query", on=path, id="CTAS_TOTALS_1", action="pause")
    assert done.headers["location"].endswith("notice=query_paused")
    asked = await page.submit("/sql/query", on=path, id="CTAS_TOTALS_1", action="terminate")
    assert "Yes, terminate it" in asked.text
    assert server.statements == ["PAUSE CTAS_TOTALS_1;"]
    await page.submit("/sql/query", on=path, id="CTAS_TOTALS_1", action="terminate", sure="1")
    assert server.statements == ["PAUSE CTAS_TOTALS_1;", "TERMINATE CTAS_TOTALS_1;"]
    for fields in ({"id": "CTAS_TOTALS_1", "action": "drop"}, {"id": "X; DROP", "action": "pause"}):
        assert (await page.submit("/sql/query", on=path, **fields)).status_code in (400, 404)
    assert len(server.statements) == 2


async def test_a_read_only_console_ends_no_query(broker: LocalBroker, server: ScriptedSqlServer) -> None:
    options = ConsoleOptions(
        bootstrap=broker.address, hosts=HOSTS, sql=SqlTerms(url=server.url), read_only=True
    )
    server.statements.clear()
    async with browser_of(options) as reader:
        path = "/sql/query?id=CTAS_TOTALS_1"
        assert 'name="action"' not in (await reader.get(path)).text
        fields = {"id": "CTAS_TOTALS_1", "action": "terminate", "sure": "1"}
        assert (await reader.submit("/sql/query", on=path, **fields)).status_code == 403
    assert server.statements == []


async def test_a_server_that_is_silent_holds_up_its_own_page_alone(
    page: Browser, server: ScriptedSqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr(access, "READ_S", 0.2)
        slow = [asyncio.create_task(page.get("/sql/source?name=SLOW")) for _ in range(3)]
        for response in await asyncio.gather(*slow):
            assert (response.status_code, "did not answer within 0.2 s" in response.text) == (502, True)
    assert "CTAS_TOTALS_1" in (await page.get("/sql")).text
    server.is_released.set()
