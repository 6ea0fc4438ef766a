"""Which protocol our consumers use in a group: the default, what forces the other one, and changes while a group runs."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from benchmarks.odradek_node import Node, serve_environment
from benchmarks.peer import PeerAbsentError
from tests.interop import logins
from tests.kit.waiting import eventually

from odradek import (
    Admin,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    OdradekError,
    Producer,
    RebalanceListener,
    TopicPartition,
)

SECONDS = 60.0
PARTITIONS = 4
CLASSIC: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 300}
COOPERATIVE: dict[str, Any] = {
    "partition_assignment_strategy": "cooperative-sticky",
    "heartbeat_interval_ms": 300,
}
DEFAULT: dict[str, Any] = {}
_QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "offsets.topic.num.partitions": "4",
}
MakeNode = Callable[..., Node]
_numbers = itertools.count()


@contextmanager
def running(make_node: MakeNode, **settings: str) -> Iterator[str]:
    """A broker of this module's own; yields its address."""
    try:
        node = make_node(settings={**_QUICK, **settings}).start()
    except PeerAbsentError as reason:
        pytest.skip(f"absent: {reason}")
    try:
        yield node.bootstrap
    finally:
        node.stop()


@pytest.fixture(scope="module")
def quick(make_node: MakeNode) -> Iterator[str]:
    with running(make_node) as address:
        yield address


@pytest.fixture(scope="module")
def never_migrating(make_node: MakeNode) -> Iterator[str]:
    with running(make_node, **{"group.consumer.migration.policy": "disabled"}) as address:
        yield address


def a_topic(address: str) -> str:
    """Creates a topic; its name serves as that of a group, too."""
    name = f"t{next(_numbers)}"
    with Admin(**logins.ours(address)) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])
        eventually(lambda: len(admin.describe_topics([name])[name].partitions) == PARTITIONS)
    return name


def type_of(address: str, group: str) -> str:
    with Admin(**logins.ours(address)) as admin:
        return admin.describe_groups([group])[group].type


class Member(RebalanceListener):
    """A consumer that polls on a thread of its own until `stop`."""

    def __init__(self, address: str, topic: str, options: dict[str, Any], **more: Any) -> None:
        self.options = options
        self.values: list[bytes] = []
        self.lost: list[TopicPartition] = []
        self.problem: Exception | None = None
        self.consumer = Consumer(
            **logins.ours(address), group_id=topic, auto_offset_reset="earliest", **options, **more
        )
        self.consumer.subscribe([topic], listener=self)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def partitions_lost(self, partitions: Any) -> None:
        self.lost += partitions

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.values += [record.value or b"" for record in self.consumer.poll(0.1)]
        except OdradekError as error:  # shown by the test
            self.problem = error

    @property
    def share(self) -> list[int]:
        return [tp.partition for tp in self.consumer.assignment()]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self.consumer.close()


class Feed:
    """A producer that writes numbers, on a thread of its own, until `stop`."""

    def __init__(self, address: str, topic: str) -> None:
        self.count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(address, topic))
        self._thread.start()

    def _run(self, address: str, topic: str) -> None:
        with Producer(**logins.ours(address)) as producer:
            while not self._stop.wait(0.002):
                producer.send(topic, b"%d" % self.count, partition=self.count % PARTITIONS)
                self.count += 1

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.count


def is_shared(members: list[Member]) -> bool:
    """Returns whether each partition has one owner, and each member some."""
    shares = [member.share for member in members]
    return all(shares) and sorted(itertools.chain(*shares)) == list(range(PARTITIONS))


def all_read_on(members: list[Member]) -> None:
    """Returns when each member has got more records than it has now."""
    before = [len(member.values) for member in members]
    eventually(lambda: all(len(m.values) > count for m, count in zip(members, before, strict=True)))


@pytest.mark.parametrize("classic", [CLASSIC, COOPERATIVE], ids=["eager", "cooperative"])
def test_a_rolling_change_to_the_default_and_back_loses_and_doubles_nothing(
    quick: str, classic: dict[str, Any]
) -> None:
    topic = a_topic(quick)
    everyone: list[Member] = []

    def start(options: dict[str, Any]) -> Member:
        member = Member(quick, topic, options, auto_commit_interval_ms=100)
        everyone.append(member)
        stopped.callback(member.stop)
        return member

    with ExitStack() as stopped:
        feed = Feed(quick, topic)
        stopped.callback(feed.stop)
        members = [start(classic), start(classic)]
        eventually(lambda: is_shared(members))
        assert type_of(quick, topic) == "classic"
        for options, kinds in ((DEFAULT, ["consumer", "consumer"]), (classic, ["consumer", "classic"])):
            for index, kind in enumerate(kinds):
                members[index].stop()
                members[index] = start(options)
                eventually(lambda: is_shared(members))
                assert type_of(quick, topic) == kind
                all_read_on(members)
        count = feed.stop()
        expected = {b"%d" % number for number in range(count)}
        eventually(lambda: set(itertools.chain(*(member.values for member in everyone))) >= expected)
    assert [member.problem for member in everyone] == [None] * len(everyone)
    assert [member.lost for member in everyone] == [[]] * len(everyone)
    seen = Counter(itertools.chain(*(member.values for member in everyone)))
    assert {value: times for value, times in seen.items() if times > 1} == {}
    assert set(seen) == expected


def test_a_group_that_may_not_leave_the_classic_protocol_stays_in_it(never_migrating: str) -> None:
    topic = a_topic(never_migrating)
    with ExitStack() as stopped:
        members = []
        for options in (CLASSIC, DEFAULT):
            members.append(Member(never_migrating, topic, options))
            stopped.callback(members[-1].stop)
            eventually(lambda: is_shared(members))
        assert type_of(never_migrating, topic) == "classic"
        with Producer(**logins.ours(never_migrating)) as producer:
            for number in range(100):
                producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        eventually(lambda: sum(len(member.values) for member in members) == 100)
    with Consumer(**logins.ours(never_migrating), group_id=topic) as looker:
        committed = looker.committed([TopicPartition(topic, number) for number in range(PARTITIONS)])
    assert {metadata.offset for metadata in committed.values() if metadata is not None} == {25}


def test_an_explicit_protocol_is_not_changed(never_migrating: str) -> None:
    topic = a_topic(never_migrating)
    first = Member(never_migrating, topic, CLASSIC)
    try:
        eventually(lambda: is_shared([first]))
        with Consumer(**logins.ours(never_migrating), group_id=topic, group_protocol="consumer") as strict:
            strict.subscribe([topic])
            with pytest.raises(KafkaError) as refused:
                strict.poll(SECONDS)
            assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    finally:
        first.stop()


def test_a_cluster_that_has_the_protocol_off_has_classic_groups(make_node: MakeNode) -> None:
    """And a member that runs already goes over when the protocol is switched off."""
    with running(make_node) as address, ExitStack() as stopped:
        topic = a_topic(address)
        early = Member(address, topic, DEFAULT, auto_commit_interval_ms=1)
        stopped.callback(early.stop)
        eventually(lambda: is_shared([early]))
        assert type_of(address, topic) == "consumer"
        with Producer(**logins.ours(address)) as producer, Admin(**logins.ours(address)) as admin:
            producer.send(topic, b"before", partition=0).result(SECONDS)
            eventually(lambda: early.values == [b"before"])
            try:
                admin.update_features({"group.version": 0})
            except KafkaError as error:
                pytest.skip(f"this server does not switch the protocol off: {error}")
            late = Member(address, topic, DEFAULT)
            stopped.callback(late.stop)
            eventually(lambda: is_shared([early, late]))
            assert type_of(address, topic) == "classic"
            for number in range(PARTITIONS):
                producer.send(topic, b"after", partition=number)
        eventually(lambda: Counter(early.values + late.values)[b"after"] == PARTITIONS)
        assert (early.problem, late.problem) == (None, None)
        with Consumer(**logins.ours(address), group_id=f"{topic}-x", group_protocol="consumer") as strict:
            strict.subscribe([topic])
            with pytest.raises(
                KafkaError, match=r"group\.protocol=consumer needs brokers that serve KIP-848"
            ):
                strict.poll(SECONDS)


_VICTIM = """
import json, sys
from odradek import Consumer
with Consumer(**json.loads(sys.argv[1]), group_id=sys.argv[2], group_instance_id="one") as consumer:
    consumer.subscribe([sys.argv[2]])
    while not consumer.assignment():
        consumer.poll(0.1)
    print("reading", flush=True)
    while True:
        consumer.poll(0.1)
"""


def test_a_static_member_that_is_killed_comes_back_by_itself(quick: str) -> None:
    """In the consumer protocol its instance id is held until its session ends: the new member waits for that."""
    topic = a_topic(quick)
    victim = subprocess.Popen(
        [sys.executable, "-c", _VICTIM, json.dumps(logins.ours(quick)), topic],
        stdout=subprocess.PIPE,
        env=serve_environment(),
    )
    assert victim.stdout is not None
    try:
        assert victim.stdout.readline() == b"reading\n"
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
    member = Member(quick, topic, DEFAULT, group_instance_id="one")
    try:
        eventually(lambda: is_shared([member]))
        assert member.problem is None
    finally:
        member.stop()
