"""Rules that mask parts of records, on a real broker: every way out of the console, and searches that must not be oracles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of
from tests.scenarios.console.test_pages import seen
from tests.scenarios.console.test_record_pages import offsets_of, write

from odradek.client import Admin, NewTopic, Producer
from odradek.console.pages.records import TAIL_ROWS_MAX
from odradek.console.records.masking import MASK, read_masks
from odradek.console.records.reading import CALL_S
from odradek.console.sql.access import SqlTerms
from odradek.console.web.console import ANONYMOUS, ConsoleOptions
from odradek.dead_letters import headers
from odradek.testing import LocalBroker

TOPIC = "letters"
PATH = f"/topics/{TOPIC}/records"
DEAD = "letters.dlq"
RULES = f"""
[[mask]]
topics = ["{TOPIC}"]
names = ["ssn"]
headers = ["authorization"]

[[mask]]
topics = ["{TOPIC}"]
key = true
"""
SSN = "078-05-1120"
PAIRS = [("authorization", SSN.encode()), ("trace", b"seven")]


@pytest.fixture(scope="module")
def sql_server() -> Iterator[tuple[str, list[str]]]:
    """A SQL server with a stream of the topic, and the statements that came to it; readings of its lists are left out."""
    statements: list[str] = []
    streams = [{"name": "CARDS", "topic": TOPIC}]
    lists = [{"@type": "streams", "streams": streams}, {"@type": "tables", "tables": []}]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = json.loads(self.rfile.read(int(self.headers["content-length"]))).get("ksql", self.path)
            if not text.startswith(("SHOW", "DESCRIBE")):
                statements.append(text)
            content = json.dumps(lists if text.startswith(("SHOW", "DESCRIBE")) else []).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=http.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", statements
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
async def page(
    broker: LocalBroker, admin: Admin, tmp_path: Path, sql_server: tuple[str, list[str]]
) -> AsyncIterator[Browser]:
    """A console with masks; the topic has two people, of which the first has the number, and a dead letter of one of them."""

    def fill() -> None:
        admin.create_topics([NewTopic(TOPIC, 1), NewTopic(DEAD, 1), NewTopic("elsewhere", 1)])
        write(broker, person(SSN), key=SSN.encode(), headers=PAIRS)
        write(broker, person("111-11-1111"), key=b"other", headers=PAIRS)
        failure = {
            headers.TOPIC: TOPIC,
            headers.PARTITION: "0",
            headers.OFFSET: "0",
            headers.EXCEPTION: "ValueError",
            headers.MESSAGE: f"cannot use {SSN}",
            headers.STACKTRACE: f"line of {SSN}",
        }
        with Producer(broker.address) as producer:
            added = [(name, text.encode()) for name, text in failure.items()]
            producer.send(DEAD, person(SSN), key=SSN.encode(), headers=[*PAIRS, *added])
            producer.flush()

    await asyncio.to_thread(fill)
    rules = tmp_path / "masks.toml"
    rules.write_text(RULES)
    options = ConsoleOptions(
        bootstrap=broker.address, hosts=HOSTS, masks=read_masks(rules), sql=SqlTerms(url=sql_server[0])
    )
    async with browser_of(options) as running:
        await seen(running, TOPIC)
        await seen(running, DEAD)
        yield running
    await asyncio.to_thread(admin.delete_topics, [TOPIC, DEAD, "elsewhere"])


def person(ssn: str) -> bytes:
    return json.dumps({"name": "Ann", "ssn": ssn}).encode()


async def test_no_page_and_no_download_shows_what_is_masked(page: Browser) -> None:
    for path in (
        f"{PATH}?from=beginning",
        f"{PATH}/0/0",
        f"{PATH}/0/0/value",
        f"{PATH}/0/0/key",
        f"/topics/{TOPIC}/produce?partition=0&offset=0",
        f"/topics/{DEAD}/records?from=beginning",
        f"/topics/{DEAD}/records/0/0",
        f"/topics/{DEAD}/records/0/0/value",
        f"/dead-letters/{DEAD}",
        f"/dead-letters/{DEAD}/0/0",
    ):
        shown = await page.get(path)
        assert shown.status_code == 200, path
        assert SSN not in shown.text, path
        assert MASK in shown.text or "/produce" in path, path
    record = (await page.get(f"{PATH}/0/0")).text
    assert "Ann" in record
    assert "seven" in record
    assert "Rules of this console mask parts" in record
    assert json.loads((await page.get(f"{PATH}/0/0/value")).content) == {"name": "Ann", "ssn": MASK}
    assert "cannot be written again" in (await page.get(f"/topics/{TOPIC}/produce?partition=0&offset=0")).text


@pytest.mark.parametrize(
    "fields",
    [
        {"text": SSN},
        {"text": "078"},
        {"key": SSN},
        {"header": f"authorization={SSN}"},
        {"json": f'$.ssn = "{SSN}"'},
        {"json": '$.ssn < "1"'},
        {"json": "$.ssn ~ 1120"},
        {"json": f'$.ssn != "{SSN}"'},
    ],
)
async def test_a_search_does_not_tell_records_apart_by_what_is_masked(
    page: Browser, fields: dict[str, str]
) -> None:
    shown = await page.get(PATH, params={"from": "beginning", **fields})
    assert offsets_of(shown.text) in ([], [0, 1])


async def test_a_search_finds_what_is_shown(page: Browser) -> None:
    shown = await page.get(
        PATH, params={"from": "beginning", "json": "$.name = Ann", "header": "trace=seven"}
    )
    assert offsets_of(shown.text) == [0, 1]


async def test_the_live_tail_is_masked(page: Browser, broker: LocalBroker) -> None:
    model = await page.console.model_of(ANONYMOUS)
    run = page.console.background.run
    tail = await run(model.reader.tail(TOPIC, [0]))
    assert await run(tail.poll(0.5, TAIL_ROWS_MAX)) == (0, [])
    await asyncio.to_thread(write, broker, person(SSN), key=SSN.encode(), headers=PAIRS)
    async with asyncio.timeout(CALL_S):
        while not (arrived := await run(tail.poll(1.0, TAIL_ROWS_MAX)))[0]:
            pass
    await run(tail.close())
    [record] = arrived[1]
    assert SSN not in str(record)
    assert json.loads(record.value or b"") == {"name": "Ann", "ssn": MASK}


async def test_a_redrive_sends_the_record_as_it_is_and_only_where_it_came_from(page: Browser) -> None:
    path = f"/dead-letters/{DEAD}/redrive"
    refused = await page.submit(path, to="elsewhere", sure="1")
    assert refused.status_code == 400
    assert "to their own topics only" in refused.text
    done = await page.submit(path, sure="1")
    assert done.status_code == 200, done.text
    model = await page.console.model_of(ANONYMOUS)
    stored = await page.console.background.run(
        model.reader.with_dead_letters(TOPIC, lambda topic: list(topic.letters()), as_stored=True)
    )
    assert [letter.value for letter, _ in stored][-1] == person(SSN)
    assert SSN not in (await page.get(f"{PATH}?from=beginning")).text


async def test_sql_shows_no_rows_of_a_masked_topic(page: Browser, sql_server: tuple[str, list[str]]) -> None:
    statements = sql_server[1]
    for text in (
        "SELECT ssn AS harmless FROM cards EMIT CHANGES;",
        f"PRINT {TOPIC};",
        "CREATE STREAM copy AS SELECT * FROM `CARDS`;",
        f"CREATE STREAM other (a INT) WITH (KAFKA_TOPIC='{TOPIC}', VALUE_FORMAT='JSON');",
        f"SHOW STREAMS; PRINT '{TOPIC}';",
    ):
        refused = await page.submit("/sql/editor", text=text)
        assert refused.status_code == 400, text
        assert "masks parts of records" in refused.text
    assert statements == []
    ran = await page.submit("/sql/editor", text="DROP STREAM cards;")
    assert ran.status_code == 303
    assert statements == ["DROP STREAM cards;"]
