"""The records of a topic on a real broker: searched in steps, shown whatever they are, downloaded, written."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.scenarios.console.conftest import ADDRESS, HOSTS, Browser, browser_of, token_of
from tests.scenarios.console.test_pages import seen

from odradek.client import Admin, NewTopic, Producer
from odradek.console.pages.records import TAIL_ROWS_MAX
from odradek.console.records import reading as records
from odradek.console.web.console import ANONYMOUS, ConsoleOptions
from odradek.model.errors import KafkaError
from odradek.testing import LocalBroker

TOPIC = "letters"
PATH = f"/topics/{TOPIC}/records"
LARGE = 10 << 20
EVIL = b"<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
HOSTILE: tuple[bytes | None, ...] = (
    EVIL,
    "\u202egpj.exe\u2066 {{7*7}}".encode(),
    b"a\r\nset-cookie: x=1\r\n\r\n<b>",
    b"\x00\xff\xfe" * 50,
    b"\x1b[31mred\x1b]0;title\x07",
    b"[" * 50_000,
    b'{"a": ' * 900 + b"1" + b"}" * 900,
    b"9" * 20_000,
    b"\xed\xa0\x80",
    b"",
    None,
)


@pytest.fixture
async def topic(broker: LocalBroker, admin: Admin, browser: Browser) -> AsyncIterator[str]:
    """A topic with two partitions; the first has ten orders, and nothing is in the other."""

    def fill() -> None:
        admin.create_topics([NewTopic(TOPIC, 2, configs={"max.message.bytes": str(2 * LARGE)})])
        write(broker, *(b'{"id": %d, "name": "Ann"}' % number for number in range(10)))

    await asyncio.to_thread(fill)
    await seen(browser, TOPIC)
    yield TOPIC
    await asyncio.to_thread(admin.delete_topics, [TOPIC])


def write(broker: LocalBroker, *values: bytes | None, **more: Any) -> None:
    with Producer(broker.address, max_request_size=2 * LARGE) as producer:
        for value in values:
            producer.send(TOPIC, value, **{"partition": 0, **more})
        producer.flush()


async def sent(browser: Browser, path: str, **fields: str) -> httpx.Response:
    token = token_of((await browser.get(path)).text)
    return await browser.http.post(path, data={"token": token, **fields}, headers={"origin": ADDRESS})


def offsets_of(text: str) -> list[int]:
    return [int(offset) for offset in re.findall(rf'href="{PATH}/0/([0-9]+)"', text)]


async def test_records_are_shown_from_anywhere(browser: Browser, topic: str) -> None:
    shown = {
        "": list(range(9, -1, -1)),
        "?from=last&value=3": [9, 8, 7],
        "?from=beginning": list(range(10)),
        "?from=offset&value=8": [8, 9],
        "?from=time&value=2100-01-01": [],
        "?from=time&value=2000-01-01T00:00:00Z&partition=0": list(range(10)),
        "?from=beginning&partition=1": [],
        "?from=beginning&json=$.id > 7": [8, 9],
        "?from=beginning&text=ANN&key=none": [],
    }
    for query, offsets in shown.items():
        page = await browser.get(PATH + query)
        assert page.status_code == 200, query
        assert offsets_of(page.text) == offsets, query
        assert "That is everything up to the end." in page.text
    assert "Looked at 10 records" in (await browser.get(PATH + "?from=beginning&text=nothing")).text


async def test_the_last_records_are_the_newest_of_all_partitions(
    browser: Browser, broker: LocalBroker, topic: str
) -> None:
    await asyncio.to_thread(write, broker, *[b"old"] * 100)
    await asyncio.to_thread(write, broker, *[b"new"] * 3, partition=1)
    page = await browser.get(PATH + "?from=last&value=3")
    assert page.text.count("<code>new</code>") == 3
    assert "<code>old</code>" not in page.text
    assert "That is everything up to the end." in page.text


async def test_a_search_goes_on_where_a_step_ended(
    browser: Browser, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "STEP_RECORDS_MAX", 4)
    page = await browser.get(PATH + "?from=beginning&json=id>6")
    offsets, counts = offsets_of(page.text), []
    while match := re.search(r'<a class="button" href="([^"]+)"[^>]*>Look further', page.text):
        counts.append(int(re.findall(r"Looked at ([0-9]+) records", page.text)[0]))
        page = await browser.get(html.unescape(match[1]))
        offsets += offsets_of(page.text)
    assert counts == [4, 8]
    assert "Looked at 10 records" in page.text
    assert offsets == [7, 8, 9]


async def test_what_was_aborted_is_seen_on_demand(browser: Browser, broker: LocalBroker, topic: str) -> None:
    def abort() -> None:
        with Producer(broker.address, transactional_id="undone") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(TOPIC, b"never happened", partition=0)
            producer.flush()
            producer.abort_transaction()

    await asyncio.to_thread(abort)
    assert "never happened" not in (await browser.get(PATH)).text
    assert "That is everything" in (await browser.get(PATH)).text
    assert "never happened" in (await browser.get(PATH + "?uncommitted=1")).text


async def test_hostile_records_stay_text_on_every_page(
    browser: Browser, broker: LocalBroker, topic: str
) -> None:
    headers = [("x\r\nset-cookie: a=b", EVIL), (EVIL.decode(), b"\xff"), ("", None)]
    for value in HOSTILE:
        await asyncio.to_thread(write, broker, value, key=value, headers=headers)
    paths = [PATH, f"{PATH}?text=%3Cscript%3E&header=%3Cimg", f"{PATH}?from=beginning&json=a"]
    paths += [f"{PATH}/0/{10 + number}" for number in range(len(HOSTILE))]
    paths += [f"/topics/{TOPIC}/produce?partition=0&offset={10 + number}" for number in range(len(HOSTILE))]
    for path in paths:
        page = await browser.get(path)
        assert page.status_code == 200, path
        assert "<script>alert" not in page.text, path
        assert "<img" not in page.text, path
        assert "\u202e" not in page.text, path
        assert "\x1b" not in page.text, path
        assert " style=" not in page.text, path
        assert ">49<" not in page.text, path


async def test_a_download_has_the_bytes_and_nothing_of_the_record_in_its_headers(
    browser: Browser, broker: LocalBroker, topic: str
) -> None:
    await asyncio.to_thread(write, broker, EVIL, key=b'x"\r\nset-cookie: a=b/../..')
    response = await browser.get(f"{PATH}/0/10/value")
    assert response.content == EVIL
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"] == 'attachment; filename="value-0-10.bin"'
    assert response.headers["x-content-type-options"] == "nosniff"
    key = await browser.get(f"{PATH}/0/10/key")
    assert key.content == b'x"\r\nset-cookie: a=b/../..'
    assert "set-cookie" not in key.headers


async def test_a_value_of_ten_megabytes_is_cut_and_downloaded_whole(
    browser: Browser, broker: LocalBroker, topic: str
) -> None:
    await asyncio.to_thread(write, broker, b"y" * LARGE)
    listed = await browser.get(PATH)
    assert len(listed.content) < 100_000
    page = await browser.get(f"{PATH}/0/10")
    assert "10 MiB" in page.text.replace("\u00a0", " ")
    assert "only the beginning is shown" in page.text
    assert len(page.content) < 100_000
    assert len((await browser.get(f"{PATH}/0/10/value")).content) == LARGE


async def test_a_record_is_written_and_written_again(browser: Browser, topic: str) -> None:
    path = f"/topics/{TOPIC}/produce"
    value = '{"a": 1}\n\tsecond <line>'
    fields = {"partition": "0", "key": "k", "value": value.replace("\n", "\r\n"), "headers": "trace=a=b\r\n"}
    written = await sent(browser, path, **fields)
    assert (written.status_code, written.headers["location"]) == (303, f"{PATH}/0/10?notice=record_written")
    assert (await browser.get(f"{PATH}/0/10/value")).content == value.encode()
    page = await browser.get(f"{PATH}/0/10")
    assert "a=b" in page.text
    form = await browser.get(f"{path}?partition=0&offset=10")
    match = re.search(r'<textarea id="value"[^>]*>\n(.*?)</textarea>', form.text, re.DOTALL)
    assert match is not None
    assert html.unescape(match[1]) == value
    gone = await browser.submit(path, partition="0", key="k", tombstone="1")
    assert gone.status_code == 303
    assert (await browser.get(f"{PATH}/0/11/value")).content == b""
    for wrong in ({"partition": "7"}, {"partition": "x"}, {"headers": "none"}):
        refused = await sent(browser, path, value="x", **wrong)
        assert refused.status_code in (400, 404)
        assert 'role="alert"' in refused.text or "no partition" in refused.text


async def test_a_read_only_console_writes_nothing(broker: LocalBroker, browser: Browser, topic: str) -> None:
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, read_only=True)
    async with browser_of(options) as reader:
        await seen(reader, TOPIC)
        refused = await reader.submit(f"/topics/{TOPIC}/produce", value="x", partition="0")
        assert refused.status_code == 403
        assert max(offsets_of((await reader.get(PATH)).text)) == 9


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?from=offset&value=x", 400),
        ("?from=time&value=soon", 400),
        ("?json=$", 400),
        ("?cursor=x", 400),
        ("?partition=9", 404),
        ("/0/999", 502),
        ("/0/x", 502),
        ("/x/0", 404),
        ("/0/0/secret", 404),
    ],
)
async def test_what_cannot_be_read_is_one_clear_line(
    browser: Browser, topic: str, query: str, status: int
) -> None:
    page = await browser.get(PATH + query)
    assert page.status_code == status
    assert "Traceback" not in page.text


async def test_reading_commits_nothing_and_joins_no_group(browser: Browser, admin: Admin, topic: str) -> None:
    before = await asyncio.to_thread(admin.list_groups)
    await browser.get(PATH)
    await browser.get(f"{PATH}/0/1")
    assert await asyncio.to_thread(admin.list_groups) == before


async def test_a_tail_sees_what_arrives_and_their_number_is_bounded(
    browser: Browser, broker: LocalBroker, topic: str
) -> None:
    model = await browser.console.model_of(ANONYMOUS)
    run = browser.console.background.run
    tails = [await run(model.reader.tail(TOPIC, [0])) for _ in range(records.TAILS_MAX)]
    with pytest.raises(KafkaError, match="close one of them"):
        await run(model.reader.tail(TOPIC, [0]))
    assert await run(tails[0].poll(0.5, TAIL_ROWS_MAX)) == (0, [])
    await asyncio.to_thread(write, broker, b"fresh")
    async with asyncio.timeout(30):
        while not (arrived := (await run(tails[0].poll(1.0, TAIL_ROWS_MAX)))[1]):
            pass
    assert [record.value for record in arrived] == [b"fresh"]
    for tail in tails:
        await run(tail.close())
    await run((await run(model.reader.tail(TOPIC, [0]))).close())
