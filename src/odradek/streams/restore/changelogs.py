"""Changelog topics, and state restore: a program continues without its checkpoint, with each operator's state.

A task's changes are records of the transaction that has the batch's output, in the partition of the task's number. So a
changelog is, at each decision of the sink, the state of that decision, whose input offsets it holds, too. A program that is
started with a new checkpoint reads both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import BinaryType, StructType

from odradek.client import Admin, NewTopic
from odradek.client.admin.ensured_topics import ensure_topic
from odradek.client.admin.types import ConfigResource
from odradek.client.consumer.subscription_state import EARLIEST, LATEST
from odradek.client.network.errors import PartialFailureError
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.real import SystemClock
from odradek.spark.clients import connections
from odradek.spark.exactly_once.driver import SinkDriver, last_decision
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.reading.fetch import read_ranges
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.reading.schema import arrow_schema
from odradek.streams.plan.queries import changelog_topic
from odradek.streams.restore.changelog_topics import AbandonedChangelogs, changelogs_among
from odradek.streams.restore.checkpoint_directory import CheckpointDirectory

if TYPE_CHECKING:
    from odradek.client.admin.types import TopicDescription
    from odradek.spark.exactly_once.decision import Decision

log: Final = logging.getLogger("odradek.streams")

COMPACTED: Final = {"cleanup.policy": "compact"}
_COMMITTED: Final = 1
_WITHIN_S: Final = 30.0
"""Brokers write the markers of transactions that have ended soon after."""
_LOOK_EVERY_S: Final = 0.02
_ROW: Final = StructType().add("key", BinaryType()).add("value", BinaryType())


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChangelog:
    """The changelog of an operator, for its tasks. `options` are options of `format("odradek")`."""

    options: Mapping[str, str] = field(repr=False)
    topic: str
    topic_id: str
    """The topic's id: a topic of the same name that was made later lacks what was written before."""
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """The offsets to read at the start, by task. Empty: the state is in the checkpoint, or there is none yet."""

    def read(self, task: int) -> Iterator[tuple[list[bytes], list[bytes | None]]]:
        """Yields names and bytes, in the order of offsets."""
        start, end = self.ranges.get(task, (0, 0))
        if start >= end:
            return
        extent = OffsetRange(partition=TopicPartition(self.topic, task), start=start, end=end)
        options = read_options(
            {
                **self.options,
                "subscribe": self.topic,
                "columns": "key,value",
                "kafka.isolation.level": "read_committed",
            },
            Use.BATCH_READ,
        )
        for rows in read_ranges([extent], options, arrow_schema(_ROW)):
            yield rows["key"].to_pylist(), rows["value"].to_pylist()


@dataclass(slots=True)
class SinkChangelogs:
    """The changelogs of one query, made or found as its operators are translated."""

    options: Mapping[str, str] = field(repr=False)
    sink_id: str
    tasks: int
    decision: Decision | None
    """The sink's last decision; None: nothing was decided yet."""
    is_new: bool
    """The checkpoint is new."""
    client: Mapping[str, str] = field(repr=False)
    topics: set[str] = field(default_factory=set)
    """The topics of the operators that were asked for."""

    @classmethod
    def open(
        cls, options: Mapping[str, str], sink_id: str, tasks: int, checkpoint: CheckpointDirectory
    ) -> SinkChangelogs:
        """Looks whether the checkpoint continues. If not, fences another driver of the sink, and carries out its last
        decision.

        BatchLostError when that cannot be done any more.
        """
        settings, client = _of_kafka(options), kafka_client(options, sink_id)
        is_new = not checkpoint.has_files("commits")
        with connections.administering(client) as admin:
            if is_new:
                timeout_s = connections.transaction_timeout_s(client)
                decision = SinkDriver(admin, sink_id, transaction_timeout_s=timeout_s).retire()
            else:
                decision = last_decision(admin, sink_id)
        if is_new and decision is not None:
            checkpoint.remove()  # it has no batch that ended; the decision may have its first one
        return cls(settings, sink_id, tasks, decision, is_new, client)

    @property
    def _resumes(self) -> bool:
        """The query continues at the decision, not with its checkpoint."""
        return self.is_new and self.decision is not None

    @property
    def source_options(self) -> dict[str, str]:
        """The options of the query's sources. With a checkpoint they apply to sources that it does not have: an earlier version
        may have read them.
        """
        return {} if self.decision is None else {"resume": "true", "sinkId": self.sink_id}

    @property
    def sink_options(self) -> dict[str, str]:
        return {"resume": "true"} if self._resumes else {}

    def of(self, operator: str) -> StateChangelog:
        """Returns the changelog. ConfigError when it has the state of other tasks, or lacks state that should be there."""
        topic = changelog_topic(self.sink_id, operator)
        self.topics.add(topic)
        with connections.administering(self.client) as admin:
            description = described(admin, topic)
            if description is None:
                self._check_absent(admin, topic)
                description = created(admin, NewTopic(topic, self.tasks, configs=COMPACTED))
            else:
                ensure_topic(admin, NewTopic(topic, configs=COMPACTED))
            if len(description.partitions) != self.tasks:
                raise ConfigError(
                    f"topic {topic} has the state of {len(description.partitions)} tasks, and partitions={self.tasks}: keys"
                    f" would be in other tasks. Set partitions={len(description.partitions)}"
                )
            self._resume(admin, topic, description.topic_id.hex)
            ranges = self._ranges(admin, description) if self.is_new else {}
        changelog = StateChangelog(
            options=self.options, topic=topic, topic_id=description.topic_id.hex, ranges=ranges
        )
        if self.is_new and self.decision is None:
            return self._checked_empty(changelog)
        return changelog

    def leave_others(self) -> None:
        """Notes which changelogs the query does not continue. Call it once all operators were asked for."""
        if not self._resumes:
            return
        assert self.decision is not None
        with connections.administering(self.client) as admin:
            left = [
                name
                for name in changelogs_among(admin.list_topics(), self.sink_id)
                if name not in self.topics
            ]
            if left:
                ids = {
                    name: described.topic_id.hex for name, described in admin.describe_topics(left).items()
                }
                AbandonedChangelogs(admin, self.sink_id).note(ids, self.decision)

    def _resume(self, admin: Admin, topic: str, topic_id: str) -> None:
        left = AbandonedChangelogs(admin, self.sink_id)
        if self._resumes:
            assert self.decision is not None
            if not left.are_current(topic, topic_id, self.decision):
                raise ConfigError(
                    f"topic {topic} has state of an earlier version of the program, and no version since has kept it up to"
                    f" date. Delete it to begin without state (odradek topic delete {topic}), or give the operator another name"
                )
        left.resume(topic)

    def _check_absent(self, admin: Admin, topic: str) -> None:
        if not self._resumes:
            return
        if not changelogs_among(admin.list_topics(), self.sink_id):
            raise ConfigError(
                f"there is no topic {topic}: the state of {self.sink_id!r} was in its checkpoint only, and this checkpoint is"
                f" new. Give the old checkpoint; or write to another sink, from the beginning on"
            )
        log.warning("operator without a changelog: it begins without state (topic %s is new)", topic)

    def _ranges(self, admin: Admin, topic: TopicDescription) -> dict[int, tuple[int, int]]:
        """Returns the first offset and the end of each task's partition, once all transactions there have ended."""
        partitions = topic.topic_partitions
        starts = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = admin.list_offsets(dict.fromkeys(partitions, LATEST))

        def first_open() -> str | None:
            stable = admin.list_offsets(dict.fromkeys(partitions, LATEST), isolation=_COMMITTED)
            for tp in partitions:
                if stable[tp].offset < ends[tp].offset:
                    return (
                        f"{tp} has an open transaction below offset {ends[tp].offset}, though the transactions of sink"
                        f" {self.sink_id!r} were ended: does another program write there? (odradek txn list)"
                    )
            return None

        _wait_until_none(first_open)
        return {tp.partition: (starts[tp].offset, ends[tp].offset) for tp in partitions}

    def _checked_empty(self, changelog: StateChangelog) -> StateChangelog:
        """Returns the changelog after a check that it has no state, which a query that begins must not find."""
        for task in changelog.ranges:
            for names, _ in changelog.read(task):
                if names:
                    raise ConfigError(
                        f"topic {changelog.topic} holds state, but sink {self.sink_id!r} has no decision, so no one can tell"
                        " which records are in it: the decision has expired, or was deleted. Delete the topic to begin"
                        " from the start, or give the old checkpoint"
                    )
        return StateChangelog(options=changelog.options, topic=changelog.topic, topic_id=changelog.topic_id)


def described(admin: Admin, topic: str) -> TopicDescription | None:
    """Returns the description of a topic; None: there is no such topic."""
    try:
        return admin.describe_topics([topic])[topic]
    except PartialFailureError as failure:
        errors: list[KafkaError] = list(failure.errors.values())
    except KafkaError as error:
        errors = [error]
    if errors[0].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    raise errors[0]


def created(admin: Admin, topic: NewTopic) -> TopicDescription:
    """Returns a topic, made unless it is there."""
    try:
        admin.create_topics([topic])
    except KafkaError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    descriptions: list[TopicDescription] = []

    def absence() -> str | None:
        description = described(admin, topic.name)
        if description is None:
            return f"topic {topic.name} was made, but no broker shows it"
        descriptions.append(description)
        return None

    _wait_until_none(absence)
    return descriptions[0]


def _wait_until_none(problem: Callable[[], str | None]) -> None:
    """Waits until there is no problem; KafkaError with the last problem when the time is up."""
    clock = SystemClock()
    deadline = clock.monotonic() + _WITHIN_S
    while (text := problem()) is not None:
        if clock.monotonic() > deadline:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, text)
        time.sleep(_LOOK_EVERY_S)  # noqa: TID251 - a program that starts, on a thread of its own


def make_compacted(options: Mapping[str, str], topic: str) -> None:
    """Makes the topic of a table if it does not exist. Warns if it exists and deletes rows."""
    client = kafka_client(options, topic)
    with connections.administering(client) as admin:
        if described(admin, topic) is None:
            created(admin, NewTopic(topic, configs=COMPACTED))
            return
        resource = ConfigResource.topic(topic)
        try:
            policy = admin.describe_configs([resource])[resource]["cleanup.policy"].value
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return
    if "compact" not in (policy or ""):
        log.warning(
            "topic %s has the rows of a table, and cleanup.policy=%s: rows that do not change are forgotten with time. Set it"
            " to compact: odradek topics alter %s --config cleanup.policy=compact",
            topic,
            policy,
            topic,
        )


def kafka_client(options: Mapping[str, str], topic: str) -> Mapping[str, str]:
    """Returns the client's settings among options of `format("odradek")`."""
    return read_options({**_of_kafka(options), "subscribe": topic}, Use.BATCH_READ).client


def _of_kafka(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in options.items()
        if name.startswith("kafka.") and name != "kafka.isolation.level"
    }
