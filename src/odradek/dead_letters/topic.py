"""A dead-letter topic on a cluster: its letters, and which of them were sent back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from odradek import client
from odradek.client import Admin, Consumer
from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.client.consumer.same_topics import SameTopics
from odradek.dead_letters.letter import DeadLetter, read_letter
from odradek.dead_letters.redriven import REDRIVES_TOPIC, RedrivenState
from odradek.dead_letters.selection import Selection, span_of
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock

_SILENCE_S: Final = 60.0
"""Longer than a transaction of a redrive that died holds others up."""
_POLL_S: Final = 0.5


class DeadLetterTopic:
    """The dead letters of one topic. UNKNOWN_TOPIC_OR_PARTITION when it does not exist.

    with DeadLetterTopic("127.0.0.1:9092", "orders.dlq") as topic:
        for letter, is_redriven in topic.letters():
            ...
        redrive(topic, RedriveRequest(selection=Selection(errors=("KeyError",))))
    """

    def __init__(
        self,
        bootstrap_servers: str,
        name: str,
        *,
        clock: Clock | None = None,
        view: Callable[[ConsumerRecord], ConsumerRecord] | None = None,
        **settings: Any,
    ) -> None:
        """`view` changes the records of `letters`, such as by hiding parts of them: a redrive needs them as they are.

        `settings` are for all clients that are made, such as `client_id`."""
        self.name: Final = name
        self.servers: Final = bootstrap_servers
        self.settings: Final = settings
        self._view = view
        self._clock = clock or SystemClock()
        self.admin: Final = Admin(bootstrap_servers, **settings)
        self._counts: dict[str, int] = {}
        try:
            topic = self.admin.describe_topics([name])[name]
        except BaseException:
            self.admin.close()
            raise
        self._topic_id = topic.topic_id
        self._partitions = topic.topic_partitions

    def close(self) -> None:
        """Closes the clients. Idempotent."""
        self.admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def letters(self, selection: Selection | None = None) -> Iterator[tuple[DeadLetter, bool]]:
        """Yields the letters that are there now, and whether each was sent back; each partition's in order.

        By default all. Of a selection's places only those offsets are read.
        """
        selection = selection or Selection()
        spans = {place: span_of(selection.places, place.partition) for place in self._partitions}
        state = self.state()
        for record in self._read({place: span for place, span in spans.items() if span is not None}):
            letter = read_letter(record if self._view is None else self._view(record))
            if selection.matches(letter):
                yield letter, record.offset in state.of(record.partition)

    def records(self, begin: Callable[[int, int], int]) -> Iterator[ConsumerRecord]:
        """The records of all partitions, up to what is the end now. `begin(partition, first offset)`: where to read from."""
        return self._read(dict.fromkeys(self._partitions, (0, None)), begin)

    def state(self) -> RedrivenState:
        """Read to the end of the log, not only to the last stable offset: what another redrive holds open may hide ours."""
        try:
            redrives = self.admin.describe_topics([REDRIVES_TOPIC])[REDRIVES_TOPIC]
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return RedrivenState(self.name, self._topic_id)
        [place] = redrives.topic_partitions
        end = self.admin.list_offsets({place: client.LATEST}, isolation=0)[place].offset
        with self._consumer() as consumer:
            consumer.assign([place])
            consumer.seek_to_beginning()
            problem = "another redrive holds a transaction open there"
            same = SameTopics(consumer.topic_id, {REDRIVES_TOPIC: redrives.topic_id})
            records = [
                (record.key, record.value) for record in self._until(consumer, {place: end}, same, problem)
            ]
        return RedrivenState(self.name, self._topic_id, records)

    def partition_count(self, topic: str, letter: DeadLetter) -> int:
        """Returns the partition count of a letter's target topic. Raises UNKNOWN_TOPIC_OR_PARTITION when it does not exist: it
        must not be made here."""
        count = self._counts.get(topic)
        if count is None:
            try:
                count = len(self.admin.describe_topics([topic])[topic].partitions)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                raise KafkaError(
                    error.code,
                    f"the dead letter {letter.place} needs topic {topic}, which does not exist: create it, name"
                    " another one (--to), or leave such letters out",
                ) from None
            self._counts[topic] = count
        return count

    # -- inside

    def _consumer(self) -> Consumer:
        return Consumer(
            self.servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            enable_auto_commit=False,
            **self.settings,
        )

    def _read(
        self,
        spans: Mapping[TopicPartition, tuple[int, int | None]],
        begin: Callable[[int, int], int] = lambda _, first: first,
    ) -> Iterator[ConsumerRecord]:
        """Yields the records from the first to the last offset of each span, of those that the log holds now."""
        if not spans:
            return
        with self._consumer() as consumer:
            log_starts, ends = consumer.beginning_offsets(spans), consumer.end_offsets(spans)
            starts = {place: max(first, log_starts[place]) for place, (first, _) in spans.items()}
            for place, (_, last) in spans.items():
                ends[place] = ends[place] if last is None else min(ends[place], last + 1)
            consumer.assign(spans)
            for place, start in starts.items():
                consumer.seek(place, begin(place.partition, start))
            same = SameTopics(consumer.topic_id, {self.name: self._topic_id})
            yield from self._until(consumer, ends, same, "its last records did not come")

    def _until(
        self, consumer: Consumer, ends: Mapping[TopicPartition, int], same: SameTopics, problem: str
    ) -> Iterator[ConsumerRecord]:
        heard_at = self._clock.monotonic()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records = consumer.poll(_POLL_S)
            same.check()
            yield from (
                record
                for record in records
                if record.offset < ends[TopicPartition(record.topic, record.partition)]
            )
            if records:
                heard_at = self._clock.monotonic()
            elif self._clock.monotonic() - heard_at > _SILENCE_S:
                topics = ", ".join(sorted({partition.topic for partition in ends}))
                raise client.TimedOutError(f"reading {topics}: {problem} within {_SILENCE_S:g} s")
