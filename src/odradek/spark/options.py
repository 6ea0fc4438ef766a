"""Turns the user's options into typed values: everything that a read or a write needs, checked before Spark starts it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from odradek.dead_letters.processing_log import ProcessingLog
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import TopicPartition, check_topic_name
from odradek.spark.columns import COLUMN_NAMES, DEAD_LETTER, DEFAULT_COLUMNS
from odradek.spark.extent_options import ending, starting
from odradek.spark.option_table import ParsedOptions, Use, given_options
from odradek.spark.option_values import boolean, choice, duration_ms, positive_or_none, sink_id_in, whole
from odradek.spark.reading.positions import KnownPosition, Position, partition_lists

_KEY_MAX: Final = 500
_EXACTLY_ONCE_ONLY: Final = ("sinkId", "idempotenceKey", "takeOver", "resume", "publishOffsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Which partitions to read: exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


class Decoding(StrEnum):
    """How to decode a key's or a value's bytes."""

    BINARY = "binary"
    UTF8 = "utf8"
    JSON = "json"


class OnDecodeError(StrEnum):
    FAIL = "fail"
    NULL = "null"
    DEAD_LETTER = "dead-letter"


class NoNewerRecord(StrEnum):
    """The meaning of a starting timestamp in a partition that holds no record that new."""

    ERROR = "error"
    LATEST = "latest"


class KeyPartitioner(StrEnum):
    """The partitioner that placed records in their partitions."""

    UNKNOWN = "unknown"
    MURMUR2 = "murmur2"


class DeliveryGuarantee(StrEnum):
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The columns of a read, in order, and how its keys and values are decoded."""

    columns: tuple[str, ...]
    key: Decoding
    value: Decoding
    key_schema: str | None
    value_schema: str | None
    on_error: OnDecodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """The archive that keeps older records than the topics hold."""

    path: str
    endpoint: str | None
    region: str | None
    catalog: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A checked read, batch or streaming."""

    client: Mapping[str, str] = field(repr=False)
    topics: TopicSelection
    starting: Position
    ending: KnownPosition
    no_newer_record: NoNewerRecord
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_partitions: int | None
    max_records_per_partition: int | None
    projection: Projection
    keys_place_records: bool
    """All records of a key are in the partition that Kafka's own clients give it."""
    pushes_filters: bool
    """The read omits records that a query's filters drop."""
    offset_retries: int
    offset_retry_interval_ms: int
    poll_timeout_ms: int
    offset_poll_interval_ms: int
    idle_wait_ms: int
    idle_wait_query: str | None
    partition_discovery_interval_ms: int
    publish_group: str | None
    """The group whose offsets say how far a stream has come."""
    archive: ArchiveOptions | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceOptions:
    """The options of `delivery=exactly_once`."""

    sink_id: str
    idempotence_key: str | None
    taking_over: bool
    resuming: bool
    fail_on_data_loss: bool
    publish_group: str | None
    checkpoint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A checked write, batch or streaming."""

    client: Mapping[str, str] = field(repr=False)
    topic: str | None
    dead_letter_topic: str | None
    suffix: str
    """The suffix of all topics that are written. `topic` and `dead_letter_topic` have it already."""
    delivery_headers: bool
    exactly_once: ExactlyOnceOptions | None
    """The options of exactly-once delivery; None: at least once."""
    warnings: tuple[str, ...]
    left_out_log: ProcessingLog | None = None
    """The log to which the sink writes rows that a streams program leaves out."""


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """Checks the options of a read; ConfigError says which one is wrong and what would be right."""
    given = given_options(options, use)
    return ReadOptions(
        client=given.client,
        topics=_topics(given),
        starting=starting(given, use),
        ending=ending(given),
        no_newer_record=choice(given, "startingOffsetsByTimestampStrategy", NoNewerRecord.ERROR),
        fail_on_data_loss=boolean(given, "failOnDataLoss", True),
        max_offsets_per_trigger=positive_or_none(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=positive_or_none(given, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=duration_ms(given, "maxTriggerDelay", "15m"),
        min_partitions=positive_or_none(given, "minPartitions"),
        max_partitions=_max_partitions(given),
        max_records_per_partition=positive_or_none(given, "maxRecordsPerPartition"),
        projection=_projection(given),
        keys_place_records=choice(given, "keyPartitioner", KeyPartitioner.UNKNOWN) is KeyPartitioner.MURMUR2,
        pushes_filters=boolean(given, "filterPushdown", False),
        offset_retries=whole(given, "fetchOffset.numRetries", 3),
        offset_retry_interval_ms=whole(given, "fetchOffset.retryIntervalMs", 10),
        poll_timeout_ms=whole(given, "kafkaConsumer.pollTimeoutMs", 120_000, at_least=1),
        offset_poll_interval_ms=whole(given, "offsetPollIntervalMs", 50),
        idle_wait_ms=whole(given, "idleWaitMs", 0),
        idle_wait_query=given.get("idleWaitQuery"),
        partition_discovery_interval_ms=whole(given, "partitionDiscoveryIntervalMs", 1_000),
        publish_group=_publish_group(given),
        archive=_archive(given),
        warnings=given.warnings,
    )


def _archive(given: ParsedOptions) -> ArchiveOptions | None:
    path = given.get("archive")
    more = {name: given.get(f"archive{name.capitalize()}") for name in ("endpoint", "region", "catalog")}
    if path is not None:
        return ArchiveOptions(path=path, **more)
    needless = [name for name, value in more.items() if value is not None]
    if needless:
        raise ConfigError(f"option archive{needless[0].capitalize()} is only of use with the option archive")
    return None


def write_options(options: Mapping[str, str], use: Use) -> WriteOptions:
    """Checks the options of a write. Streams mark their records for deduplication unless an option forbids it."""
    given = given_options(options, use)
    exactly_once = _exactly_once(given, use)
    boolean(given, "includeHeaders", True)
    topic = _topic_or_none(given, "topic", given.get("outputSuffix") or "")
    dead_letter_topic = _topic_or_none(given, "deadLetterTopic", given.get("outputSuffix") or "")
    if topic is not None and topic == dead_letter_topic:
        raise ConfigError(
            f"options topic and deadLetterTopic are both {topic}: give dead letters a topic of their own"
        )
    return WriteOptions(
        client=given.client,
        topic=topic,
        dead_letter_topic=dead_letter_topic,
        suffix=given.get("outputSuffix") or "",
        left_out_log=None if (log := given.get("leftOutLog")) is None else ProcessingLog.of(log),
        delivery_headers=boolean(given, "deliveryHeaders", use is Use.STREAM_WRITE and exactly_once is None),
        exactly_once=exactly_once,
        warnings=given.warnings,
    )


def _exactly_once(given: ParsedOptions, use: Use) -> ExactlyOnceOptions | None:
    if choice(given, "delivery", DeliveryGuarantee.AT_LEAST_ONCE) is DeliveryGuarantee.AT_LEAST_ONCE:
        needless = [name for name in _EXACTLY_ONCE_ONLY if given.get(name) is not None]
        if needless:
            hint = ": give it to readStream" if needless[0] == "publishOffsets" else ""
            raise ConfigError(
                f"option {needless[0]} of a write is only of use with delivery=exactly_once{hint}"
            )
        return None
    suffix = given.get("outputSuffix") or ""
    name = (given.get("sinkId") or given.get("queryName") or "").strip()
    sink_id = sink_id_in(
        name + suffix if name else "",
        "delivery=exactly_once needs a name that stays the same from run to run: set the option sinkId, or give the query"
        " a name",
    )
    if "transactional.id" in given.client:
        raise ConfigError("kafka.transactional.id cannot be set with delivery=exactly_once: set sinkId")
    key = given.get("idempotenceKey")
    if key is not None and not 1 <= len(key) <= _KEY_MAX:
        raise ConfigError(f"option idempotenceKey takes 1 to {_KEY_MAX} characters, not {len(key)}")
    if key is not None and not key.isprintable():
        raise ConfigError(f"option idempotenceKey takes printable characters, not {key!r:.80}")
    return ExactlyOnceOptions(
        sink_id=sink_id,
        idempotence_key=key,
        taking_over=boolean(given, "takeOver", False),
        resuming=boolean(given, "resume", False),
        fail_on_data_loss=boolean(given, "failOnDataLoss", True),
        publish_group=_publish_group(given, suffix),
        checkpoint=given.get("checkpointLocation"),
    )


def _max_partitions(given: ParsedOptions) -> int | None:
    most, least = positive_or_none(given, "maxPartitions"), positive_or_none(given, "minPartitions")
    if most is not None and least is not None and most < least:
        raise ConfigError(f"option maxPartitions ({most}) is less than minPartitions ({least})")
    return most


def _publish_group(given: ParsedOptions, suffix: str = "") -> str | None:
    group = given.get("publishOffsets")
    if group is not None and not group.strip():
        raise ConfigError("option publishOffsets names a consumer group; it is empty")
    return group if group is None else group.strip() + suffix


def _topics(given: ParsedOptions) -> TopicSelection:
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if given.get(name) is not None]
    if len(ways) != 1:
        what = f"{' and '.join(ways)} are both given" if ways else "none is given"
        raise ConfigError(
            f"exactly one of the options subscribe, subscribePattern and assign says what to read; {what}"
        )
    text = given.get(ways[0]) or ""
    if ways[0] == "assign":
        partitions = partition_lists(text, "assign")
        for partition in partitions:
            _topic_name(partition.topic, "assign")
        return TopicSelection(partitions=partitions)
    if ways[0] == "subscribe":
        names = tuple(
            sorted({_topic_name(name.strip(), "subscribe") for name in text.split(",") if name.strip()})
        )
        if not names:
            raise ConfigError("option subscribe names no topic")
        return TopicSelection(names=names)
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"option subscribePattern is not a regular expression: {error}") from None
    if not text:
        raise ConfigError("option subscribePattern is empty")
    return TopicSelection(pattern=text)


def _topic_or_none(given: ParsedOptions, option: str, suffix: str) -> str | None:
    name = given.get(option)
    return None if name is None else _topic_name(name.strip() + suffix, option)


def _topic_name(name: str, option: str) -> str:
    try:
        check_topic_name(name)
    except KafkaError as error:
        raise ConfigError(f"option {option}: {error.message}") from None
    return name


def _projection(given: ParsedOptions) -> Projection:
    wanted = [
        column
        for option, column in (("includeHeaders", "headers"), ("includeRecord", "record"))
        if boolean(given, option, False)
    ]
    text = given.get("columns")
    columns: tuple[str, ...] = (*DEFAULT_COLUMNS, *wanted)
    if text is not None:
        columns = _column_list(text)
        for column in wanted:
            if column not in columns:
                raise ConfigError(
                    f"include{column.capitalize()} is true, but the option columns leaves {column} out"
                )
    key, value = choice(given, "keyDecode", Decoding.BINARY), choice(given, "valueDecode", Decoding.BINARY)
    for name, decoding in (("key", key), ("value", value)):
        schema = given.get(f"{name}Schema")
        if decoding is Decoding.JSON and not (schema or "").strip():
            raise ConfigError(
                f"{name}Decode=json needs the option {name}Schema, such as 'id BIGINT, name STRING'"
            )
        if decoding is not Decoding.JSON and schema is not None:
            raise ConfigError(f"option {name}Schema is only of use with {name}Decode=json")
    on_error = choice(given, "decodeErrors", OnDecodeError.FAIL)
    if on_error is OnDecodeError.DEAD_LETTER:
        if key is value is Decoding.BINARY:
            raise ConfigError(
                "decodeErrors=dead-letter needs something to decode: set valueDecode or keyDecode"
                " (for functions of your own: odradek.spark.guarded)"
            )
        columns += (DEAD_LETTER,)
    return Projection(
        columns=columns,
        key=key,
        value=value,
        key_schema=given.get("keySchema"),
        value_schema=given.get("valueSchema"),
        on_error=on_error,
    )


def _column_list(text: str) -> tuple[str, ...]:
    spelled = {name.lower(): name for name in COLUMN_NAMES}
    columns: list[str] = []
    for asked in (entry.strip() for entry in text.split(",") if entry.strip()):
        column = spelled.get(asked.lower())
        if column is None:
            raise ConfigError(
                f"option columns: there is no column {asked!r}; there are {', '.join(COLUMN_NAMES)}"
            )
        if column in columns:
            raise ConfigError(f"option columns names {column} twice")
        columns.append(column)
    if not columns:
        raise ConfigError(f"option columns is empty; there are {', '.join(COLUMN_NAMES)}")
    return tuple(columns)
