"""Groups as unmodified clients form them: members come, leave and die, commit and come back."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator

import aiokafka
import confluent_kafka as ck
import pytest
from benchmarks.peer import PeerAbsentError
from confluent_kafka.admin import AdminClient
from tests.interop import logins
from tests.interop.server import Server
from tests.kit.waiting import eventually

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

SECONDS_MAX = 30.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "5",
}
_names = itertools.count()


@pytest.fixture(scope="module")
def server(server_kind, make_node) -> Iterator[Server]:
    """A broker whose groups form at once, and lose members soon."""
    try:
        node = make_node(settings=SETTINGS).start()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    try:
        yield Server(kind=server_kind, node=node)
    finally:
        node.stop()


@pytest.fixture
def group() -> str:
    return f"group-{next(_names)}"


class Member:
    """A confluent-kafka consumer, polled by a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: object) -> None:
        values = {
            **logins.librdkafka(bootstrap),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            "log_level": 2,
        }
        values |= {key.replace("_", "."): value for key, value in settings.items()}
        self.values: list[bytes] = []
        self.lost: list[set[int]] = []
        self.rebalances = 0
        self.closing = threading.Event()
        self._jobs: list[Callable[[], None]] = []
        self._consumer = ck.Consumer(values)
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.rebalances += 1

    def _revoked(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self.lost.append({partition.partition for partition in partitions})

    def _run(self) -> None:
        self.owned: set[int] = set()
        while not self.closing.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.values.append(message.value())
            self.owned = {partition.partition for partition in self._consumer.assignment()}
            while self._jobs:
                self._jobs.pop()()

    def commit(self) -> None:
        """What was consumed so far, by the thread that polls."""
        done = threading.Event()

        def job() -> None:
            self._consumer.commit(asynchronous=False)
            done.set()

        self._jobs.append(job)
        assert done.wait(SECONDS_MAX)

    def close(self) -> None:
        self.closing.set()
        self._thread.join(SECONDS_MAX)
        self._consumer.close()


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[Callable[..., Member]]:
    """Makes members of this test's group; those that are left are closed."""
    made: list[Member] = []

    def make(topic: str, **settings: object) -> Member:
        made.append(Member(bootstrap, group, topic, **settings))
        return made[-1]

    yield make
    for client in made:
        if not client.closing.is_set():
            client.close()


def owned(*members: Member) -> list[int]:
    return sorted(partition for group_member in members for partition in getattr(group_member, "owned", ()))


def fill(clients, row, topic: str, count: int, partitions: int = 1) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    rows = [row(value=value, partition=number % partitions) for number, value in enumerate(values)]
    for partition in range(partitions):
        clients["confluent-kafka"].produce(topic, [text for text in rows if text.partition == partition])
    return values


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go_and_share_the_partitions(member, topic, strategy):
    name = topic(partitions=6)
    assignor = {"partition_assignment_strategy": strategy}
    first = member(name, **assignor)
    eventually(lambda: owned(first) == list(range(6)))
    second = member(name, **assignor)
    eventually(lambda: owned(first, second) == list(range(6)) and len(first.owned) == len(second.owned) == 3)
    third = member(name, **assignor)
    members = (first, second, third)
    eventually(
        lambda: (
            owned(*members) == list(range(6)) and {len(group_member.owned) for group_member in members} == {2}
        )
    )
    second.close()
    eventually(lambda: owned(first, third) == list(range(6)) and len(first.owned) == 3)


def test_cooperative_members_keep_what_they_may_keep(member, topic):
    name = topic(partitions=6)
    first = member(name, partition_assignment_strategy="cooperative-sticky")
    eventually(lambda: owned(first) == list(range(6)))
    second = member(name, partition_assignment_strategy="cooperative-sticky")
    eventually(lambda: owned(first, second) == list(range(6)) and len(second.owned) == 3)
    lost = set().union(*first.lost)
    assert len(lost) == 3
    assert lost == second.owned


def test_more_members_than_partitions_idle_and_take_over(member, topic):
    name = topic(partitions=2)
    members = [member(name) for _ in range(4)]
    eventually(
        lambda: owned(*members) == [0, 1] and sum(bool(idle_member.owned) for idle_member in members) == 2
    )
    busy = next(joined_member for joined_member in members if joined_member.owned)
    busy.close()
    rest = [group_member for group_member in members if group_member is not busy]
    eventually(
        lambda: owned(*rest) == [0, 1] and sum(bool(remaining_member.owned) for remaining_member in rest) == 2
    )


def test_a_member_that_is_killed_hands_its_partitions_on(bootstrap, group, member, topic):
    if shutil.which("kcat") is None:
        pytest.skip("absent: kcat")
    name = topic(partitions=4)
    first = member(name)
    eventually(lambda: owned(first) == [0, 1, 2, 3])
    flags = [
        *logins.kcat_flags(bootstrap),
        "-X",
        "session.timeout.ms=1000",
        "-X",
        "heartbeat.interval.ms=200",
        "-G",
        group,
    ]
    doomed = subprocess.Popen(["kcat", *flags, name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: len(first.owned) == 2)
    finally:
        doomed.kill()
        doomed.wait()
    eventually(lambda: owned(first) == [0, 1, 2, 3])


def test_a_static_member_that_comes_back_disturbs_no_one(member, topic):
    name = topic(partitions=4)
    first = member(name, group_instance_id="one", session_timeout_ms=20_000)
    second = member(name, group_instance_id="two", session_timeout_ms=20_000)
    eventually(lambda: owned(first, second) == [0, 1, 2, 3] and len(first.owned) == 2)
    before, rebalances = set(second.owned), first.rebalances
    second.close()
    again = member(name, group_instance_id="two", session_timeout_ms=20_000)
    eventually(lambda: set(getattr(again, "owned", ())) == before)
    assert first.rebalances == rebalances


def test_the_older_of_two_processes_with_one_instance_id_is_fenced(bootstrap, group, topic):
    name = topic()
    values = {
        **logins.librdkafka(bootstrap),
        "group.id": group,
        "group.instance.id": "one",
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 200,
        "log_level": 0,
    }
    older, newer = ck.Consumer(values), ck.Consumer(values)
    try:
        older.subscribe([name])
        eventually(lambda: older.poll(0.05) is None and older.assignment())
        newer.subscribe([name])

        def fenced() -> bool:
            newer.poll(0.02)
            message = older.poll(0.02)
            return message is not None and message.error().code() == ck.KafkaError._FATAL

        eventually(fenced)
        eventually(lambda: newer.poll(0.05) is None and newer.assignment())
    finally:
        newer.close()
        older.close()


def test_what_was_committed_is_not_read_again(member, topic, clients, row):
    name = topic()
    fill(clients, row, name, 10)
    first = member(name)
    eventually(lambda: len(first.values) == 10)
    first.commit()
    first.close()
    clients["confluent-kafka"].produce(name, [row(value=b"new")])
    second = member(name)
    eventually(lambda: second.values)
    assert second.values == [b"new"]


def test_automatic_commits_are_made_when_a_consumer_closes(member, topic, clients, row):
    name = topic()
    fill(clients, row, name, 5)
    first = member(name, enable_auto_commit=True)
    eventually(lambda: len(first.values) == 5)
    first.close()
    clients["confluent-kafka"].produce(name, [row(value=b"new")])
    second = member(name)
    eventually(lambda: second.values)
    assert second.values == [b"new"]


def test_aiokafka_consumes_in_a_group_and_resumes(bootstrap, group, topic, clients, row):
    name = topic(partitions=2)
    values = fill(clients, row, name, 10, 2)

    async def consume(count: int) -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            name,
            **logins.aiokafka(bootstrap),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=3000,
            heartbeat_interval_ms=200,
        )
        await consumer.start()
        try:
            async with asyncio.timeout(SECONDS_MAX):
                read = [(await consumer.getone()).value for _ in range(count)]
            await consumer.commit()
            return read
        finally:
            await consumer.stop()

    assert sorted(asyncio.run(consume(10))) == sorted(values)
    clients["confluent-kafka"].produce(name, [row(value=b"new")])
    assert asyncio.run(consume(1)) == [b"new"]


def test_kafka_python_consumes_in_a_group_and_resumes(bootstrap, group, topic, clients, row):
    name = topic(partitions=2)
    values = fill(clients, row, name, 10, 2)

    def consume(count: int) -> list[bytes]:
        consumer = kafka.KafkaConsumer(
            name,
            **logins.kafka_python(bootstrap),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=3000,
            heartbeat_interval_ms=200,
        )
        try:
            read: list[bytes] = []
            eventually(lambda: _take(consumer, read) >= count)
            consumer.commit()
            return read
        finally:
            consumer.close()

    assert sorted(consume(10)) == sorted(values)
    clients["confluent-kafka"].produce(name, [row(value=b"new")])
    assert consume(1) == [b"new"]


def _take(consumer: kafka.KafkaConsumer, read: list[bytes]) -> int:
    for batch in consumer.poll(timeout_ms=100).values():
        read += [record.value for record in batch]
    return len(read)


def test_kcat_consumes_in_a_group_and_resumes(bootstrap, group, topic, clients, row):
    if shutil.which("kcat") is None:
        pytest.skip("absent: kcat")
    name = topic()
    fill(clients, row, name, 5)

    def consume(count: int) -> list[bytes]:
        flags = [
            *logins.kcat_flags(bootstrap),
            "-q",
            "-c",
            str(count),
            "-X",
            "auto.offset.reset=earliest",
            "-G",
            group,
            name,
        ]
        ran = subprocess.run(["kcat", *flags], capture_output=True, timeout=SECONDS_MAX, check=True)
        return ran.stdout.split()

    assert consume(5) == [b"0", b"1", b"2", b"3", b"4"]
    clients["confluent-kafka"].produce(name, [row(value=b"new")])
    assert consume(1) == [b"new"]


def test_members_of_different_clients_share_a_group(bootstrap, group, member, topic):
    name = topic(partitions=4)
    first = member(name, partition_assignment_strategy="range")
    eventually(lambda: owned(first) == [0, 1, 2, 3])
    other = kafka.KafkaConsumer(
        name,
        **logins.kafka_python(bootstrap),
        group_id=group,
        session_timeout_ms=3000,
        heartbeat_interval_ms=200,
        enable_auto_commit=False,
    )
    try:
        eventually(
            lambda: other.poll(timeout_ms=50) == {} and len(other.assignment()) == len(first.owned) == 2
        )
        mine = {text.partition for text in other.assignment()}
        assert mine | first.owned == {0, 1, 2, 3}
    finally:
        other.close()
    eventually(lambda: owned(first) == [0, 1, 2, 3])


def test_administrators_list_describe_and_delete_groups(bootstrap, group, member, topic, clients, row):
    name = topic(partitions=2)
    fill(clients, row, name, 4, 2)
    admin = AdminClient({**logins.librdkafka(bootstrap), "log_level": 2})
    entry = member(name, client_id="who")
    eventually(lambda: len(entry.values) == 4)
    entry.commit()
    described = admin.describe_consumer_groups([group])[group].result(SECONDS_MAX)
    assert described.state is ck.ConsumerGroupState.STABLE
    (described_member,) = described.members
    assert described_member.client_id == "who"
    assert {place.partition for place in described_member.assignment.topic_partitions} == {0, 1}
    asked = [ck.ConsumerGroupTopicPartitions(group)]
    committed_offsets = admin.list_consumer_group_offsets(asked)[group].result(SECONDS_MAX)
    assert {(place.partition, place.offset) for place in committed_offsets.topic_partitions} == {
        (0, 2),
        (1, 2),
    }
    listed = admin.list_consumer_groups().result(SECONDS_MAX)
    assert (group, ck.ConsumerGroupState.STABLE) in {
        (group_member.group_id, group_member.state) for group_member in listed.valid
    }
    with pytest.raises(ck.KafkaException):
        admin.delete_consumer_groups([group])[group].result(SECONDS_MAX)
    entry.close()
    moved = [ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(name, 0, 1)])]
    admin.alter_consumer_group_offsets(moved)[group].result(SECONDS_MAX)
    again = member(name)
    eventually(lambda: again.values)
    assert len(again.values) == 1
    again.close()
    admin.delete_consumer_groups([group])[group].result(SECONDS_MAX)
    listed = admin.list_consumer_groups().result(SECONDS_MAX)
    assert group not in {listed_group.group_id for listed_group in listed.valid}


def test_groups_go_on_after_the_broker_was_killed(make_node, server_kind, group, row):
    if server_kind == "kafka":
        pytest.skip("Kafka promises less: it does not flush before it acknowledges")
    node = make_node(settings=SETTINGS | {"listeners": "PLAINTEXT://127.0.0.1:0"}).start()
    try:
        server = Server(kind=server_kind, node=node)
        server.create_topic("t", 2)
        producer = ck.Producer({**logins.librdkafka(node.bootstrap), "log_level": 0})
        for number in range(4):
            producer.produce("t", b"%d" % number, partition=number % 2)
        producer.flush(SECONDS_MAX)
        first = Member(node.bootstrap, group, "t")
        eventually(lambda: len(first.values) == 4)
        first.commit()
        port = node.bootstrap.rsplit(":", 1)[1]
        node.kill()
        node.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
        node.launch()
        node.wait_until_ready()
        producer = ck.Producer({**logins.librdkafka(node.bootstrap), "log_level": 0})
        producer.produce("t", b"new", partition=0)
        producer.flush(SECONDS_MAX)
        eventually(lambda: len(first.values) == 5)
        assert first.values[-1] == b"new"
        first.close()
    finally:
        node.stop()
