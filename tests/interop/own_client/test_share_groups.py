"""Our own share consumer: records are shared out one by one, and come back until they are accepted."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.interop import logins
from tests.kit.waiting import eventually

from odradek import (
    AcknowledgeType,
    Admin,
    AsyncShareConsumer,
    ConfigResource,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    PartialFailureError,
    Producer,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from odradek.client import ClientClosedError, ResourceType
from odradek.testing import LocalBroker

SECONDS = 30.0
MakeTopic = Callable[..., str]
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)
_EXAMPLE = Path(__file__).parents[3] / "examples" / "queue_worker.py"
SHORT_LOCKS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1500",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


def a_group(bootstrap: str, **settings: str) -> str:
    """A group that reads from the beginning."""
    name = f"queue-{time.time_ns()}"
    values = {"share.auto.offset.reset": "earliest"} | {
        key.replace("_", "."): value for key, value in settings.items()
    }
    with Admin(**logins.ours(bootstrap)) as admin:
        admin.alter_configs({ConfigResource(ResourceType.GROUP, name): values})
    return name


def fill(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    with Producer(**logins.ours(bootstrap)) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def member(bootstrap: str, group: str, topic: str, **settings: Any) -> ShareConsumer:
    consumer = ShareConsumer(**logins.ours(bootstrap), group_id=group, **settings)
    consumer.subscribe(topic)
    return consumer


def polled(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Polls until so many records came; only for records that may be accepted, or that are explicitly acknowledged."""
    deadline = time.monotonic() + SECONDS
    records: list[ShareRecord] = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        records += consumer.poll(1.0)
    return records


def start_offsets(admin: Admin, group: str) -> Mapping[TopicPartition, int]:
    """Returns the offsets below which everything is done; nothing while no member has joined."""
    try:
        return admin.describe_groups([group])[group].start_offsets
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}


def values_of(records: list[ShareRecord]) -> list[bytes]:
    return sorted((record.value or b"" for record in records), key=int)


def test_members_share_one_partition_and_handle_every_record_once(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    group = a_group(bootstrap)
    fill(bootstrap, queue, 300)
    handled: list[bytes] = []
    lock = threading.Lock()

    def work() -> None:
        with member(bootstrap, group, queue, max_poll_records=10, share_acquire_mode="record_limit") as mine:
            while len(handled) < 300:
                records = mine.poll(0.5)
                with lock:
                    handled.extend(record.value or b"" for record in records)
                mine.commit()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert Counter(handled) == Counter(b"%d" % number for number in range(300))


def test_what_is_released_comes_back_and_what_is_rejected_or_accepted_does_not(
    bootstrap: str, topic: MakeTopic
) -> None:
    queue = topic()
    group = a_group(bootstrap)
    fill(bootstrap, queue, 3)
    with member(bootstrap, group, queue, share_acknowledgement_mode="explicit") as consumer:
        first, second, third = polled(consumer, 3)
        consumer.acknowledge(first, ACCEPT)
        consumer.acknowledge(second, RELEASE)
        consumer.acknowledge(third, REJECT)
        [again] = polled(consumer, 1)
        assert (again.offset, again.value, again.delivery_count) == (second.offset, b"1", 2)
        consumer.acknowledge(again, ACCEPT)
        assert consumer.poll(1.0) == []


def test_a_record_is_delivered_as_often_as_the_group_allows(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    group = a_group(bootstrap)
    fill(bootstrap, queue, 1)
    counts = []
    with member(bootstrap, group, queue, share_acknowledgement_mode="explicit") as consumer:
        for _ in range(5):
            [record] = polled(consumer, 1)
            counts.append(record.delivery_count)
            consumer.acknowledge(record, RELEASE)
        assert consumer.poll(1.0) == []
    assert counts == [1, 2, 3, 4, 5]


def test_a_consumer_that_closes_releases_what_was_not_committed(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    group = a_group(bootstrap)
    fill(bootstrap, queue, 4)
    with member(bootstrap, group, queue, max_poll_records=2, share_acquire_mode="record_limit") as consumer:
        done = polled(consumer, 2)
        consumer.commit()
        lost = polled(consumer, 2)
    with member(bootstrap, group, queue) as consumer:
        again = polled(consumer, 2)
        assert sorted(record.offset for record in again) == sorted(record.offset for record in lost)
        assert {record.delivery_count for record in again} == {2}
        assert not {record.offset for record in again} & {record.offset for record in done}


def test_an_iteration_accepts_each_record_when_the_next_one_is_asked_for(
    bootstrap: str, topic: MakeTopic
) -> None:
    queue = topic()
    group = a_group(bootstrap)
    fill(bootstrap, queue, 5)
    seen = []
    with member(bootstrap, group, queue) as consumer:
        for record in consumer:
            seen.append(record.offset)
            if len(seen) == 3:
                break
    with member(bootstrap, group, queue) as consumer:
        rest = {record.offset: record.delivery_count for record in polled(consumer, 3)}
    assert rest == {2: 2, 3: 2, 4: 2}


def test_a_group_that_reads_committed_records_sees_no_aborted_one(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    committed = a_group(bootstrap, share_isolation_level="read_committed")
    with Producer(**logins.ours(bootstrap), transactional_id=f"tx-{queue}") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(queue, b"%d" % number)
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    with member(bootstrap, committed, queue) as consumer:
        assert values_of(polled(consumer, 2)) == [b"0", b"2"]
        assert consumer.poll(1.0) == []
    uncommitted = a_group(bootstrap)
    with member(bootstrap, uncommitted, queue) as consumer:
        assert values_of(polled(consumer, 4)) == [b"0", b"1", b"2", b"3"]


def test_a_poll_on_another_thread_ends_by_wakeup_and_by_close(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    consumer = member(bootstrap, a_group(bootstrap), queue)
    outcomes: list[object] = []

    def work() -> None:
        outcomes.append(consumer.poll(SECONDS))
        try:
            consumer.poll(SECONDS)
        except ClientClosedError as error:
            outcomes.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    consumer.wakeup()
    while not outcomes:
        time.sleep(0.01)
    consumer.close()
    thread.join(SECONDS)
    assert outcomes == [[], ClientClosedError]


def test_the_asynchronous_face_does_the_same(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    group = a_group(bootstrap)
    fill(bootstrap, queue, 10)

    async def read() -> list[int]:
        offsets = []
        async with AsyncShareConsumer(**logins.ours(bootstrap), group_id=group) as consumer:
            await consumer.subscribe([queue])
            async with asyncio.timeout(SECONDS):
                async for record in consumer:
                    offsets.append(record.offset)
                    if len(offsets) == 10:
                        await consumer.commit()
                        return offsets
        return offsets

    assert asyncio.run(read()) == list(range(10))
    with member(bootstrap, group, queue) as consumer:
        assert consumer.poll(1.0) == []


def test_a_name_that_is_a_consumer_groups_is_refused(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    group = f"both-{time.time_ns()}"
    with Consumer(**logins.ours(bootstrap), group_id=group, group_protocol="consumer") as other:
        other.subscribe(queue)
        other.poll(2.0)
        with member(bootstrap, group, queue) as consumer, pytest.raises(KafkaError, match=f"group '{group}'"):
            polled(consumer, 1)


@pytest.fixture
def short_locks(server_kind: str) -> Iterator[LocalBroker]:
    """A broker whose groups lock records for 1.5 s."""
    if server_kind != "odradek":
        pytest.skip("a broker with settings of its own")
    with LocalBroker(SHORT_LOCKS) as broker, Admin(broker.address) as admin:
        admin.create_topics([NewTopic("jobs")])
        yield broker


def test_a_lock_that_ends_lets_another_member_have_the_record(short_locks: LocalBroker) -> None:
    group = a_group(short_locks.address)
    fill(short_locks.address, "jobs", 1)
    with (
        member(short_locks.address, group, "jobs") as slow,
        member(short_locks.address, group, "jobs") as quick,
    ):
        [late] = polled(slow, 1)
        [record] = polled(quick, 1)
        assert (record.offset, record.delivery_count) == (late.offset, 2)
        with pytest.raises(PartialFailureError, match="jobs-0"):
            slow.commit()
        quick.commit()
        assert slow.acquisition_lock_timeout_ms == 1500


def test_a_lock_that_is_renewed_keeps_the_record(short_locks: LocalBroker) -> None:
    """A member that renews too late has lost the lock. So has this test, on a machine that is busy; then it begins again."""
    for attempt in range(5):
        queue = f"jobs-{attempt}"
        with Admin(short_locks.address) as admin:
            admin.create_topics([NewTopic(queue)])
        if is_kept_by_renewals(short_locks.address, queue):
            return
    pytest.fail("the member did not come to renew its lock in time, in 5 attempts")


def is_kept_by_renewals(bootstrap: str, queue: str, *, lock_seconds: float = 4.0) -> bool:
    """Returns whether a member renewed its lock in time until the first one had ended. AssertionError if it lost the record in
    spite of that."""
    group = a_group(bootstrap, share_record_lock_duration_ms=f"{lock_seconds * 1000:.0f}")
    fill(bootstrap, queue, 1)
    with (
        member(bootstrap, group, queue, share_acknowledgement_mode="explicit") as slow,
        member(bootstrap, group, queue) as other,
    ):
        [record] = polled(slow, 1)  # which joins the group
        slow.acknowledge(record, RELEASE)
        locked_after = time.monotonic()
        slow.commit()
        [record] = polled(slow, 1)
        for _ in range(4):
            renewed_after = time.monotonic()
            slow.acknowledge(record, RENEW)
            again = slow.poll(1.0)
            seen = other.poll(lock_seconds / 3)
            if time.monotonic() - locked_after >= lock_seconds:
                return False
            assert (again, seen) == ([record], [])
            locked_after = renewed_after
        slow.acknowledge(record, ACCEPT)
        try:
            slow.commit()
        except PartialFailureError:
            if time.monotonic() - locked_after >= lock_seconds:
                return False
            raise
        assert other.poll(1.0) == []
    return True


def test_a_topic_that_is_made_again_is_read_from_its_beginning(short_locks: LocalBroker) -> None:
    group = a_group(short_locks.address)
    fill(short_locks.address, "jobs", 2)
    with member(short_locks.address, group, "jobs") as consumer, Admin(short_locks.address) as admin:
        polled(consumer, 2)
        consumer.commit()
        admin.delete_topics(["jobs"])
        admin.create_topics([NewTopic("jobs")])
        fill(short_locks.address, "jobs", 3)
        assert values_of(polled(consumer, 3)) == [b"0", b"1", b"2"]


def test_a_broker_that_restarts_has_what_was_accepted_and_delivers_the_rest(tmp_path: Any) -> None:
    broker = LocalBroker(SHORT_LOCKS, data=tmp_path)
    with broker, Admin(broker.address) as admin:
        admin.create_topics([NewTopic("jobs")])
        fill(broker.address, "jobs", 4)
        group = a_group(broker.address)
        settings = {"max_poll_records": 2, "share_acquire_mode": "record_limit"}
        with member(broker.address, group, "jobs", **settings) as consumer:
            done = {record.offset for record in polled(consumer, 2)}
            consumer.commit()
            polled(consumer, 2)
    with broker, member(broker.address, group, "jobs") as consumer:
        again = {record.offset for record in polled(consumer, 2)}
        assert (done, again) == ({0, 1}, {2, 3})
        consumer.commit()
        assert consumer.poll(1.0) == []


def test_the_example_does_long_jobs_once_and_ends_by_sigterm(short_locks: LocalBroker) -> None:
    group = a_group(short_locks.address)
    with Producer(short_locks.address) as producer:
        for value in (b'{"to": "ann", "seconds": 3}', b"no mail", b'{"to": "bob", "seconds": 0}'):
            producer.send("jobs", value)
    command = [sys.executable, str(_EXAMPLE), short_locks.address, "jobs", group]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    try:
        with Admin(short_locks.address) as admin:
            eventually(
                lambda: start_offsets(admin, group) == {TopicPartition("jobs", 0): 3},
                "the jobs were not done",
            )
    finally:
        for process in (first, second):
            process.send_signal(signal.SIGTERM)
            lines += process.communicate(timeout=SECONDS)[0].splitlines()
    assert (first.returncode, second.returncode) == (0, 0)
    assert sorted(lines) == ["sent to ann, delivery 1", "sent to bob, delivery 1"]


def letters_of(bootstrap: str, topic: str, count: int) -> list[Any]:
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
        letters: list[Any] = []
        deadline = time.monotonic() + SECONDS
        while len(letters) < count:
            assert time.monotonic() < deadline, f"{len(letters)} of {count} letters came"
            letters += consumer.poll(0.5)
        return letters


def reasons_of(letters: list[Any]) -> dict[int, tuple[bytes, bytes]]:
    """Returns the delivery count and the message of each letter, by the offset of its record."""
    headers = [dict(letter.headers) for letter in letters]
    assert all(header["__dlq.errors.topic"] == b"jobs" for header in headers)
    assert all(header["__dlq.errors.partition"] == b"0" for header in headers)
    return {
        int(header["__dlq.errors.offset"]): (
            header["__dlq.errors.delivery.count"],
            header["__dlq.errors.message"],
        )
        for header in headers
    }


@pytest.mark.parametrize("copies", ["true", "false"])
def test_what_a_group_gives_up_is_a_dead_letter_with_its_reason(
    short_locks: LocalBroker, copies: str
) -> None:
    bootstrap = short_locks.address
    group = a_group(
        bootstrap,
        share_delivery_count_limit="2",
        errors_deadletterqueue_topic_name="dlq.jobs",
        errors_deadletterqueue_copy_record_enable=copies,
    )
    with Admin(bootstrap) as admin:
        admin.create_topics(
            [NewTopic("dlq.jobs", 3, configs={"errors.deadletterqueue.group.enable": "true"})]
        )
    fill(bootstrap, "jobs", 4)
    with member(bootstrap, group, "jobs", share_acknowledgement_mode="explicit") as consumer:
        for record, kind in zip(polled(consumer, 4), (ACCEPT, REJECT, RELEASE, RELEASE), strict=True):
            consumer.acknowledge(record, kind)
        third, fourth = polled(consumer, 2)
        consumer.acknowledge(third, RELEASE)
        consumer.acknowledge(fourth, ACCEPT)
        consumer.commit()
        letters = letters_of(bootstrap, "dlq.jobs", 2)
        assert consumer.poll(1.0) == []
    assert reasons_of(letters) == {
        1: (b"1", b"Offset rejected by client."),
        2: (b"2", b"Offset delivery count exceeded the threshold."),
    }
    assert {dict(letter.headers)["__dlq.errors.group"] for letter in letters} == {group.encode()}
    assert {letter.partition for letter in letters} == {0}
    values = [letter.value for letter in letters]
    assert values == ([b"1", b"2"] if copies == "true" else [None, None])


def test_a_lock_that_ends_for_the_last_time_leaves_a_dead_letter(short_locks: LocalBroker) -> None:
    bootstrap = short_locks.address
    group = a_group(bootstrap, share_delivery_count_limit="2", errors_deadletterqueue_topic_name="dlq.jobs")
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("dlq.jobs", configs={"errors.deadletterqueue.group.enable": "true"})])
    fill(bootstrap, "jobs", 1)
    with member(bootstrap, group, "jobs", share_acknowledgement_mode="explicit") as consumer:
        [record] = polled(consumer, 1)
        consumer.acknowledge(record, RELEASE)
        polled(consumer, 1)
        letters = letters_of(bootstrap, "dlq.jobs", 1)
        assert reasons_of(letters) == {0: (b"2", b"Offset delivery count exceeded the threshold.")}


def test_a_topic_that_takes_no_letters_holds_up_no_group(
    short_locks: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap = short_locks.address
    group = a_group(bootstrap, errors_deadletterqueue_topic_name="plain")
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("plain")])
    fill(bootstrap, "jobs", 2)
    with member(bootstrap, group, "jobs", share_acknowledgement_mode="explicit") as consumer:
        for record in polled(consumer, 2):
            consumer.acknowledge(record, REJECT)
        consumer.commit()
        assert consumer.poll(1.0) == []
    assert "dead_letters_not_written" in caplog.text
    assert "errors.deadletterqueue.group.enable=true" in caplog.text
    with Admin(bootstrap) as admin:
        assert start_offsets(admin, group) == {TopicPartition("jobs", 0): 2}


def test_a_share_group_without_members_goes_on_at_another_offset(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    group = a_group(bootstrap)
    only = TopicPartition(queue, 0)
    fill(bootstrap, queue, 10)
    with Admin(**logins.ours(bootstrap)) as admin:
        with pytest.raises(KafkaError, match="there is no such group") as refused:
            admin.delete_share_group_offsets(group, [queue])
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        with member(bootstrap, group, queue) as consumer:
            assert values_of(polled(consumer, 10)) == [b"%d" % number for number in range(10)]
            consumer.commit()
            with pytest.raises(KafkaError, match="stop them first") as refused:
                admin.alter_share_group_offsets(group, {only: 4})
            assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
            with pytest.raises(KafkaError, match="stop them first") as refused:
                admin.delete_share_group_offsets(group, [queue])
            assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
        admin.alter_share_group_offsets(group, {only: 7})
        assert start_offsets(admin, group) == {only: 7}
        with member(bootstrap, group, queue) as consumer:
            assert values_of(polled(consumer, 3)) == [b"7", b"8", b"9"]
            consumer.commit()
        admin.delete_share_group_offsets(group, [queue])
        assert start_offsets(admin, group) == {}
        with member(bootstrap, group, queue) as consumer:  # a topic that the group has never read
            assert len(polled(consumer, 10)) == 10


def test_share_offsets_of_what_is_not_there_are_refused_one_by_one(bootstrap: str, topic: MakeTopic) -> None:
    queue = topic()
    group = a_group(bootstrap)
    only, beyond = TopicPartition(queue, 0), TopicPartition(queue, 7)
    with Admin(**logins.ours(bootstrap)) as admin:
        with pytest.raises(PartialFailureError) as refused:
            admin.alter_share_group_offsets(group, {only: 0, beyond: 0})
        assert {tp: error.code for tp, error in refused.value.errors.items()} == {
            beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        assert start_offsets(admin, group) == {only: 0}  # the group is made
        with pytest.raises(PartialFailureError) as refused_topics:
            admin.delete_share_group_offsets(group, [queue, "no-such-topic"])
        assert list(refused_topics.value.results) == [queue]
        assert list(refused_topics.value.errors) == ["no-such-topic"]
        other = f"classic-{queue}"
        admin.alter_group_offsets(other, {only: 0})
        with pytest.raises(KafkaError) as of_another_kind:
            admin.alter_share_group_offsets(other, {only: 0})
        assert of_another_kind.value.code is ErrorCode.GROUP_ID_NOT_FOUND
