"""Transactions that one client prepares and another one ends, in both flows of the protocol."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from tests.interop import logins

from odradek import Admin, Consumer, KafkaError, Producer, ProducerFencedError, TopicPartition
from odradek.client import OffsetAndMetadata, TransactionIdentity
from odradek.client.transactions import prepared, service

SECONDS = 20.0
MakeTopic = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture(params=["epoch-per-transaction", "classic"], autouse=True)
def flow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "classic":
        monkeypatch.setattr(service, "EPOCH_PER_TRANSACTION", 99)
        monkeypatch.setattr(prepared, "EPOCH_PER_TRANSACTION", 99)
    return str(request.param)


@pytest.fixture
def name() -> str:
    return f"prepared-{time.time_ns()}-{next(_numbers)}"


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(**logins.ours(bootstrap)) as made:
        yield made


def prepare(bootstrap: str, name: str, topic: str, *values: bytes) -> TransactionIdentity:
    """Write the values in a transaction, and leave."""
    with Producer(**logins.ours(bootstrap), transactional_id=name, linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value)
        return producer.prepare_transaction()


def committed_values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """`count` values, or what came in time."""
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    with Consumer(
        **logins.ours(bootstrap), auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(values) < count and time.monotonic() < deadline:
            values += [record.value for record in consumer.poll(0.2)]
        values += [record.value for record in consumer.poll(0.2)]
    return values


def test_what_is_prepared_outlives_its_producer_and_is_committed_by_another_client(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin
) -> None:
    into = topic()
    identity = prepare(bootstrap, name, into, b"a", b"b")
    assert committed_values(bootstrap, into, 0) == []
    admin.end_transactions([identity], committed=True)
    assert committed_values(bootstrap, into, 2) == [b"a", b"b"]


def test_ending_again_changes_nothing(bootstrap: str, topic: MakeTopic, name: str, admin: Admin) -> None:
    into = topic()
    identity = prepare(bootstrap, name, into, b"a")
    for _ in range(3):
        admin.end_transactions([identity], committed=True)
    assert committed_values(bootstrap, into, 1) == [b"a"]


def test_a_committed_transaction_cannot_be_aborted_nor_the_other_way_round(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin
) -> None:
    into = topic()
    for first in (True, False):
        identity = prepare(bootstrap, f"{name}-{first}", into, b"a" if first else b"b")
        admin.end_transactions([identity], committed=first)
        with pytest.raises(KafkaError):
            admin.end_transactions([identity], committed=not first)
    assert committed_values(bootstrap, into, 1) == [b"a"]


def test_fencing_an_id_aborts_what_was_prepared_under_it(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin
) -> None:
    into = topic()
    identity = prepare(bootstrap, name, into, b"a")
    newer = admin.fence_producers([name])[name]
    assert (newer.producer_id, newer.producer_epoch) != (identity.producer_id, identity.producer_epoch)
    with pytest.raises(ProducerFencedError):
        admin.end_transactions([identity], committed=True)
    with Producer(**logins.ours(bootstrap)) as producer:
        producer.send(into, b"after").result(SECONDS)
    assert committed_values(bootstrap, into, 1) == [b"after"]


def test_a_producer_lets_go_of_a_prepared_transaction_and_writes_the_next(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin
) -> None:
    into = topic()
    with Producer(**logins.ours(bootstrap), transactional_id=name, linger_ms=0) as producer:
        for number in range(4):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(into, b"%d" % number)
            identity = producer.prepare_transaction()
            with pytest.raises(KafkaError, match="prepared"):
                producer.send(into, b"too late")
            if number != 2:
                admin.end_transactions([identity], committed=True)
    assert committed_values(bootstrap, into, 3) == [b"0", b"1", b"3"]


def test_the_producer_itself_may_end_what_it_prepared(bootstrap: str, topic: MakeTopic, name: str) -> None:
    into = topic()
    with Producer(**logins.ours(bootstrap), transactional_id=name, linger_ms=0) as producer:
        producer.init_transactions()
        for value, is_kept in ((b"a", True), (b"b", False), (b"c", True)):
            producer.begin_transaction()
            producer.send(into, value)
            producer.prepare_transaction()
            (producer.commit_transaction if is_kept else producer.abort_transaction)()
    assert committed_values(bootstrap, into, 2) == [b"a", b"c"]


def test_offsets_are_committed_with_the_identity_alone(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin
) -> None:
    tp = TopicPartition(topic(), 0)
    group = f"group-of-{name}"
    identity = admin.fence_producers([name])[name]
    admin.send_offsets_to_transaction(identity, group, {tp: OffsetAndMetadata(offset=7, metadata="seven")})
    assert admin.list_group_offsets(group, [tp])[tp] is None
    admin.end_transactions([identity], committed=True)
    committed = admin.list_group_offsets(group, [tp], require_stable=True)[tp]
    assert committed is not None
    assert (committed.offset, committed.metadata) == (7, "seven")


def test_a_fenced_identity_commits_no_offsets(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin
) -> None:
    tp = TopicPartition(topic(), 0)
    group = f"group-of-{name}"
    older = admin.fence_producers([name])[name]
    newer = admin.fence_producers([name])[name]
    with pytest.raises(ProducerFencedError):
        admin.send_offsets_to_transaction(older, group, {tp: 1})
    admin.send_offsets_to_transaction(newer, group, {tp: 2})
    admin.end_transactions([newer], committed=True)
    committed = admin.list_group_offsets(group, [tp], require_stable=True)[tp]
    assert committed is not None
    assert committed.offset == 2


def test_a_producer_goes_on_after_its_transaction_was_committed_elsewhere(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin, flow: str
) -> None:
    into = topic()
    with Producer(**logins.ours(bootstrap), transactional_id=name, linger_ms=0) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(into, b"%d" % number)
            identity = producer.prepare_transaction()
            admin.end_transactions([identity], committed=True)
            is_ready = producer.resume_transactions(identity)
            assert is_ready is (flow != "classic"), "classic epochs do not tell one transaction from the next"
            if not is_ready:
                producer.init_transactions()
        assert not producer.resume_transactions(identity)
    assert committed_values(bootstrap, into, 4) == [b"0", b"1", b"2", b"3"]


def test_one_producer_writes_under_many_names_in_turn(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin, flow: str
) -> None:
    """What is prepared under one name stays open while the producer writes under the next one."""
    into = topic()
    last: dict[str, TransactionIdentity] = {}
    is_resumed = []
    with Producer(**logins.ours(bootstrap), transactional_id=f"{name}-0", linger_ms=0) as producer:
        for number in range(7):
            of = f"{name}-{number % 3}"
            producer.change_transactional_id(of)
            before = last.get(of)
            is_resumed.append(before is not None and producer.resume_transactions(before))
            if not is_resumed[-1]:
                producer.init_transactions()
            producer.begin_transaction()
            producer.send(into, b"%d" % number)
            last[of] = producer.prepare_transaction()
            assert last[of].transactional_id == of
            if number:
                admin.end_transactions([last[f"{name}-{(number - 1) % 3}"]], committed=True)
        admin.end_transactions([last[of]], committed=True)
    assert committed_values(bootstrap, into, 7) == [b"%d" % number for number in range(7)]
    assert is_resumed == [number >= 3 and flow != "classic" for number in range(7)]


def test_a_producer_that_goes_on_although_its_transaction_is_open_is_refused(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin, flow: str
) -> None:
    into = topic()
    with Producer(**logins.ours(bootstrap), transactional_id=name, linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(into, b"open")
        identity = producer.prepare_transaction()
        if producer.resume_transactions(identity):
            producer.begin_transaction()
            producer.send(into, b"too soon")
            with pytest.raises(KafkaError):
                producer.prepare_transaction()
        admin.end_transactions([identity], committed=True)
    assert committed_values(bootstrap, into, 1) == [b"open"]


def test_who_may_use_an_id_after_a_commit_is_known_without_asking(
    bootstrap: str, topic: MakeTopic, name: str, admin: Admin, flow: str
) -> None:
    into = topic()
    identity = prepare(bootstrap, name, into, b"a")
    following = admin.identity_after_commit(identity)
    assert (following is None) is (flow == "classic")
    admin.end_transactions([identity], committed=True)
    if following is not None:
        group, tp = f"group-of-{name}", TopicPartition(into, 0)
        admin.send_offsets_to_transaction(following, group, {tp: OffsetAndMetadata(offset=3)})
        admin.end_transactions([following], committed=True)
        committed = admin.list_group_offsets(group, [tp], require_stable=True)[tp]
        assert committed is not None
        assert committed.offset == 3
