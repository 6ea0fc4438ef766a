"""Every place that keeps a position reads all of a topic that was deleted and made again, or says that it is another topic.

A place that knows its topic by name alone leaves out the first records of the new one, as many as the old position counts.
"""

from __future__ import annotations

import io
import itertools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import UUID

import pytest

from odradek import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.archive.checks.topic_side import BrokerTopics
from odradek.archive.run import RunTerms, continuation
from odradek.archive.store.location import archive_location
from odradek.archive.store.values import ArchiveState
from odradek.cli.main import main
from odradek.model.errors import OdradekError
from odradek.retry import RetryConsumer
from odradek.runtime.real import SystemClock
from odradek.spark.clients import connections
from odradek.spark.exactly_once.driver import SinkDriver
from odradek.spark.exactly_once.inputs import KnownTopics
from odradek.spark.exactly_once.task import BatchName
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.publishing import OffsetPublisher
from odradek.spark.reading.batch import plan_batch
from odradek.spark.reading.offsets import (
    OffsetRange,
    StreamOffset,
    from_document,
    ranges_between,
    to_document,
)
from odradek.spark.reading.progress import StreamProgress
from odradek.testing import LocalBroker
from odradek.views import TableView

SECONDS: Final = 60.0
FIRST_RECORDS: Final = 10
_numbers = itertools.count()


class Ground:
    """A topic of one partition, and ways to read it that keep no position."""

    def __init__(self, address: str, admin: Admin, directory: Path) -> None:
        self.address, self.admin, self.directory = address, admin, directory
        self.topic = f"kept-{next(_numbers)}"
        self.group = f"{self.topic}-group"
        self.only = TopicPartition(self.topic, 0)
        self.is_made_again = False
        self._sent = 0
        self._create()

    def _create(self) -> None:
        self.admin.create_topics([NewTopic(self.topic)])

    def make_again(self) -> None:
        self.admin.delete_topics([self.topic])
        self._create()
        self.is_made_again = True

    def send(self, count: int) -> list[int]:
        numbers = list(range(self._sent, self._sent + count))
        self._sent += count
        with Producer(self.address) as producer:
            for number in numbers:
                producer.send(self.topic, b"%d" % number, key=b"%d" % number)
        return numbers

    def topic_id(self) -> UUID:
        return self.admin.describe_topics([self.topic])[self.topic].topic_id

    def consumer(self, **options: Any) -> Consumer:
        return Consumer(
            self.address, **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
        )

    def read_from(self, start: int | None, **options: Any) -> list[int]:
        """All records from an offset on; `start` None: from where the options say."""
        with self.consumer(**options) as consumer:
            consumer.assign([self.only])
            if start is not None:
                consumer.seek(self.only, start)
            return self.read(consumer)

    def read(self, consumer: Consumer) -> list[int]:
        values: list[int] = []
        end = consumer.end_offsets([self.only])[self.only]
        deadline = time.monotonic() + SECONDS
        while self.only not in consumer.assignment() or consumer.position(self.only) < end:
            assert time.monotonic() < deadline, f"{values} of {end} came"
            values += [int(record.value or b"-1") for record in consumer.poll(0.1)]
        return values

    def command(self, *words: str) -> str:
        """What a command prints. OdradekError with its line when it fails."""
        out, errors = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            code = main([*words, "--bootstrap", self.address])
        out.flush()
        if code:
            raise OdradekError(errors.getvalue())
        return out.buffer.getvalue().decode()

    def progress(self, **options: str) -> StreamProgress:
        given = {
            "kafka.bootstrap.servers": self.address,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "partitionDiscoveryIntervalMs": "0",
            "offsetPollIntervalMs": "0",
            "failOnDataLoss": "false",
            **options,
        }
        options_read = read_options(given, Use.STREAM_READ)
        return StreamProgress(
            options_read, connections.catalog(options_read.client), SystemClock(), time.sleep
        )

    def journaled(self) -> StreamOffset:
        """What Spark notes after a batch that has read all."""
        progress = self.progress()
        end = progress.latest(progress.initial(), None)
        return from_document(json.loads(json.dumps(to_document(end))))


class Place(ABC):
    """Something that keeps a position in the topic."""

    kinds: ClassVar[dict[str, type[Place]]] = {}

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        Place.kinds[cls.__name__] = cls

    @abstractmethod
    def keep(self) -> None:
        """Read what is there, and keep the position."""

    @abstractmethod
    def go_on(self) -> list[int]:
        """The records that come next. OdradekError: there is another topic."""

    def close(self) -> None:  # noqa: B027 - most places hold nothing open
        """End what is still open."""


class CommittedByAGroup(Place):
    def keep(self) -> None:
        with self.ground.consumer(group_id=self.ground.group) as consumer:
            consumer.assign([self.ground.only])
            self.ground.read(consumer)
            consumer.commit()

    def go_on(self) -> list[int]:
        return self.ground.read_from(None, group_id=self.ground.group)


class ClassicMember(Place):
    """It lives on while its topic is made again, and commits by itself."""

    options: ClassVar[Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 100}

    def keep(self) -> None:
        self.consumer = self.ground.consumer(
            group_id=self.ground.group,
            enable_auto_commit=True,
            auto_commit_interval_ms=1,
            **self.options,
        )
        self.consumer.subscribe([self.ground.topic])
        self.ground.read(self.consumer)

    def go_on(self) -> list[int]:
        self.consumer.commit()
        values: list[int] = []
        wanted = self.ground.read_from(0)
        deadline = time.monotonic() + SECONDS
        while not values or values[-1] != wanted[-1]:
            assert time.monotonic() < deadline, f"{values} of {wanted} came"
            values += [int(record.value or b"-1") for record in self.consumer.poll(0.1)]
        return values

    def close(self) -> None:
        self.consumer.close()


class ConsumerMember(ClassicMember):
    options: ClassVar[Any] = {"group_protocol": "auto"}


class OffsetsInATransaction(Place):
    """A producer commits what a consumer has read."""

    def keep(self) -> None:
        with self.ground.consumer(group_id=self.ground.group) as consumer:
            consumer.assign([self.ground.only])
            self.ground.read(consumer)
            self._positions, self._member = consumer.positions(), consumer.group_metadata()

    def go_on(self) -> list[int]:
        with Producer(self.ground.address, transactional_id=self.ground.group) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send_offsets_to_transaction(self._positions, self._member)
        return self.ground.read_from(None, group_id=self.ground.group)


class Retrying(Place):
    def keep(self) -> None:
        self._handle(FIRST_RECORDS)

    def go_on(self) -> list[int]:
        end = len(self.ground.read_from(0))
        return self._handle(end if self.ground.is_made_again else end - FIRST_RECORDS)

    def _handle(self, count: int) -> list[int]:
        handled: list[int] = []
        with RetryConsumer(
            self.ground.address,
            [self.ground.topic],
            group_id=self.ground.group,
            auto_offset_reset="earliest",
        ) as consumer:
            deadline = time.monotonic() + SECONDS
            while len(handled) < count:
                assert time.monotonic() < deadline, f"{handled} came"
                consumer.handle_some(lambda record: handled.append(int(record.value or b"-1")), 0.1)
        return handled


class CommandConsume(Place):
    def keep(self) -> None:
        self.go_on()

    def go_on(self) -> list[int]:
        words = ("consume", self.ground.topic, "--group", self.ground.group, "--exit-at-end")
        return [int(line) for line in self.ground.command(*words).splitlines()]


class FileOfOffsets(Place):
    """What `reset-offsets --json` has printed is put back later."""

    def keep(self) -> None:
        words = ("group", "reset-offsets", self.ground.group, "--topic", self.ground.topic, "--to-latest")
        (self.ground.directory / "plan").write_text(self.ground.command(*words, "--json"))

    def go_on(self) -> list[int]:
        plan = str(self.ground.directory / "plan")
        self.ground.command("group", "reset-offsets", self.ground.group, "--from-file", plan, "--execute")
        return self.ground.read_from(None, group_id=self.ground.group)


class SparkSource(Place):
    def keep(self) -> None:
        self._offset = self.ground.journaled()

    def go_on(self) -> list[int]:
        return self._read(ranges_between(self._offset, self.ground.progress().latest(self._offset, None)))

    def _read(self, ranges: list[OffsetRange]) -> list[int]:
        return [value for span in ranges for value in self.ground.read_from(span.start)]


class SparkSourceOfAGroup(SparkSource):
    """`startingOffsets=group:NAME`, of a stream and of a batch."""

    def keep(self) -> None:
        self.ground.admin.alter_group_offsets(self.ground.group, {self.ground.only: FIRST_RECORDS})

    def go_on(self) -> list[int]:
        starting = f"group:{self.ground.group}"
        given = {
            "kafka.bootstrap.servers": self.ground.address,
            "subscribe": self.ground.topic,
            "startingOffsets": starting,
        }
        try:
            options = read_options(given, Use.BATCH_READ)
            batch = self._read(plan_batch(options, connections.catalog(options.client)))
        except OdradekError as error:
            assert "has committed no offset of what is read" in str(error)  # noqa: PT017
            assert self.ground.is_made_again
            return self.ground.read_from(0)
        progress = self.ground.progress(startingOffsets=starting)
        start = progress.initial()
        assert self._read(ranges_between(start, progress.latest(start, None))) == batch
        return batch


class PublishedOffsets(SparkSource):
    """`publishOffsets`: the query commits what it has read for a group."""

    def go_on(self) -> list[int]:
        client = {"bootstrap.servers": self.ground.address}
        publisher = OffsetPublisher(self.ground.group, connections.committing(client), SystemClock())
        publisher.publish(self._offset)
        return self.ground.read_from(None, group_id=self.ground.group)


class ExactlyOnceSink(SparkSource):
    """It knew its cluster's topics a moment ago."""

    def keep(self) -> None:
        super().keep()
        self._known = KnownTopics()
        self._held()

    def go_on(self) -> list[int]:
        driver = SinkDriver(self.ground.admin, self.ground.topic, transaction_timeout_s=600.0)
        name = BatchName(query="q", batch=0)
        driver.decide(driver.begin(), name, [], {self.ground.group: self._held()})
        return self.ground.read_from(None, group_id=self.ground.group)

    def _held(self) -> Mapping[TopicPartition, Any]:
        catalog = connections.catalog({"bootstrap.servers": self.ground.address})
        offset = self._offset
        return self._known.held(offset.next_offsets, offset.topic_ids, catalog, SystemClock())


class Archive(Place):
    def keep(self) -> None:
        span = OffsetRange(partition=self.ground.only, start=0, end=FIRST_RECORDS)
        ids = {self.ground.topic: self.ground.topic_id()}
        self._state = ArchiveState(version=1, archived={self.ground.only: span}, batches={}, topic_ids=ids)

    def go_on(self) -> list[int]:
        place = archive_location(str(self.ground.directory / "archive"))
        terms = RunTerms(bootstrap=self.ground.address, location=place, topics=(self.ground.topic,))
        starting = continuation(terms, self._state, BrokerTopics(self.ground.address))
        return self.ground.read_from(json.loads(starting or "")[self.ground.topic]["0"])


class View(Place):
    def keep(self) -> None:
        self._kept = self._rows(FIRST_RECORDS)

    def go_on(self) -> list[int]:
        rows = self._rows(len(self.ground.read_from(0)))
        return rows if self.ground.is_made_again else [row for row in rows if row not in self._kept]

    def _rows(self, end: int) -> list[int]:
        directory = self.ground.directory / "view"
        with TableView.open(
            self.ground.address, self.ground.topic, directory=directory, timeout_s=SECONDS
        ) as view:
            view.wait_until({0: end})
            return sorted(dict(view).values())


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Admin]]:
    quick = {
        "auto.create.topics.enable": "false",  # or a consumer makes the deleted topic before the test does
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    with ExitStack() as stack:
        broker = stack.enter_context(LocalBroker(quick))
        yield broker.address, stack.enter_context(Admin(broker.address))
    connections.close_idle()


@pytest.fixture(params=Place.kinds)
def place(request: pytest.FixtureRequest, server: tuple[str, Admin], tmp_path: Path) -> Iterator[Place]:
    kept = Place.kinds[request.param](Ground(*server, tmp_path))
    yield kept
    kept.close()


@pytest.mark.parametrize("count", [4, 14])
def test_a_topic_that_was_made_again_is_read_from_its_beginning_or_named(place: Place, count: int) -> None:
    place.ground.send(FIRST_RECORDS)
    place.keep()
    place.ground.make_again()
    new = place.ground.send(count)
    try:
        values = place.go_on()
    except OdradekError as error:
        assert f"'{place.ground.topic}' was deleted and made again" in str(error)  # noqa: PT017
    else:
        assert values == new


def test_a_position_is_kept(place: Place) -> None:
    """Or a place that always begins at the beginning would pass."""
    place.ground.send(FIRST_RECORDS)
    place.keep()
    new = place.ground.send(3)
    assert place.go_on() == new
