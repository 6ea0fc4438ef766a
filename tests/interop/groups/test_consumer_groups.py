"""The consumer protocol (KIP-848) as real clients speak it: librdkafka and Java, together and with the classic protocol."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka as ck
import pytest
from benchmarks.peer import PeerAbsentError, cached_peer, java_program
from benchmarks.peer.fetch import java_command
from benchmarks.peer.programs import BRIEF
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.interop import logins
from tests.interop.server import Server

SECONDS_MAX = 40
_groups = itertools.count()

SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "100",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture(scope="module")
def server(server_kind, make_node):
    """A broker whose groups are in a hurry."""
    try:
        node = make_node(settings=SETTINGS).start()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    try:
        yield Server(kind=server_kind, node=node)
    finally:
        node.stop()


@pytest.fixture
def group():
    return f"group-{next(_groups)}"


class Member:
    """A librdkafka consumer that is polled only when a test waits for something."""

    def __init__(self, bootstrap, group, protocol="consumer", **settings):
        values = {
            **logins.librdkafka(bootstrap),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
            "group.protocol": protocol,
        }
        if protocol == "classic":
            values |= {"session.timeout.ms": 2000, "heartbeat.interval.ms": 300}
            values |= {"partition.assignment.strategy": "cooperative-sticky"}
        self.consumer = ck.Consumer({**values, **settings})
        self.values = []
        self.lost = []

    def subscribe(self, *topics):
        self.consumer.subscribe(list(topics), on_lost=lambda _, partitions: self.lost.extend(partitions))
        return self

    def poll(self):
        message = self.consumer.poll(0.05)
        if message is not None:
            assert message.error() is None or message.error().retriable() or _is_about_topics(message), (
                message.error()
            )
            if message.error() is None:
                self.values.append(message.value())

    @property
    def partitions(self):
        return sorted((partition.topic, partition.partition) for partition in self.consumer.assignment())

    def close(self):
        self.consumer.close()


def _is_about_topics(message):
    return message.error().code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART


def until(check, *members):
    """Poll everyone until it is so."""
    deadline = time.monotonic() + SECONDS_MAX
    while not check():
        assert time.monotonic() < deadline, [
            (group_member.partitions, group_member.values) for group_member in members
        ]
        for member in members:
            member.poll()


def shared(topic, count, *members):
    """Whether every partition has exactly one of the members, each about as many."""
    all_of_it = sorted(itertools.chain(*(member.partitions for member in members)))
    sizes = [len(member.partitions) for member in members]
    return all_of_it == [(topic, n) for n in range(count)] and max(sizes) - min(sizes) <= 1


@pytest.fixture
def member(bootstrap, group):
    """Makes members, and closes those that a test leaves open."""
    with ExitStack() as ending:

        def make(protocol="consumer", **settings):
            made = Member(bootstrap, group, protocol, **settings)
            ending.callback(made.close)
            return made

        yield make


def _produce(bootstrap, topic, count, first=0):
    producer = ck.Producer({**logins.librdkafka(bootstrap), "log_level": 2})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % 4)
    assert producer.flush(SECONDS_MAX) == 0


def test_members_come_and_go_and_nothing_is_lost_or_doubled(member, bootstrap, topic):
    name = topic(partitions=4)
    _produce(bootstrap, name, 100)
    first = member().subscribe(name)
    until(lambda: len(first.values) == 100, first)
    first.consumer.commit(asynchronous=False)
    second = member().subscribe(name)
    until(lambda: shared(name, 4, first, second), first, second)
    _produce(bootstrap, name, 100, first=100)
    until(lambda: len(first.values) + len(second.values) == 200, first, second)
    first.consumer.commit(asynchronous=False)
    first.consumer.unsubscribe()
    until(lambda: shared(name, 4, second), second)
    second.consumer.commit(asynchronous=False)
    assert sorted(map(int, first.values + second.values)) == list(range(200))
    assert not first.lost
    assert not second.lost


def test_a_member_that_dies_hands_its_partitions_on(member, bootstrap, group, topic):
    name = topic(partitions=4)
    first = member().subscribe(name)
    program = (
        "import confluent_kafka as ck\n"
        f"consumer = ck.Consumer({{**{logins.librdkafka(bootstrap)!r}, 'group.id': {group!r}, 'group.protocol': 'consumer'}})\n"
        f"consumer.subscribe([{name!r}])\n"
        "while True:\n"
        "    consumer.poll(0.1)\n"
        "    if consumer.assignment():\n"
        "        print('assigned', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: len(first.partitions) == 2, first)
        assert process.stdout.readline() == "assigned\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    until(lambda: shared(name, 4, first), first)


def test_a_regular_expression_finds_topics_that_are_made_later(member, bootstrap, server):
    stem = f"regex-{time.time_ns()}"
    server.create_topic(f"{stem}-a", 1)
    consumer = member(**{"topic.metadata.refresh.interval.ms": 500}).subscribe(f"^{stem}-.*")
    until(lambda: consumer.partitions == [(f"{stem}-a", 0)], consumer)
    if server.kind == "odradek":  # Kafka looks at most every ten seconds
        server.create_topic(f"{stem}-b", 2)
        until(lambda: len(consumer.partitions) == 3, consumer)


def test_a_topic_that_grows_and_one_that_is_made_after_it_was_subscribed_to(member, bootstrap, server):
    name, later = f"grows-{time.time_ns()}", f"later-{time.time_ns()}"
    server.create_topic(name, 1)
    consumer = member(**{"topic.metadata.refresh.interval.ms": 500}).subscribe(name, later)
    until(lambda: consumer.partitions == [(name, 0)], consumer)
    server.create_topic(later, 1)
    until(lambda: consumer.partitions == [(name, 0), (later, 0)], consumer)
    admin = AdminClient(logins.librdkafka(bootstrap))
    admin.create_partitions([NewPartitions(name, 3)])[name].result(SECONDS_MAX)
    until(lambda: len(consumer.partitions) == 4, consumer)


def test_a_static_member_keeps_its_partitions_over_a_restart(member, bootstrap, group, topic):
    name = topic(partitions=4)
    first = member(**{"group.instance.id": "a"}).subscribe(name)
    second = member(**{"group.instance.id": "b"}).subscribe(name)
    until(lambda: shared(name, 4, first, second), first, second)
    mine, others = first.partitions, second.partitions
    first.close()
    for _ in range(10):
        second.poll()
    assert second.partitions == others
    again = member(**{"group.instance.id": "a"}).subscribe(name)
    until(lambda: again.partitions == mine, again, second)
    assert second.partitions == others


def test_offsets_are_kept_for_who_comes_next(member, bootstrap, group, topic):
    name = topic(partitions=4)
    _produce(bootstrap, name, 40)
    first = member(**{"enable.auto.commit": True, "auto.commit.interval.ms": 100}).subscribe(name)
    until(lambda: len(first.values) == 40, first)
    first.close()
    _produce(bootstrap, name, 4, first=40)
    second = member().subscribe(name)
    until(lambda: len(second.values) >= 4, second)
    assert sorted(map(int, second.values)) == [40, 41, 42, 43]
    places = [ck.TopicPartition(name, number) for number in range(4)]
    assert [record.offset for record in second.consumer.committed(places, timeout=60)] == [10] * 4


def test_offsets_are_committed_in_a_transaction(member, bootstrap, topic):
    name, results = topic(partitions=4), topic()
    _produce(bootstrap, name, 40)
    consumer = member().subscribe(name)
    until(lambda: len(consumer.values) == 40, consumer)
    producer = ck.Producer(
        {**logins.librdkafka(bootstrap), "transactional.id": f"txn-{time.time_ns()}", "log_level": 2}
    )
    producer.init_transactions(SECONDS_MAX)
    for counts in (False, True):
        producer.begin_transaction()
        producer.produce(results, b"result")
        positions = consumer.consumer.position(consumer.consumer.assignment())
        producer.send_offsets_to_transaction(
            positions, consumer.consumer.consumer_group_metadata(), SECONDS_MAX
        )
        if counts:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)
        matches = consumer.consumer.committed(
            [ck.TopicPartition(name, number) for number in range(4)], timeout=10
        )
        assert [place.offset for place in matches] == ([10] * 4 if counts else [ck.OFFSET_INVALID] * 4)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_choose_the_assignor(member, bootstrap, group, topic, assignor):
    names = [topic(partitions=2), topic(partitions=2)]
    members = [member(**{"group.remote.assignor": assignor}).subscribe(*names) for _ in range(2)]
    until(lambda: all(len(joined_member.partitions) == 2 for joined_member in members), *members)
    if assignor == "range":
        assert [{number for _, number in group_member.partitions} for group_member in members] in (
            [{0}, {1}],
            [{1}, {0}],
        )
    admin = AdminClient(logins.librdkafka(bootstrap))
    described = admin.describe_consumer_groups([group])[group].result(SECONDS_MAX)
    assert described.partition_assignor == assignor
    assert described.type.name == "CONSUMER"
    assert len(described.members) == 2


# -- from one protocol to the other, without stopping


def test_a_classic_group_is_upgraded_and_downgraded_member_by_member(member, bootstrap, topic):
    name = topic(partitions=4)
    _produce(bootstrap, name, 40)
    old = member("classic").subscribe(name)
    until(lambda: shared(name, 4, old), old)
    new = member("consumer").subscribe(name)
    until(lambda: shared(name, 4, old, new), old, new)
    until(lambda: len(set(old.values + new.values)) == 40, old, new)
    old.consumer.commit(asynchronous=False)
    new.consumer.commit(asynchronous=False)
    older = member("classic").subscribe(name)
    until(lambda: shared(name, 4, old, new, older), old, new, older)
    new.close()
    until(lambda: shared(name, 4, old, older), old, older)
    _produce(bootstrap, name, 40, first=40)
    until(lambda: len(set(old.values + older.values) - set(new.values)) >= 40, old, older)


# -- Kafka's own clients


@pytest.fixture(scope="session")
def jars():
    try:
        return cached_peer()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")


class JavaMember:
    """Kafka's VerifiableConsumer: says in JSON what it is given and reads."""

    def __init__(self, jars, bootstrap, group, topic, *more):
        command = [
            *java_program(jars),
            "org.apache.kafka.tools.VerifiableConsumer",
            *logins.java_flags(bootstrap),
        ]
        command += ["--group-id", group, "--topic", topic, "--reset-policy", "earliest", *more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.partitions = []
        self.values = []
        self.count = 0
        self._lines = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)

    def poll(self):
        while not self._lines.empty():
            event = json.loads(self._lines.get())
            places = [(entry["topic"], entry["partition"]) for entry in event.get("partitions", [])]
            if event["name"] == "partitions_assigned":
                self.partitions = sorted(set(self.partitions) | set(places))
            elif event["name"] == "partitions_revoked":
                self.partitions = sorted(set(self.partitions) - set(places))
            elif event["name"] == "records_consumed":
                self.count += event["count"]

    def stop(self):
        self.process.terminate()
        self.process.wait(SECONDS_MAX)
        self.process.stdout.close()


@pytest.fixture
def java_member(jars, bootstrap, group):
    with ExitStack() as ending:

        def make(topic, *more, protocol="consumer"):
            made = JavaMember(jars, bootstrap, group, topic, "--group-protocol", protocol, *more)
            ending.callback(made.stop)
            return made

        yield make


def test_java_and_librdkafka_share_a_group(java_member, member, bootstrap, topic):
    name = topic(partitions=4)
    _produce(bootstrap, name, 80)
    java = java_member(name)
    until(lambda: shared(name, 4, java) and java.count == 80, java)
    other = member().subscribe(name)
    until(lambda: shared(name, 4, java, other), java, other)
    _produce(bootstrap, name, 80, first=80)
    until(lambda: java.count + len(other.values) >= 160, java, other)
    java.stop()
    until(lambda: shared(name, 4, other), other)


def test_a_java_member_of_the_classic_protocol_is_upgraded(java_member, member, bootstrap, topic):
    name = topic(partitions=4)
    java = java_member(name, protocol="classic")
    until(lambda: shared(name, 4, java), java)
    other = member().subscribe(name)
    until(lambda: shared(name, 4, java, other), java, other)
    other.close()
    until(lambda: shared(name, 4, java), java)


@pytest.fixture
def pattern_consumer(jars, tmp_path):
    """The words that run `PatternConsumer`, compiled once: `java PatternConsumer.java` would compile it in each run."""
    program = Path(__file__).parents[1] / "languages" / "java" / "PatternConsumer.java"
    compiler = [
        java_command(),
        *BRIEF,
        "--module",
        "jdk.compiler/com.sun.tools.javac.Main",
        "-d",
        str(tmp_path),
    ]
    class_path = ":".join(map(str, jars.directory.glob("*.jar")))  # it is Java's launcher that knows `*`
    subprocess.run([*compiler, "-cp", class_path, str(program)], check=True)
    return [*java_program(jars, classes=tmp_path), program.stem]


def test_java_subscribes_by_a_pattern_and_comes_back(pattern_consumer, bootstrap, group, server):
    stem = f"pattern-{time.time_ns()}"
    server.create_topic(f"{stem}-a", 2)
    server.create_topic(f"{stem}-b", 1)

    def run(pattern, count):
        command = [*pattern_consumer, bootstrap, group, "same", pattern, str(count), str(SECONDS_MAX // 2)]
        command += logins.java_flags(bootstrap)[3:]
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * SECONDS_MAX, check=False
        )
        assert process.returncode == 0, process.stderr
        return [line for line in process.stdout.splitlines() if line.startswith(("assigned", "refused"))]

    expected = f"assigned {stem}-a-0 {stem}-a-1 {stem}-b-0"
    assert run(f"{stem}-[ab]", 3) == [expected]
    assert run(f"{stem}-[ab]", 3) == [expected]
    assert run("(?=nothing", 1) == ["refused"]


def test_kafkas_tool_shows_the_group(jars, member, bootstrap, group, topic):
    name = topic(partitions=4)
    consumer = member(**{"client.id": "shown"}).subscribe(name)
    until(lambda: shared(name, 4, consumer), consumer)
    command = [*java_program(jars), "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]
    command += [*logins.java_flags(bootstrap), "--describe", "--group", group]
    for flags, expected in (
        (["--members", "--verbose"], [group, "shown", name]),
        (["--state", "--verbose"], [group, "uniform", "Stable"]),
        (["--offsets"], [group, name]),
    ):
        process = subprocess.run(
            [*command, *flags], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        assert process.returncode == 0, process.stderr
        for word in expected:
            assert word in process.stdout, process.stdout
        for _ in range(3):
            consumer.poll()
