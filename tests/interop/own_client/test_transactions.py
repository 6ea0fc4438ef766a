"""Our own client in transactions: both flows, offsets, fencing, and what a failure leaves behind."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from tests.interop import logins
from tests.kit.waiting import eventually

from odradek import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    CommitFailedError,
    Consumer,
    KafkaError,
    Producer,
    ProducerFencedError,
    TopicPartition,
)
from odradek.client import FatalTransactionError, TransactionAbortedError, TransactionError
from odradek.client.groups.values import GroupMetadata
from odradek.client.transactions import service
from odradek.client.transactions.prepared import TransactionClient
from odradek.model.errors import ErrorCode

SECONDS = 20.0
TXN_OFFSET_COMMIT = 28
MakeTopic = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture(params=["epoch-per-transaction", "classic"], autouse=True)
def flow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """KIP-890's flow, which the server offers, and the one of clients that do not know it."""
    if request.param == "classic":
        monkeypatch.setattr(service, "EPOCH_PER_TRANSACTION", 99)
    return str(request.param)


@pytest.fixture
def name() -> str:
    return f"transactional-{time.time_ns()}-{next(_numbers)}"


@pytest.fixture
def producer(bootstrap: str, name: str, flow: str) -> Iterator[Producer]:
    with Producer(**logins.ours(bootstrap), transactional_id=name, linger_ms=0) as made:
        made.init_transactions()
        transactions = made._core.need_transactions()
        assert transactions.core.epoch_per_transaction is (flow == "epoch-per-transaction")
        yield made


def read(
    bootstrap: str, topic: str, *, isolation: str = "read_committed", partitions: int = 1
) -> list[bytes]:
    """What is there now, to the end that the isolation level allows."""
    values: list[bytes] = []
    with Consumer(
        **logins.ours(bootstrap), auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(wanted)
        ends = consumer.end_offsets(wanted)
        deadline = time.monotonic() + SECONDS
        while any(consumer.positions().get(tp, -1) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline
            values += [record.value for record in consumer.poll(0.2)]
    return values


def read_eventually(bootstrap: str, topic: str, count: int, **more: Any) -> list[bytes]:
    """Markers are written after a transaction has ended: wait until so many records are there."""
    return eventually(lambda: read(bootstrap, topic, **more), holds=lambda values: len(values) >= count)


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    bootstrap: str, topic: MakeTopic, producer: Producer
) -> None:
    into = topic(partitions=2)
    for round_number in range(6):
        producer.begin_transaction()
        for number in range(10):
            producer.send(into, b"%d.%d" % (round_number, number), partition=number % 2)
        if round_number % 2:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    committed = read_eventually(bootstrap, into, 30, partitions=2)
    assert sorted(committed) == sorted(b"%d.%d" % (r, n) for r in (0, 2, 4) for n in range(10))
    assert len(read(bootstrap, into, isolation="read_uncommitted", partitions=2)) == 60


def test_an_open_transaction_holds_back_what_comes_after_it(
    bootstrap: str, topic: MakeTopic, producer: Producer
) -> None:
    into = topic()
    producer.begin_transaction()
    producer.send(into, b"open").result(SECONDS)
    with Producer(**logins.ours(bootstrap)) as other:
        other.send(into, b"plain").result(SECONDS)
    assert read(bootstrap, into) == []
    producer.commit_transaction()
    assert read_eventually(bootstrap, into, 2) == [b"open", b"plain"]


def test_a_block_commits_and_a_block_that_fails_aborts(
    bootstrap: str, topic: MakeTopic, producer: Producer
) -> None:
    into = topic()
    with producer.transaction():
        producer.send(into, b"kept")

    def fail() -> None:
        with producer.transaction():
            producer.send(into, b"dropped")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with producer.transaction():
        producer.send(into, b"kept, too")
    assert read_eventually(bootstrap, into, 2) == [b"kept", b"kept, too"]


def test_arrow_shows_committed_records_only(bootstrap: str, topic: MakeTopic, producer: Producer) -> None:
    into = topic()
    for value, commit in ((b"1", True), (b"aborted", False), (b"2", True)):
        producer.begin_transaction()
        producer.send(into, value).result(SECONDS)
        (producer.commit_transaction if commit else producer.abort_transaction)()
    read_eventually(bootstrap, into, 2)
    values: list[Any] = []
    with Consumer(
        **logins.ours(bootstrap), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition(into, 0)])
        while len(values) < 2:
            values += consumer.poll_arrow(SECONDS).column("value").to_pylist()
    assert values == [b"1", b"2"]


def test_an_empty_transaction_changes_nothing(bootstrap: str, topic: MakeTopic, producer: Producer) -> None:
    into = topic()
    for _ in range(3):
        with producer.transaction():
            pass
    producer.begin_transaction()
    producer.abort_transaction()
    with producer.transaction():
        delivery = producer.send(into, b"first")
    assert delivery.result(SECONDS).offset == 0
    read_eventually(bootstrap, into, 1)


def test_what_was_not_sent_yet_is_dropped_by_an_abort(bootstrap: str, topic: MakeTopic, name: str) -> None:
    into = topic()
    with Producer(**logins.ours(bootstrap), transactional_id=name, linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        delivery = producer.send(into, b"never sent")
        producer.abort_transaction()
        assert isinstance(delivery.exception(SECONDS), TransactionAbortedError)
        with producer.transaction():
            producer.send(into, b"sent")
    assert read_eventually(bootstrap, into, 1, isolation="read_committed") == [b"sent"]


def test_offsets_move_with_the_transaction(
    bootstrap: str, topic: MakeTopic, producer: Producer, name: str
) -> None:
    source, into = topic(), topic()
    with Producer(**logins.ours(bootstrap)) as other:
        for number in range(10):
            other.send(source, b"%d" % number)
    only = TopicPartition(source, 0)
    settings: dict[str, Any] = {
        "group_id": name,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
    }
    with Consumer(**logins.ours(bootstrap), **settings) as consumer:
        consumer.subscribe([source])
        records = consumer.poll(SECONDS, max_records=5)
        producer.begin_transaction()
        producer.send(into, b"aborted")
        producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        producer.abort_transaction()
        assert consumer.committed([only], SECONDS) == {only: None}
        with producer.transaction():
            for record in records:
                producer.send(into, record.value)
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        metadata = consumer.committed([only], SECONDS)[only]
        assert metadata is not None
        assert metadata.offset == len(records)
    assert read_eventually(bootstrap, into, len(records)) == [b"%d" % n for n in range(len(records))]


def test_offsets_of_a_transaction_name_their_topic_by_its_id(proxied: Any, name: str, flow: str) -> None:
    """Version 6 does so (KIP-1319); transactions without KIP-890 stay at version 4, which has names."""
    proxy, server = proxied
    topic = f"named-{next(_numbers)}"
    server.create_topic(topic)
    login = logins.ours(proxy.bootstrap)
    with (
        Producer(**login, transactional_id=name, linger_ms=0) as producer,
        Consumer(**login, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
        Admin(**login) as admin,
    ):
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"x")
        consumer.subscribe([topic])
        assert [record.value for record in consumer.poll(SECONDS)] == [b"x"]
        positions, topic_id = consumer.positions(), admin.describe_topics([topic])[topic].topic_id
        proxy.recorded.clear()
        with producer.transaction():
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        requests = [request for request in list(proxy.recorded) if request.api_key == TXN_OFFSET_COMMIT]
        committed = admin.list_group_offsets(name)
    is_modern = flow == "epoch-per-transaction"
    assert [request.api_version for request in requests] == [6 if is_modern else 4]
    assert (topic_id.bytes in requests[0].frame) is is_modern
    assert (topic.encode() in requests[0].frame) is not is_modern
    assert {tp: offset.offset for tp, offset in committed.items() if offset} == positions


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_next_owner_begins_behind_what_a_transaction_is_about_to_commit(
    bootstrap: str, topic: MakeTopic, producer: Producer, name: str, isolation: str
) -> None:
    source = TopicPartition(topic(), 0)
    with Producer(**logins.ours(bootstrap)) as other:
        for number in range(4):
            other.send(source.topic, b"%d" % number)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({source: 3}, GroupMetadata(group_id=name))
    with Consumer(
        **logins.ours(bootstrap), group_id=name, isolation_level=isolation, auto_offset_reset="earliest"
    ) as next_owner:
        next_owner.assign([source])
        assert next_owner.poll(0.5) == []
        producer.commit_transaction()
        assert [record.value for record in next_owner.poll(SECONDS)] == [b"3"]


def test_a_member_that_lost_its_partitions_cannot_commit_through_a_transaction(
    bootstrap: str, topic: MakeTopic, producer: Producer, name: str
) -> None:
    source = topic()
    with Consumer(**logins.ours(bootstrap), group_id=name) as consumer:
        consumer.subscribe([source])
        deadline = time.monotonic() + SECONDS
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        stale = GroupMetadata(group_id=name, generation=77, member_id=consumer.group_metadata().member_id)
        producer.begin_transaction()
        with pytest.raises(CommitFailedError):
            producer.send_offsets_to_transaction({TopicPartition(source, 0): 1}, stale)
        with pytest.raises(KafkaError, match="abort the transaction"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send_offsets_to_transaction({TopicPartition(source, 0): 1}, consumer.group_metadata())


def test_a_newer_producer_of_the_same_name_fences_the_older(
    bootstrap: str, topic: MakeTopic, producer: Producer, name: str
) -> None:
    into = topic()
    producer.begin_transaction()
    producer.send(into, b"of a zombie").result(SECONDS)
    with Producer(**logins.ours(bootstrap), transactional_id=name) as newer:
        newer.init_transactions()
        with newer.transaction():
            newer.send(into, b"of the living")

        def go_on() -> None:
            with producer.transaction():
                producer.send(into, b"too late")

        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
        with pytest.raises(ProducerFencedError):
            go_on()
    assert read_eventually(bootstrap, into, 1) == [b"of the living"]


@pytest.mark.parametrize("protocol", ["classic", "consumer", "auto"])
def test_a_member_that_left_its_group_cannot_commit_what_it_polled(
    bootstrap: str, topic: MakeTopic, name: str, producer: Producer, protocol: Any
) -> None:
    """It was too slow, and another member may have read the same records."""
    source = topic()
    with Producer(**logins.ours(bootstrap)) as other:
        other.send(source, b"x")
    timing: Any = {"max_poll_interval_ms": 1_000, "group_protocol": protocol}
    with (
        Admin(**logins.ours(bootstrap)) as admin,
        Consumer(
            **logins.ours(bootstrap),
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **timing,
        ) as slow,
    ):
        slow.subscribe([source])
        eventually(lambda: slow.poll(0.2))
        eventually(lambda: not admin.describe_groups([name])[name].members)
        producer.begin_transaction()
        with pytest.raises(CommitFailedError):
            producer.send_offsets_to_transaction(slow.positions(), slow.group_metadata())
        producer.abort_transaction()


def test_what_waits_to_be_sent_fails_with_a_producer_that_is_fenced(
    bootstrap: str, topic: MakeTopic, name: str
) -> None:
    """Else `close` waits for it until delivery.timeout.ms is over."""
    into = topic()
    with Producer(**logins.ours(bootstrap), transactional_id=name, linger_ms=60_000) as old:
        old.init_transactions()
        with Producer(**logins.ours(bootstrap), transactional_id=name) as young:
            young.init_transactions()
            old.begin_transaction()
            delivery = old.send(into, b"never sent")
            with pytest.raises(ProducerFencedError):
                old.send_offsets_to_transaction({TopicPartition(into, 0): 1}, GroupMetadata(group_id=name))
            with pytest.raises(ProducerFencedError):
                delivery.result(SECONDS)


def test_a_record_that_the_broker_refuses_costs_the_transaction_and_no_more(
    bootstrap: str, topic: MakeTopic, producer: Producer
) -> None:
    small, into = topic(**{"max.message.bytes": "200"}), topic()

    def try_it() -> None:
        with producer.transaction():
            producer.send(into, b"lost with the other")
            producer.send(small, b"x" * 1_000)

    with pytest.raises(TransactionError):
        try_it()
    with producer.transaction():
        producer.send(into, b"alone")
    assert read_eventually(bootstrap, into, 1) == [b"alone"]


def test_a_transaction_left_open_by_close_is_aborted_at_once(
    bootstrap: str, topic: MakeTopic, name: str
) -> None:
    into = topic()
    producer = Producer(**logins.ours(bootstrap), transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(into, b"open").result(SECONDS)
    producer.close()
    with Producer(**logins.ours(bootstrap)) as other:
        other.send(into, b"plain").result(SECONDS)
    assert read_eventually(bootstrap, into, 1) == [b"plain"]


def test_calls_in_the_wrong_order_are_reported(
    producer: Producer, bootstrap: str, topic: MakeTopic, name: str
) -> None:
    with pytest.raises(KafkaError, match="begin_transaction first"):
        producer.send(topic(), b"x")
    with pytest.raises(KafkaError, match="begin_transaction first"):
        producer.commit_transaction()
    with (
        Producer(**logins.ours(bootstrap)) as plain,
        pytest.raises(KafkaError, match="transactional_id"),
    ):
        plain.begin_transaction()
    with (
        Producer(**logins.ours(bootstrap), transactional_id=f"{name}-2") as early,
        pytest.raises(KafkaError, match="init"),
    ):
        early.begin_transaction()


def test_a_timeout_beyond_what_the_broker_allows_is_fatal(bootstrap: str, name: str) -> None:
    with (
        Producer(
            **logins.ours(bootstrap), transactional_id=name, transaction_timeout_ms=2_000_000_000
        ) as producer,
        pytest.raises(FatalTransactionError),
    ):
        producer.init_transactions()


def test_librdkafka_reads_what_we_commit_and_we_what_it_commits(
    bootstrap: str, topic: MakeTopic, producer: Producer, name: str
) -> None:
    into = topic()
    with producer.transaction():
        producer.send(into, b"ours")
    their = confluent_kafka.Producer({**logins.librdkafka(bootstrap), "transactional.id": f"{name}-theirs"})
    their.init_transactions(SECONDS)
    for value, commit in ((b"theirs, aborted", False), (b"theirs", True)):
        their.begin_transaction()
        their.produce(into, value)
        their.flush(SECONDS)
        (their.commit_transaction if commit else their.abort_transaction)(SECONDS)
    assert read_eventually(bootstrap, into, 2) == [b"ours", b"theirs"]
    settings = {**logins.librdkafka(bootstrap), "group.id": name, "enable.auto.commit": False}
    reader = confluent_kafka.Consumer(settings)
    reader.assign([confluent_kafka.TopicPartition(into, 0, 0)])
    values = [message.value() for message in reader.consume(2, SECONDS)]
    reader.close()
    assert values == [b"ours", b"theirs"]


def test_an_admin_looks_a_coordinator_up_again_only_where_an_attempt_failed(
    bootstrap: str, producer: Producer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[bool] = []
    broker_of = TransactionClient.broker_of

    async def noted(client: TransactionClient, transactional_id: str, *, search: bool = False) -> int:
        searches.append(search)
        if len(searches) == 1:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "it has moved")
        return await broker_of(client, transactional_id, search=search)

    monkeypatch.setattr(TransactionClient, "broker_of", noted)
    with Admin(**logins.ours(bootstrap)) as admin:
        for _ in range(3):
            assert admin.describe_transactions([name])[name].transactional_id == name
    assert searches == [False, True, False, False]


def test_an_admin_sees_transactions_and_can_end_one(
    bootstrap: str, topic: MakeTopic, producer: Producer, name: str
) -> None:
    into = topic()
    only = TopicPartition(into, 0)
    producer.begin_transaction()
    producer.send(into, b"open").result(SECONDS)
    with Admin(**logins.ours(bootstrap)) as admin:
        listed = {
            transaction.transactional_id: transaction
            for transaction in admin.list_transactions(states=["Ongoing"])
        }
        assert name in listed
        described = admin.describe_transactions([name])[name]
        assert (described.state, described.partitions) == ("Ongoing", (only,))
        [state] = admin.describe_producers([only])[only]
        assert state.producer_id == described.producer_id
        assert state.transaction_start_offset == 0
    producer.commit_transaction()


async def test_the_asynchronous_face_has_transactions_too(
    bootstrap: str, topic: MakeTopic, name: str
) -> None:
    source, into = topic(), topic()
    async with AsyncProducer(**logins.ours(bootstrap)) as other:
        await other.send_and_wait(source, b"1")
    settings: dict[str, Any] = {
        "group_id": name,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    async with (
        AsyncProducer(**logins.ours(bootstrap), transactional_id=name) as producer,
        AsyncConsumer(**logins.ours(bootstrap), **settings) as consumer,
    ):
        await producer.init_transactions()
        await consumer.subscribe([source])
        records = await consumer.poll(SECONDS)
        async with producer.transaction():
            for record in records:
                await producer.send(into, record.value)
            await producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())
        producer.begin_transaction()
        await producer.send(into, b"aborted")
        await producer.abort_transaction()
    async with AsyncConsumer(
        **logins.ours(bootstrap), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        await reader.assign([TopicPartition(into, 0)])
        assert [record.value for record in await reader.poll(SECONDS)] == [b"1"]
