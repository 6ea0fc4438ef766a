"""The sandbox's cluster: brokers as processes, a load, consumers, and their counts."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeVar

from odradek import client
from odradek.cli.serving.broker_processes import BrokerProcess, Fleet
from odradek.cli.serving.secure import secure_source
from odradek.client import Admin, Consumer, Delivery, NewTopic, Producer
from odradek.config.files.properties import parse_properties
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition

_SESSION_MS: Final = 4000
_SETTINGS: Final = {
    "broker.session.timeout.ms": str(_SESSION_MS),
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
}
_AUDITED: Final = {"odradek.audit.sinks": "topic", "odradek.audit.topic.partitions": "3"}
_QUICK: Final[dict[str, object]] = {
    "retry_backoff_ms": 30,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 30,
}
_ASK_MS: Final = 3000
"""Longer than a broker's answer takes; a broker that is paused gives none, and then another one is asked."""
_POLL_SECONDS: Final = 0.05

_ANY_PORT: Final = "127.0.0.1:0"

T = TypeVar("T")


def client_names(settings: Mapping[str, str]) -> ClientSettings:
    """Settings by the names that our client's arguments have."""
    return {name.replace(".", "_"): value for name, value in settings.items()}


class PlaygroundTimeout(OdradekError):
    """A condition did not become true in time; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(slots=True)
class PlaygroundConsumer:
    """A consumer in a thread of its own. It commits what it has read whenever it has read something."""

    name: str
    group: str
    topic: str
    address: str
    settings: ClientSettings = field(default_factory=dict, repr=False)
    seen: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(partition, offset, value) of all that it was given, in that order."""
    partitions: tuple[int, ...] = ()
    trouble: str = ""
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"consumer {self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, with everything committed."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        try:
            with Consumer(
                self.address,
                group_id=self.group,
                client_id=self.name,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                group_protocol="consumer",
                **self.settings,
            ) as consumer:
                consumer.subscribe([self.topic])
                while not self._stopping.is_set():
                    self._turn(consumer)
        except OdradekError as error:
            self.trouble = str(error)

    def _turn(self, consumer: Consumer) -> None:
        try:
            records = consumer.poll(0.1)
            self.partitions = tuple(
                sorted(topic_partition.partition for topic_partition in consumer.assignment())
            )
            if records:
                self.seen += [(record.partition, record.offset, record.value or b"") for record in records]
                consumer.commit(timeout_s=10)
            self.trouble = ""
        except KafkaError as error:
            self.trouble = str(error)


class Load:
    """A producer that sends numbered records, this many a second, until it is stopped; it remembers what was acknowledged."""

    def __init__(
        self, address: str, topic: str, *, first: int, per_second: int, settings: ClientSettings
    ) -> None:
        self.first = first
        self.sent = 0
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.failed = 0
        self._topic = topic
        self._per_second = per_second
        self._stopping = threading.Event()
        self._producer = Producer(address, acks="all", linger_ms=2, **settings)
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._lock = threading.Lock()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait until all that was sent is acknowledged or has failed."""
        self._stopping.set()
        self._thread.join(30)
        with suppress(OdradekError):
            self._producer.flush(60)
        self._producer.close(5)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(0.02):
            due = int((time.monotonic() - began) * self._per_second)
            while self.sent < due:
                self._send(self.first + self.sent)

    def _send(self, number: int) -> None:
        value = str(number).encode()
        self.sent += 1
        try:
            delivery = self._producer.send(self._topic, value, key=str(number % 97))
        except OdradekError:
            self.failed += 1
            return
        delivery.add_done_callback(lambda done: self._delivered(value, done))

    def _delivered(self, value: bytes, delivery: Delivery) -> None:
        with self._lock:
            try:
                record_metadata = delivery.result(0)
            except OdradekError:
                self.failed += 1
            else:
                self.acknowledged[value] = (record_metadata.partition, record_metadata.offset)


class Playground:
    """A context manager: starts the brokers, and ends everything that it started.

    `secured`: with TLS, logins, ACLs and an audit. All that the playground does, it does as the admin.
    """

    def __init__(self, directory: Path, *, brokers: int = 3, secured: bool = False) -> None:
        self.keys: Final = directory / "keys"
        self.admin_settings: dict[str, str] = {}
        """The settings of admin clients by Kafka's names; empty without a login."""
        settings = dict(_SETTINGS)
        if secured:
            settings |= {**_AUDITED, **secure_source(str(self.keys), _ANY_PORT, is_quiet=True).values}
            file = (self.keys / "client.properties").read_text(encoding="utf-8")
            self.admin_settings = dict(parse_properties(file).values)
        self.fleet = Fleet.plan(brokers, directory, settings=settings)
        self.client_settings: Final[ClientSettings] = {**_QUICK, **client_names(self.admin_settings)}
        self.members: list[PlaygroundConsumer] = []
        self.load: Load | None = None
        self.acknowledged: dict[str, dict[bytes, tuple[int, int]]] = {}
        """The values that we sent and brokers acknowledged, by topic, with the partition and offset of each."""
        self._numbers: Counter[str] = Counter()
        self._admin: Admin | None = None

    def __enter__(self) -> Self:
        self.fleet.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.load is not None:
            self.load.stop()
        for member in self.members:
            member.stop()
        if self._admin is not None:
            self._admin.close()
        self.fleet.stop()

    @property
    def address(self) -> str:
        """Returns the addresses of the brokers that live, for `bootstrap.servers`."""
        return (
            ",".join(broker.address for broker in self.fleet.brokers if broker.is_alive)
            or self.fleet.bootstrap
        )

    @property
    def admin(self) -> Admin:
        if self._admin is None:
            self._admin = Admin(self.fleet.bootstrap, request_timeout_ms=_ASK_MS, **self.client_settings)
        return self._admin

    # -- topics and records

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        """Creates a topic with a replica on each of three brokers, or on all if there are fewer."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        replicas = min(3, len(self.fleet.brokers))
        self.admin.create_topics([NewTopic(topic, partitions, replicas, configs=settings)])

    def ensure(self, topic: str, partitions: int, **configs: str) -> bool:
        """Creates the topic unless it exists; returns whether it was created."""
        try:
            self.create(topic, partitions, **configs)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def produce(self, topic: str, count: int) -> list[tuple[int, int, bytes]]:
        """Send this many numbered records, and wait; (partition, offset, value) of each."""
        first = self._numbers[topic]
        self._numbers[topic] += count
        with Producer(self.address, acks="all", **self.client_settings) as producer:
            sent = [
                (str(number).encode(), producer.send(topic, str(number), key=str(number % 7)))
                for number in range(first, first + count)
            ]
            producer.flush(60)
            placed = [
                (record_metadata.partition, record_metadata.offset, value)
                for value, delivery in sent
                if (record_metadata := delivery.result(60))
            ]
        self._remember(topic, {value: (partition, offset) for partition, offset, value in placed})
        return placed

    def _remember(self, topic: str, acknowledged: dict[bytes, tuple[int, int]]) -> None:
        self.acknowledged.setdefault(topic, {}).update(acknowledged)

    def start_load(self, topic: str, per_second: int = 400) -> None:
        if self.load is not None:
            raise OdradekError("a load runs already: stop it first")
        self.load = Load(
            self.address,
            topic,
            first=self._numbers[topic],
            per_second=per_second,
            settings=self.client_settings,
        )
        self.load.start()

    def stop_load(self, topic: str) -> Load:
        """Stops the load and returns it, with everything answered."""
        load, self.load = self.load, None
        if load is None:
            raise OdradekError("no load runs")
        load.stop()
        self._numbers[topic] += load.sent
        self._remember(topic, load.acknowledged)
        return load

    def read_all(self, topic: str) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of every record, read apart from any group."""
        with Consumer(
            self.address,
            isolation_level="read_committed",
            enable_auto_commit=False,
            **self.client_settings,
        ) as consumer:
            partitions = self.admin.describe_topics([topic])[topic].topic_partitions
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning(partitions)
            results: list[tuple[int, int, bytes]] = []
            deadline = time.monotonic() + 60
            while any(consumer.position(partition, 10) < ends[partition] for partition in partitions):
                if time.monotonic() > deadline:
                    raise PlaygroundTimeout(f"{topic} could not be read to its end within a minute")
                results += [
                    (consumer_record.partition, consumer_record.offset, consumer_record.value or b"")
                    for consumer_record in consumer.poll(0.5)
                ]
        return results

    # -- groups

    def add_consumer(self, group: str, topic: str) -> PlaygroundConsumer:
        number = 1 + max(
            (
                int(playground_consumer.name.rpartition("-")[2])
                for playground_consumer in self.members
                if playground_consumer.group == group
            ),
            default=0,
        )
        member = PlaygroundConsumer(
            f"{group}-{number}", group, topic, self.fleet.bootstrap, self.client_settings
        )
        self.members.append(member)
        member.start()
        return member

    def remove_consumer(self, group: str) -> PlaygroundConsumer:
        """Removes the consumer that came last, if possible one that has something to do."""
        ours = [
            playground_consumer for playground_consumer in self.members if playground_consumer.group == group
        ]
        if not ours:
            raise OdradekError(f"group {group!r} has no consumer here")
        member = next(
            (playground_consumer for playground_consumer in ours if playground_consumer.partitions), ours[-1]
        )
        member.stop()
        self.members.remove(member)
        return member

    def remove_all(self, group: str) -> list[PlaygroundConsumer]:
        gone = [
            playground_consumer for playground_consumer in self.members if playground_consumer.group == group
        ]
        for member in gone:
            member.stop()
            self.members.remove(member)
        return gone

    def lag(self, group: str, topic: str) -> int:
        """Returns the number of records that the group has not committed yet."""
        committed = self.admin.list_group_offsets(group)
        read = {
            partition.partition: known.offset for partition, known in committed.items() if known is not None
        }
        return sum(end - read.get(number, 0) for number, end in self.ends(topic).items())

    def ends(self, topic: str) -> dict[int, int]:
        partitions = [
            TopicPartition(topic, partition_view.partition) for partition_view in self.partitions(topic)
        ]
        offsets = self.admin.list_offsets(dict.fromkeys(partitions, client.LATEST))
        return {partition.partition: end.offset for partition, end in offsets.items()}

    # -- brokers

    def broker(self, node_id: int) -> BrokerProcess:
        return self.fleet.broker(node_id)

    def revive(self, node_id: int) -> None:
        broker = self.broker(node_id)
        if broker.is_paused:
            broker.resume()
        elif not broker.is_alive:
            broker.start()
            broker.wait_until_ready()

    def put_right(self, topic: str) -> None:
        """Undo what a person may have done between two lessons: brokers run, no load does, no one consumes."""
        for broker in self.fleet.brokers:
            self.revive(broker.node_id)
        if self.load is not None:
            self.stop_load(topic)
        for group in {member.group for member in self.members}:
            self.remove_all(group)

    def partitions(self, topic: str) -> list[PartitionView]:
        topic_description = self.admin.describe_topics([topic])[topic]
        return [
            PartitionView(
                topic=topic,
                partition=partition.partition,
                leader=partition.leader,
                replicas=partition.replicas,
                isr=partition.isr,
            )
            for partition in topic_description.partitions
        ]

    def controller(self) -> int:
        return self.admin.describe_cluster().controller_id

    def until(self, what: str, look: Callable[[], T], *, seconds: float = 30.0) -> T:
        """Returns the first true result of `look`, asking silent brokers again. Raises PlaygroundTimeout if there is none."""
        deadline = time.monotonic() + seconds
        last = ""
        while time.monotonic() < deadline:
            try:
                seen = look()
            except OdradekError as error:
                last = f" ({error})"
            else:
                if seen:
                    return seen
            time.sleep(_POLL_SECONDS)
        raise PlaygroundTimeout(f"within {seconds:g} s it did not come true that {what}{last}")
