"""Records with a schema of a registry on the pages: decoded where they are shown, and as they are where they are downloaded."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.kit.waiting import until
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of
from tests.schema_registry import RegistryOfIds, registry_of_ids
from tests.unit.console.test_record_decoding import ORDER, framed, written

from odradek.client import NewTopic, Producer
from odradek.client.admin.admin import Admin
from odradek.console.web.console import ConsoleOptions
from odradek.testing import LocalBroker

VALUE = framed(1, written(ORDER, {"item": "<b>tea</b>", "raw": 7}))


@pytest.fixture
def registry() -> Iterator[RegistryOfIds]:
    with registry_of_ids() as running:
        running.avro(1, ORDER)
        yield running


@pytest.fixture
async def decoding(broker: LocalBroker, admin: Admin, registry: RegistryOfIds) -> AsyncIterator[Browser]:
    def prepare() -> None:
        if "decoded" not in admin.list_topics():
            admin.create_topics([NewTopic("decoded", 1)])
            with Producer(broker.address) as producer:
                producer.send("decoded", VALUE, key=b"plain", partition=0)
                producer.send("decoded", framed(2, b"no such schema"), partition=0)

    await asyncio.to_thread(prepare)
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, schema_registry=registry.terms)
    async with browser_of(options) as running:
        await until(lambda: running.get("/topics/decoded"), holds=lambda page: page.status_code == 200)
        yield running


async def test_records_are_decoded_and_downloads_are_not(decoding: Browser) -> None:
    rows = await decoding.get("/topics/decoded/records?from=beginning")
    assert '{"item": "<b>tea</b>", "raw": 7}' in html.unescape(rows.text)
    assert "<b>tea" not in rows.text
    record = await decoding.get("/topics/decoded/records/0/0")
    assert "Decoded by schema 1 of the registry (AVRO)" in record.text
    assert '"item": "&lt;b&gt;tea&lt;/b&gt;"' in record.text.replace("&#34;", '"')
    assert (await decoding.get("/topics/decoded/records/0/0/value")).content == VALUE
    assert "Decoded by" not in (await decoding.get("/topics/decoded/records/0/1")).text


async def test_a_condition_is_tested_on_the_decoded_value(decoding: Browser) -> None:
    records = "/topics/decoded/records"
    matching = await decoding.get(records, params={"from": "beginning", "json": "raw = 7"})
    assert "&lt;b&gt;tea" in matching.text
    assert "Looked at 2 records" in matching.text
    assert "1 value with a schema could not be decoded" in matching.text, "one has an unknown schema"
    assert "schema 2 is not in the registry" in matching.text
    other = await decoding.get(records, params={"from": "beginning", "json": "raw = 8"})
    assert "&lt;b&gt;tea" not in other.text
    assert "1 value with a schema could not be decoded" in other.text
    text = await decoding.get(records, params={"from": "beginning", "text": "TEA"})
    assert "could not be decoded" not in text.text, "a search for text decodes nothing"


async def test_a_registry_that_is_away_leaves_the_bytes_and_says_so(
    decoding: Browser, registry: RegistryOfIds, broker: LocalBroker
) -> None:
    terms = type(registry.terms).of("http://127.0.0.1:9")
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, schema_registry=terms)
    async with browser_of(options) as browser:
        await browser.get("/topics")
        page = await until(
            lambda: browser.get("/topics/decoded/records/0/0"), holds=lambda page: page.status_code == 200
        )
        assert "cannot be reached" in page.text
        assert "3c 62 3e 74 65 61" in page.text, "the bytes are shown in hexadecimal"
