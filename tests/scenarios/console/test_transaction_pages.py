"""The pages of transactions on a real broker: one that its coordinator knows, one that hangs, and who may end them."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from urllib.parse import urlencode

import pytest
from tests.interop.console.objects_of_every_kind import begin_hanging
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of, login_of, login_options
from tests.scenarios.console.test_pages import READ_S, seen

from odradek.client import Admin, Consumer, NewPassword, NewTopic, Producer
from odradek.client.admin.transaction_descriptions import open_transactions_in
from odradek.console.model import refreshing, transaction_ending
from odradek.console.model.transaction_reading import read_long_transactions
from odradek.console.web.console import ANONYMOUS, ConsoleOptions
from odradek.model.ids import TopicPartition
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType
from odradek.security.acls import Acl, AclPattern
from odradek.testing import LocalBroker

TOPIC = "transfers"
HANGS = TopicPartition(TOPIC, 1)
PRODUCER_ID = 987_654
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
"""The partitions believe a producer that its coordinator does not know, as brokers before KIP-890 do."""
EVIL = "<script>alert(1)</script>\u202e\"'&id=x"


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(UNVERIFIED) as running:
        with Admin(running.address) as admin:
            admin.create_topics([NewTopic(TOPIC, 2)])
        with Producer(running.address, transactional_id="first") as producer:
            producer.init_transactions()  # the coordinator is there
        yield running


@pytest.fixture
async def browser(broker: LocalBroker) -> AsyncIterator[Browser]:
    async with browser_of(ConsoleOptions(bootstrap=broker.address, hosts=HOSTS)) as running:
        await seen(running, TOPIC)
        yield running


def begun(address: str, name: str) -> Producer:
    producer = Producer(address, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(TOPIC, b"open", partition=0)
    producer.flush()
    return producer


def committed(address: str, partition: int) -> list[bytes | None]:
    """Returns what readers of committed records get."""
    with Consumer(address, isolation_level="read_committed") as consumer:
        tp = TopicPartition(TOPIC, partition)
        consumer.assign([tp])
        consumer.seek_to_beginning([tp])
        return [record.value for record in consumer.poll(1.0)]


def open_ids(admin: Admin, tp: TopicPartition) -> list[int]:
    return [
        producer.producer_id
        for producer in admin.describe_producers([tp])[tp]
        if producer.transaction_start_offset is not None
    ]


def fields_of(page: str) -> dict[str, str]:
    """Returns the hidden fields of the form."""
    return dict(re.findall(r'type="hidden" name="(epoch|start|producer)" value="([^"]*)"', page))


def abort_path(**changes: object) -> str:
    fields = {"topic": TOPIC, "partition": 1, "producer": PRODUCER_ID, **changes}
    return "/transactions/abort?" + urlencode(fields)


async def test_a_transaction_that_hangs_is_found_shown_and_ended(
    browser: Browser, broker: LocalBroker, admin: Admin
) -> None:
    alive = await asyncio.to_thread(begun, broker.address, "alive-1")
    await asyncio.to_thread(begin_hanging, broker.address, TOPIC, HANGS.partition, PRODUCER_ID)
    with Producer(broker.address) as other:
        await asyncio.to_thread(lambda: other.send(TOPIC, b"behind it", partition=1).result())
    assert await asyncio.to_thread(committed, broker.address, 1) == []
    search = await browser.get("/transactions", params={"find": "1", "minutes": "0"})
    assert re.search("Looked at [0-9]+ of [0-9]+ partitions", search.text) is not None
    assert f"{TOPIC}-1" in search.text
    assert f"{TOPIC}-0" not in search.text, "its coordinator knows that one"
    [link] = re.findall(r'href="(/transactions/abort[^"]*)"', search.text)
    assert html.unescape(link) == abort_path()
    preview = await browser.get(html.unescape(link))
    assert "They wait at offset 0" in preview.text
    assert "2 offsets are behind it" in preview.text
    assert await asyncio.to_thread(open_ids, admin, HANGS) == [PRODUCER_ID], "a look ends nothing"
    forged = await browser.post(abort_path(), None, **fields_of(preview.text))
    assert forged.status_code == 403
    stale = await browser.submit(abort_path(), **{**fields_of(preview.text), "start": "7"})
    assert stale.status_code == 400
    assert "has begun another transaction" in stale.text
    assert await asyncio.to_thread(open_ids, admin, HANGS) == [PRODUCER_ID]
    ended = await browser.submit(abort_path(), **fields_of(preview.text))
    assert (ended.status_code, ended.headers["location"]) == (303, "/transactions?notice=transaction_aborted")
    assert await asyncio.to_thread(open_ids, admin, HANGS) == []
    assert await asyncio.to_thread(committed, broker.address, 1) == [b"behind it"]
    again = await browser.get(abort_path())
    assert f"no transaction of producer {PRODUCER_ID} is open" in again.text
    await asyncio.to_thread(alive.abort_transaction)
    await asyncio.to_thread(alive.close)


async def test_a_transaction_that_its_coordinator_knows_is_not_torn_apart_but_ended_there(
    browser: Browser, broker: LocalBroker, admin: Admin
) -> None:
    producer = await asyncio.to_thread(begun, broker.address, "pay-1")
    tp = TopicPartition(TOPIC, 0)
    [producer_id] = await asyncio.to_thread(open_ids, admin, tp)
    path = abort_path(partition=0, producer=producer_id)
    preview = await browser.get(path)
    assert "The coordinator of pay-1 still knows this transaction" in preview.text
    assert 'class="danger"' not in preview.text
    refused = await browser.submit(path, **fields_of(preview.text))
    assert refused.status_code == 400
    assert await asyncio.to_thread(open_ids, admin, tp) == [producer_id]
    path = "/transactions/terminate?id=pay-1"
    preview = await browser.get(path)
    assert f"{TOPIC}-0" in preview.text
    stale = await browser.submit(path, **{**fields_of(preview.text), "start": "1"})
    assert stale.status_code == 400
    assert "has ended meanwhile, or another one was begun" in stale.text
    ended = await browser.submit(path, **fields_of(preview.text))
    assert ended.status_code == 303
    async with asyncio.timeout(READ_S):
        while await asyncio.to_thread(open_ids, admin, tp):
            await asyncio.sleep(0.05)
    over = await browser.get(path)
    assert "It is not open" in over.text
    assert 'class="danger"' not in over.text
    await asyncio.to_thread(producer.close, 0.0)


async def test_long_transactions_are_listed_and_named_on_the_overview(
    browser: Browser, broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshing, "read_long_transactions", partial(read_long_transactions, open_for_ms=0))
    producer = await asyncio.to_thread(begun, broker.address, EVIL)
    model = await browser.console.model_of(ANONYMOUS)
    async with asyncio.timeout(READ_S):
        while not model.snapshot.long_transactions:
            await browser.console.background.run(model.refresh_now("transactions"))
            await asyncio.sleep(0.05)
    for path in ("/transactions", "/"):
        page = await browser.get(path)
        assert "&lt;script&gt;" in page.text, path
        assert "<script>alert" not in page.text, path
        assert "\u202e" not in page.text, path
    listed = await browser.get("/transactions")
    [link] = re.findall(r'href="(/transactions/terminate[^"]*)"', listed.text)
    preview = await browser.get(html.unescape(link))
    assert preview.status_code == 200
    assert (await browser.submit(html.unescape(link), **fields_of(preview.text))).status_code == 303
    await asyncio.to_thread(producer.close, 0.0)
    for unusable in ("", "x" * 33_000, "\ud800"):
        page = await browser.get(
            "/transactions/terminate", params={"id": unusable.encode(errors="surrogatepass")}
        )
        assert 400 <= page.status_code < 500, unusable[:9]
        assert ("has at most 32767" in page.text) == (len(unusable) > 32_767), unusable[:9]
    missing = await browser.get("/transactions/terminate?id=nobody-has-this")
    assert missing.status_code == 404
    assert "&lt;" not in missing.text


async def test_a_search_goes_on_where_it_stopped_and_refuses_nonsense(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_ending, "PARTITIONS_MAX", 1)
    first = await browser.get("/transactions", params={"find": "1", "topic": TOPIC})
    assert "Looked at 1 of 2 partitions" in first.text
    [further] = re.findall(r'class="button" href="(/transactions\?[^"]*start=1[^"]*)"', first.text)
    last = await browser.get(html.unescape(further))
    assert "Looked at 2 of 2 partitions" in last.text
    assert 'class="button" href="/transactions?' not in last.text
    for wrong in ({"topic": EVIL}, {"minutes": "x"}, {"minutes": "9" * 40}):
        page = await browser.get("/transactions", params={"find": "1", **wrong})
        assert page.status_code == 400, wrong
        assert "<script>alert" not in page.text
    for wrong in ({"partition": "x"}, {"producer": "1" * 40}, {"topic": "nothing"}, {"partition": "77"}):
        page = await browser.get(abort_path(**wrong))
        assert 400 <= page.status_code < 500, wrong


async def test_a_read_only_console_ends_nothing(broker: LocalBroker, admin: Admin) -> None:
    await asyncio.to_thread(begin_hanging, broker.address, TOPIC, HANGS.partition, PRODUCER_ID)
    async with browser_of(ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, read_only=True)) as browser:
        preview = await browser.get(abort_path())
        assert 'class="danger"' not in preview.text
        refused = await browser.submit(abort_path(), **fields_of(preview.text))
        assert refused.status_code == 403
    assert await asyncio.to_thread(open_ids, admin, HANGS) == [PRODUCER_ID]
    [hanging] = open_transactions_in(
        {HANGS: (await asyncio.to_thread(admin.describe_producers, [HANGS]))[HANGS]}
    )
    await asyncio.to_thread(admin.abort_transaction, hanging)


async def test_what_is_offered_follows_the_access_rules(secure_broker: LocalBroker) -> None:
    """Eve sees the transaction and may not end it; with WRITE on its id she may. The rules decide at the broker as well."""
    settings = {"bootstrap.servers": secure_broker.address, **secure_broker.client_settings}

    def change(*rules: Acl) -> None:
        with Admin.from_config(settings) as admin:
            admin.alter_users({"eve": NewPassword(password="eve's own", iterations=4096)})
            admin.create_acls(list(rules))

    def prepare() -> Producer:
        with Admin.from_config(settings) as admin:
            admin.create_topics([NewTopic(TOPIC, 2)])
        producer = Producer.from_config({**settings, "transactional.id": "pay-2"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"open", partition=0)
        producer.flush()
        return producer

    def rule(kind: AclResourceType, name: str, operation: AclOperation) -> Acl:
        return Acl(AclPattern(kind, name), "User:eve", "*", operation, AclPermission.ALLOW)

    producer = await asyncio.to_thread(prepare)
    topic, cluster = AclResourceType.TOPIC, AclResourceType.CLUSTER
    names = AclResourceType.TRANSACTIONAL_ID
    await asyncio.to_thread(
        change,
        rule(topic, TOPIC, AclOperation.READ),
        rule(names, "pay-2", AclOperation.DESCRIBE),
        rule(cluster, "kafka-cluster", AclOperation.DESCRIBE),
        rule(cluster, "kafka-cluster", AclOperation.DESCRIBE_CONFIGS),
    )
    path = "/transactions/terminate?id=pay-2"
    options = login_options(secure_broker)
    async with browser_of(options) as browser:
        assert (await browser.get(path)).status_code == 303, "it asks for a login"
        await browser.submit("/login", name="eve", password="eve's own")
        preview = await browser.get(path)
        assert "pay-2" in preview.text
        assert 'class="danger"' not in preview.text
        refused = await browser.submit(path, **fields_of(preview.text))
        assert refused.status_code == 400
        assert "not authorised for the transactional id" in refused.text
        search = await browser.get("/transactions", params={"find": "1", "minutes": "0", "topic": TOPIC})
        assert "No transaction hangs" in search.text
    await asyncio.to_thread(change, rule(names, "pay-2", AclOperation.WRITE))
    async with browser_of(options) as browser:
        await browser.submit("/login", name="eve", password="eve's own")
        preview = await browser.get(path)
        assert 'class="danger"' in preview.text
        ended = await browser.submit(path, **fields_of(preview.text))
        assert ended.status_code == 303
    async with browser_of(options) as browser:
        await browser.submit("/login", **login_of(secure_broker))
        assert "It is not open" in (await browser.get(path)).text
    await asyncio.to_thread(producer.close, 0.0)
