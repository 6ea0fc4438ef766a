"""The two topics of pipelines as tables: read to their end, and made when they are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from odradek import client
from odradek.client import Admin, Consumer, NewTopic
from odradek.client.admin.ensured_topics import ensure_topic
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PIPELINES_TOPIC, PipelineDocument
from odradek.pipelines.status import STATUS_TOPIC, PipelineStatus
from odradek.runtime.ports import Clock
from odradek.telemetry import events

_log = events.get("pipelines")

_READ_COMMITTED: Final = 1
_POLL_S: Final = 0.5
_SILENCE_S: Final = 15.0
Value = TypeVar("Value")


def partition_of(topic: str) -> TopicPartition:
    """Returns the partition of a topic. These topics have one: its records have one order for every reader."""
    return TopicPartition(topic, 0)


def make_topics(admin: Admin) -> None:
    """Makes the topics. Idempotent."""
    for topic in (PIPELINES_TOPIC, STATUS_TOPIC):
        ensure_topic(admin, NewTopic(topic, 1, configs={"cleanup.policy": "compact"}))


def is_there(admin: Admin, topic: str) -> bool:
    """Tells whether a topic exists: requests for offsets of a missing topic are repeated until they time out."""
    try:
        admin.describe_topics([topic])
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return False
    return True


class DocumentTable(NamedTuple):
    """The current documents of all pipelines. `end`: the offset where later changes begin."""

    documents: dict[str, PipelineDocument]
    unreadable: dict[str, str]
    """Why documents cannot be read, by the pipeline's name. Other pipelines do not depend on it."""
    end: int


def read_documents(admin: Admin, clock: Clock, servers: str, **settings: object) -> DocumentTable:
    """Reads all documents; none where there never was a pipeline."""
    end = end_of(admin, PIPELINES_TOPIC)
    records = _records(PIPELINES_TOPIC, end, clock, servers, settings)
    documents, unreadable = _table(records, PipelineDocument.from_bytes)
    return DocumentTable(documents, unreadable, end)


def read_statuses(admin: Admin, clock: Clock, servers: str, **settings: object) -> dict[str, PipelineStatus]:
    """Returns the last published status of each pipeline, without unreadable ones."""
    records = _records(STATUS_TOPIC, end_of(admin, STATUS_TOPIC), clock, servers, settings)
    statuses, unreadable = _table(records, PipelineStatus.from_bytes)
    for name, reason in unreadable.items():
        _log.warning("status_unreadable", pipeline=name, reason=reason)
    return statuses


def end_of(admin: Admin, topic: str) -> int:
    """Returns the end of what is committed; 0 where there is no such topic."""
    partition = partition_of(topic)
    try:
        return admin.list_offsets({partition: client.LATEST}, isolation=_READ_COMMITTED)[partition].offset
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return 0


def _table(
    records: Iterator[tuple[bytes | None, bytes | None]], read: Callable[[str, bytes], Value]
) -> tuple[dict[str, Value], dict[str, str]]:
    """Returns the values by name, and why others are unreadable. Only what stayed is decoded."""
    contents: dict[str, bytes] = {}
    for key, content in records:
        name = (key or b"").decode("utf-8", "replace")
        if content is None:
            contents.pop(name, None)
        else:
            contents[name] = content
    values: dict[str, Value] = {}
    unreadable: dict[str, str] = {}
    for name, content in sorted(contents.items()):
        try:
            values[name] = read(name, content)
        except KafkaError as error:
            unreadable[name] = error.message
    return values, unreadable


def _records(
    topic: str, end: int, clock: Clock, servers: str, settings: ClientSettings
) -> Iterator[tuple[bytes | None, bytes | None]]:
    if end == 0:
        return
    partition = partition_of(topic)
    with Consumer(
        servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        enable_auto_commit=False,
        **settings,
    ) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        heard_at = clock.monotonic()
        while consumer.position(partition) < end:
            records = consumer.poll(_POLL_S)
            yield from ((record.key, record.value) for record in records if record.offset < end)
            if records:
                heard_at = clock.monotonic()
            elif clock.monotonic() - heard_at > _SILENCE_S:
                raise client.TimedOutError(
                    f"reading {topic}: its last records did not come within {_SILENCE_S:g} s"
                )
