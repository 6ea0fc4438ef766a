"""Our own client in consumer groups: both protocols, every assignor, mixed with librdkafka, commits, static members."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import confluent_kafka
import pytest
from tests.interop import logins
from tests.interop.server import Server
from tests.kit.waiting import eventually

from odradek import (
    AsyncConsumer,
    CommitFailedError,
    Consumer,
    ErrorCode,
    KafkaError,
    OdradekError,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    TopicPartition,
)

SECONDS = 30.0
MakeTopic = Callable[..., str]
_numbers = itertools.count()

CLASSIC = [
    {"partition_assignment_strategy": name}
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky")
]
DEFAULT: dict[str, str] = {}
BOTH = [{"group_protocol": "classic"}, DEFAULT]
"""The classic protocol, and the default: the consumer protocol, which the server serves."""
PROTOCOLS = [*CLASSIC, {"group_protocol": "consumer"}, DEFAULT]


def name_of(options: dict[str, str]) -> str:
    return next(iter(options.values()), "default")


def a_group() -> str:
    return f"group-{time.time_ns()}-{next(_numbers)}"


def fill(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    with Producer(**logins.ours(bootstrap)) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


class Member:
    """A consumer that polls on a thread of its own until `stop`."""

    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        settings = {"auto_offset_reset": "earliest", **options}
        if "partition_assignment_strategy" in options or options.get("group_protocol") == "classic":
            settings["heartbeat_interval_ms"] = 300
        self.consumer = Consumer(**logins.ours(bootstrap), group_id=group, **settings)
        self.consumer.subscribe([topic])
        self.values: list[bytes] = []
        self.problem: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.values += [record.value for record in self.consumer.poll(0.1)]
        except OdradekError as error:  # shown by the test that asked
            self.problem = error

    @property
    def share(self) -> list[int]:
        return [tp.partition for tp in self.consumer.assignment()]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self.consumer.close()


@contextmanager
def members(*starts: Callable[[], Member]) -> Iterator[list[Member]]:
    with ExitStack() as running:
        made = []
        for start in starts:
            member = start()
            running.callback(member.stop)
            made.append(member)
        yield made


@pytest.mark.parametrize("options", PROTOCOLS, ids=name_of)
def test_members_share_a_topic_and_hand_it_on_without_loss_or_double(
    bootstrap: str, topic: MakeTopic, options: dict[str, str]
) -> None:
    name, group = topic(partitions=4), a_group()
    fill(bootstrap, name, 4, 200)
    with members(lambda: Member(bootstrap, group, name, **options)) as [first]:
        eventually(lambda: len(first.values) == 200)
        second = Member(bootstrap, group, name, **options)
        try:
            eventually(lambda: sorted(first.share + second.share) == [0, 1, 2, 3] and len(first.share) == 2)
            fill(bootstrap, name, 4, 100)
            eventually(lambda: len(first.values) + len(second.values) >= 300)
        finally:
            second.stop()
        eventually(lambda: first.share == [0, 1, 2, 3])
        fill(bootstrap, name, 4, 100)
        eventually(lambda: len(first.values) + len(second.values) >= 400)
    seen = Counter(first.values + second.values)
    assert sum(seen.values()) == 400
    with Consumer(**logins.ours(bootstrap), group_id=group) as looker:
        committed = looker.committed([TopicPartition(name, number) for number in range(4)])
    assert {metadata.offset for metadata in committed.values() if metadata is not None} == {100}


def test_metrics_of_a_member_count_its_commits_and_partitions(bootstrap: str, topic: MakeTopic) -> None:
    name = topic(partitions=3)
    fill(bootstrap, name, 3, 9)
    with Consumer(
        **logins.ours(bootstrap), group_id=a_group(), auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([name])
        count = 0
        while count < 9:
            count += len(consumer.poll(1.0))
        for number in range(1, 4):
            consumer.commit()
            figures = {metric.name: value for metric, value in consumer.metrics().items()}
            assert figures["commit-total"] == number
        assert figures["commit-latency-max"] >= figures["commit-latency-avg"] > 0
        assert figures["assigned-partitions"] == 3
        assert figures["records-consumed-total"] == 9
        assert figures["records-lag-max"] == 0
        lags = [metric.tags[-1] for metric in consumer.metrics() if metric.name == "records-lag"]
        assert sorted(lags) == [("partition", str(number)) for number in range(3)]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"partition_assignment_strategy": "range"}, {"partition.assignment.strategy": "range"}),
        ({"partition_assignment_strategy": "roundrobin"}, {"partition.assignment.strategy": "roundrobin"}),
        (
            {"partition_assignment_strategy": "cooperative-sticky"},
            {"partition.assignment.strategy": "cooperative-sticky"},
        ),
        ({"group_protocol": "consumer"}, {"group.protocol": "consumer"}),
        (DEFAULT, {"group.protocol": "consumer"}),
        (DEFAULT, {"partition.assignment.strategy": "range"}),
        (DEFAULT, {"partition.assignment.strategy": "cooperative-sticky"}),
    ],
    ids=[
        "range",
        "roundrobin",
        "cooperative-sticky",
        "consumer",
        "default-consumer",
        "default-range",
        "default-cooperative",
    ],
)
@pytest.mark.parametrize("we_begin", [True, False], ids=["we-begin", "they-begin"])
def test_a_group_mixed_with_librdkafka(
    bootstrap: str, topic: MakeTopic, ours: dict[str, str], theirs: dict[str, str], we_begin: bool
) -> None:
    name, group = topic(partitions=4), a_group()
    their = confluent_kafka.Consumer(
        {
            **logins.librdkafka(bootstrap),
            "group.id": group,
            "auto.offset.reset": "earliest",
            **({} if "group.protocol" in theirs else {"heartbeat.interval.ms": 300}),
            **theirs,
        }
    )
    their_share: list[int] = []

    def look() -> None:
        their.poll(0.02)
        their_share[:] = sorted(partition.partition for partition in their.assignment())

    member: Member | None = None
    try:
        if we_begin:
            member = Member(bootstrap, group, name, **ours)
            eventually(lambda: member is not None and member.share == [0, 1, 2, 3])
            their.subscribe([name])
        else:
            their.subscribe([name])
            eventually(lambda: look() or their_share == [0, 1, 2, 3])
            member = Member(bootstrap, group, name, **ours)
        both = member
        eventually(
            lambda: look() or (len(their_share) == 2 and sorted(their_share + both.share) == [0, 1, 2, 3])
        )
        if we_begin:
            their.close()
            eventually(lambda: both.share == [0, 1, 2, 3])
        else:
            both.stop()
            member = None
            eventually(lambda: look() or their_share == [0, 1, 2, 3])
    finally:
        if member is not None:
            member.stop()
        if not we_begin:
            their.close()


@pytest.mark.parametrize("options", BOTH, ids=name_of)
def test_a_group_goes_on_where_it_has_committed(bootstrap: str, topic: MakeTopic, options: Any) -> None:
    name, group = topic(), a_group()
    fill(bootstrap, name, 1, 10)
    settings: dict[str, Any] = {
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **options,
    }
    only = TopicPartition(name, 0)
    with Consumer(**logins.ours(bootstrap), **settings) as consumer:
        consumer.subscribe([name])
        assert [record.offset for record in consumer.poll(SECONDS, max_records=4)] == [0, 1, 2, 3]
        consumer.commit()
        assert [record.offset for record in consumer.poll(SECONDS, max_records=4)] == [4, 5, 6, 7]
    with Consumer(**logins.ours(bootstrap), **settings) as consumer:
        consumer.subscribe([name])
        assert consumer.poll(SECONDS)[0].offset == 4
        consumer.commit({only: OffsetAndMetadata(6, "half way")})
        answers: list[Any] = []
        consumer.commit_async({only: 7}, lambda offsets, error: answers.append((offsets, error)))
        eventually(lambda: answers)
        assert answers == [({only: 7}, None)]
        consumer.commit({only: OffsetAndMetadata(6, "half way")})
        assert consumer.committed([only, TopicPartition(name, 5)]) == {
            only: OffsetAndMetadata(6, "half way"),
            TopicPartition(name, 5): None,
        }


@pytest.mark.parametrize("options", BOTH, ids=name_of)
def test_who_iterates_commits_only_what_they_were_given(
    bootstrap: str, topic: MakeTopic, options: Any
) -> None:
    name, group = topic(), a_group()
    fill(bootstrap, name, 1, 50)
    settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", **options}
    with Consumer(**logins.ours(bootstrap), **settings) as consumer:
        consumer.subscribe([name])
        for record in consumer:
            if record.offset == 9:
                break
        assert consumer.position(TopicPartition(name, 0)) == 10
        consumer.commit()
        assert consumer.poll(SECONDS)[0].offset == 10
        rows = 0
        consumer.seek(TopicPartition(name, 0), 20)
        while not rows:
            rows = consumer.poll_arrow(SECONDS).num_rows
        assert rows == 30
    with Consumer(**logins.ours(bootstrap), group_id=group) as looker:
        assert looker.committed([TopicPartition(name, 0)])[TopicPartition(name, 0)] == OffsetAndMetadata(50)


def test_a_block_that_fails_commits_nothing_by_itself(bootstrap: str, topic: MakeTopic) -> None:
    name, group = topic(), a_group()
    fill(bootstrap, name, 1, 5)

    def read_and_fail() -> None:
        with Consumer(**logins.ours(bootstrap), group_id=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([name])
            assert consumer.poll(SECONDS)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read_and_fail()
    with Consumer(**logins.ours(bootstrap), group_id=group) as looker:
        assert looker.committed([TopicPartition(name, 0)]) == {TopicPartition(name, 0): None}


@pytest.mark.parametrize("options", [*BOTH, {"group_protocol": "consumer"}], ids=name_of)
def test_a_pattern_takes_in_topics_as_they_appear(
    bootstrap: str, topic: MakeTopic, server: Server, options: Any
) -> None:
    prefix = topic()
    group = a_group()
    seen: set[str] = set()
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 300, **options}
    with Consumer(**logins.ours(bootstrap), group_id=group, **settings) as consumer:
        consumer.subscribe(pattern=f"{prefix}.*")
        eventually(lambda: consumer.poll(0.1) or consumer.assignment())
        server.create_topic(f"{prefix}-more")
        fill(bootstrap, f"{prefix}-more", 1, 3)

        def look() -> bool:
            seen.update(record.topic for record in consumer.poll(0.1))
            return f"{prefix}-more" in seen

        eventually(look)


@pytest.mark.parametrize("options", BOTH, ids=name_of)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    bootstrap: str, topic: MakeTopic, options: Any
) -> None:
    name, group = topic(partitions=2), a_group()
    events: list[str] = []

    class Listening(RebalanceListener):
        def partitions_revoked(self, partitions: Any) -> None:
            events.append("revoked")

    with members(
        lambda: Member(bootstrap, group, name, group_instance_id="a", **options),
        lambda: Member(bootstrap, group, name, group_instance_id="b", **options),
    ) as [first, second]:
        eventually(lambda: len(first.share) == len(second.share) == 1)
        first.consumer._core.need_group().listener = Listening()
        before = second.share
        second.stop()
        with members(lambda: Member(bootstrap, group, name, group_instance_id="b", **options)) as [again]:
            eventually(lambda: again.share == before)
        assert events == []


def test_a_second_member_under_the_same_instance_id_fences_the_first_in_the_classic_protocol(
    bootstrap: str, topic: MakeTopic
) -> None:
    name, group = topic(), a_group()
    options: Any = {"group_protocol": "classic"}
    with members(
        lambda: Member(bootstrap, group, name, group_instance_id="a", **options),
    ) as [first]:
        eventually(lambda: first.share == [0])
        with members(lambda: Member(bootstrap, group, name, group_instance_id="a", **options)) as [second]:
            eventually(lambda: second.share == [0])
            eventually(lambda: first.problem is not None)
    assert isinstance(first.problem, KafkaError)
    assert first.problem.code is ErrorCode.FENCED_INSTANCE_ID


def test_a_second_member_under_the_same_instance_id_waits_for_the_first(
    bootstrap: str, topic: MakeTopic
) -> None:
    name, group = topic(), a_group()
    with members(lambda: Member(bootstrap, group, name, group_instance_id="a")) as [first]:
        eventually(lambda: first.share == [0])
        with members(lambda: Member(bootstrap, group, name, group_instance_id="a")) as [second]:
            time.sleep(1.0)
            assert (first.share, first.problem, second.share, second.problem) == ([0], None, [], None)
            first.stop()
            eventually(lambda: second.share == [0])


@pytest.mark.parametrize("options", BOTH, ids=name_of)
def test_who_does_not_poll_loses_the_partitions_and_may_not_commit(
    bootstrap: str, topic: MakeTopic, options: Any
) -> None:
    name, group = topic(), a_group()
    fill(bootstrap, name, 1, 5)
    lost: list[TopicPartition] = []

    class Listening(RebalanceListener):
        def partitions_lost(self, partitions: Any) -> None:
            lost.extend(partitions)

    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "max_poll_interval_ms": 1_000, **options}
    with Consumer(**logins.ours(bootstrap), group_id=group, enable_auto_commit=False, **settings) as slow:
        slow.subscribe([name], listener=Listening())
        assert len(slow.poll(SECONDS)) == 5
        with members(lambda: Member(bootstrap, group, name, **options)) as [other]:
            eventually(lambda: other.share == [0])
            eventually(lambda: len(other.values) == 5)
            with pytest.raises(CommitFailedError):
                slow.commit()
            slow.poll(0.1)
            assert lost == [TopicPartition(name, 0)]


@pytest.mark.parametrize("options", BOTH, ids=name_of)
def test_a_listener_may_ask_seek_commit_and_raise(bootstrap: str, topic: MakeTopic, options: Any) -> None:
    name, group = topic(), a_group()
    only = TopicPartition(name, 0)
    fill(bootstrap, name, 1, 10)
    with Consumer(**logins.ours(bootstrap), group_id=group) as early:
        early.commit({only: 4})
    places: list[int] = []

    class Listening(RebalanceListener):
        def partitions_assigned(self, partitions: Any) -> None:
            places.append(consumer.position(only))
            consumer.seek(only, 7)
            consumer.commit({only: 6})
            raise ZeroDivisionError

    with Consumer(**logins.ours(bootstrap), group_id=group, enable_auto_commit=False, **options) as consumer:
        consumer.subscribe([name], listener=Listening())
        with pytest.raises(ZeroDivisionError):
            consumer.poll(SECONDS)
        assert [record.offset for record in consumer.poll(SECONDS)] == [7, 8, 9]
        assert places == [4]
        assert consumer.committed([only]) == {only: OffsetAndMetadata(6)}


def test_a_consumer_with_a_group_may_also_assign_for_itself(bootstrap: str, topic: MakeTopic) -> None:
    name, group = topic(), a_group()
    fill(bootstrap, name, 1, 10)
    only = TopicPartition(name, 0)
    with Consumer(**logins.ours(bootstrap), group_id=group, enable_auto_commit=False) as consumer:
        consumer.commit({only: 8})
        consumer.assign([only])
        assert [record.offset for record in consumer.poll(SECONDS)] == [8, 9]


def test_without_an_offset_and_a_policy_poll_says_so(bootstrap: str, topic: MakeTopic) -> None:
    with Consumer(**logins.ours(bootstrap), group_id=a_group(), auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic(), 0)])
        with pytest.raises(KafkaError, match="has no position"):
            consumer.poll(SECONDS)


def test_a_policy_may_go_back_by_a_duration(bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    with Producer(**logins.ours(bootstrap)) as producer:
        for hours in (3, 2, 0):
            stamp = round(time.time() * 1000) - hours * 3_600_000
            producer.send(name, b"%d" % hours, timestamp_ms=stamp)
    with Consumer(**logins.ours(bootstrap), auto_offset_reset="by_duration:PT2H30M") as consumer:
        consumer.assign([TopicPartition(name, 0)])
        assert [record.value for record in consumer.poll(SECONDS)] == [b"2", b"0"]


@pytest.mark.parametrize("options", BOTH, ids=name_of)
async def test_the_asynchronous_face_has_groups_too(bootstrap: str, topic: MakeTopic, options: Any) -> None:
    name, group = topic(partitions=2), a_group()
    fill(bootstrap, name, 2, 20)
    answers: list[str] = []

    class Listening(RebalanceListener):
        async def partitions_assigned(self, partitions: Any) -> None:
            answers.append("assigned")

        async def partitions_revoked(self, partitions: Any) -> None:
            answers.append("revoked")

    settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", **options}
    async with AsyncConsumer(**logins.ours(bootstrap), **settings) as consumer:
        await consumer.subscribe([name], listener=Listening())
        count = 0
        async for _ in consumer:
            count += 1
            if count == 20:
                break
        await consumer.commit()
        committed = await consumer.committed([TopicPartition(name, 0), TopicPartition(name, 1)])
        assert {metadata.offset for metadata in committed.values() if metadata is not None} == {10}
        await consumer.unsubscribe()
        assert consumer.assignment() == ()
    assert answers == ["assigned"]
