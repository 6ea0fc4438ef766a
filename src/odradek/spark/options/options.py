"""Turns the user's options into typed values: everything that a read or a write needs, checked before Spark starts it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.config.listening.listeners import checked_http_address
from odradek.dead_letters.processing_log import ProcessingLog
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import TopicPartition, check_topic_name
from odradek.spark.options.extent_options import ending, starting
from odradek.spark.options.option_table import (
    Decoding,
    DeliveryGuarantee,
    KeyPartitioner,
    NoNewerRecord,
    OnDecodeError,
    ParsedOptions,
    Use,
    parsed_options,
)
from odradek.spark.options.positions import KnownPosition, Position, partition_lists
from odradek.spark.options.sink_ids import sink_id_in
from odradek.spark.rows.columns import COLUMN_NAMES, DEAD_LETTER, DEFAULT_COLUMNS
from odradek.values.formats import format_of_text

_KEY_MAX: Final = 500
_EXACTLY_ONCE_ONLY: Final = ("sinkId", "idempotenceKey", "takeOver", "resume", "publishOffsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Which partitions to read: exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The columns of a read, in order, and how its keys and values are decoded."""

    columns: tuple[str, ...]
    key: Decoding
    value: Decoding
    key_schema: str | None
    value_schema: str | None
    on_error: OnDecodeError
    key_format: str | None = None
    """The text of the format of keys (`RecordFormat.text`), whose column is {value, problem}; None: `key` names it."""
    value_format: str | None = None


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
    keys_choose_partitions: bool
    """All records of a key are in the partition that Kafka's own clients give it."""
    pushes_filters: bool
    """The read omits records that a query's filters drop."""
    offset_retries: int
    offset_retry_interval_ms: int
    poll_timeout_ms: int
    offset_poll_interval_ms: int
    idle_wait_ms: int
    idle_wait_query: str | None
    trigger_wait_ms: int
    trigger_wait_topics: tuple[str, ...]
    partition_discovery_interval_ms: int
    publish_group: str | None
    """The group whose offsets show how far a stream has come."""
    archive: ArchiveOptions | None
    task_rows: str | None
    """How records become rows of tasks (`reading.task_rows`), as text; None: a row is a record."""
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
    tracing_endpoint: str | None = None
    """The OpenTelemetry collector that gets the spans of traced rows; None: there are none."""
    packed_rows: str | None = None
    """What the sink makes of rows that come packed, as `PackedRows` writes it; None: they do not."""
    key_format: str | None = None
    """The text of the format (`RecordFormat.text`) in which the sink writes keys, which are structs; None: they are bytes."""
    value_format: str | None = None


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """Checks the options of a read; ConfigError names the wrong one and what would be right."""
    parsed = parsed_options(options, use)
    return ReadOptions(
        client=parsed.client,
        topics=_topics(parsed),
        starting=starting(parsed, use),
        ending=ending(parsed),
        no_newer_record=parsed.choice("startingOffsetsByTimestampStrategy", NoNewerRecord),
        fail_on_data_loss=parsed.flag("failOnDataLoss"),
        max_offsets_per_trigger=parsed.number_or_none("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=parsed.number_or_none("minOffsetsPerTrigger"),
        max_trigger_delay_ms=parsed.number("maxTriggerDelay"),
        min_partitions=parsed.number_or_none("minPartitions"),
        max_partitions=_max_partitions(parsed),
        max_records_per_partition=parsed.number_or_none("maxRecordsPerPartition"),
        projection=_projection(parsed),
        keys_choose_partitions=parsed.choice("keyPartitioner", KeyPartitioner) is KeyPartitioner.MURMUR2,
        pushes_filters=parsed.flag("filterPushdown"),
        offset_retries=parsed.number("fetchOffset.numRetries"),
        offset_retry_interval_ms=parsed.number("fetchOffset.retryIntervalMs"),
        poll_timeout_ms=parsed.number("kafkaConsumer.pollTimeoutMs"),
        offset_poll_interval_ms=parsed.number("offsetPollIntervalMs"),
        idle_wait_ms=parsed.number("idleWaitMs"),
        idle_wait_query=parsed.text("idleWaitQuery"),
        trigger_wait_ms=parsed.number("triggerWaitMs"),
        trigger_wait_topics=tuple(filter(None, (parsed.text("triggerWaitTopics") or "").split(","))),
        partition_discovery_interval_ms=parsed.number("partitionDiscoveryIntervalMs"),
        publish_group=_publish_group(parsed),
        archive=_archive(parsed),
        task_rows=parsed.text("taskRows"),
        warnings=parsed.warnings,
    )


def _archive(parsed: ParsedOptions) -> ArchiveOptions | None:
    path = parsed.text("archive")
    more = {name: parsed.text(f"archive{name.capitalize()}") for name in ("endpoint", "region", "catalog")}
    if path is not None:
        return ArchiveOptions(path=path, **more)
    needless = [name for name, value in more.items() if value is not None]
    if needless:
        raise ConfigError(f"option archive{needless[0].capitalize()} is only of use with the option archive")
    return None


def write_options(options: Mapping[str, str], use: Use) -> WriteOptions:
    """Checks the options of a write. Streams mark their records for deduplication unless an option forbids it."""
    parsed = parsed_options(options, use)
    exactly_once = _exactly_once(parsed, use)
    topic = _topic_or_none(parsed, "topic", parsed.text("outputSuffix") or "")
    dead_letter_topic = _topic_or_none(parsed, "deadLetterTopic", parsed.text("outputSuffix") or "")
    if topic is not None and topic == dead_letter_topic:
        raise ConfigError(
            f"options topic and deadLetterTopic are both {topic}: give dead letters a topic of their own"
        )
    return WriteOptions(
        client=parsed.client,
        topic=topic,
        dead_letter_topic=dead_letter_topic,
        suffix=parsed.text("outputSuffix") or "",
        left_out_log=None if (log := parsed.text("leftOutLog")) is None else ProcessingLog.of(log),
        delivery_headers=parsed.flag(
            "deliveryHeaders", otherwise=use is Use.STREAM_WRITE and exactly_once is None
        ),
        exactly_once=exactly_once,
        warnings=parsed.warnings,
        tracing_endpoint=None
        if (endpoint := parsed.text("tracingEndpoint")) is None
        else checked_http_address("option tracingEndpoint", endpoint),
        packed_rows=parsed.text("packedRows"),
        key_format=_format(parsed, "keyFormat"),
        value_format=_format(parsed, "valueFormat"),
    )


def _format(parsed: ParsedOptions, option: str) -> str | None:
    text = parsed.text(option)
    if text is not None:
        try:
            format_of_text(text)
        except ValueError:
            raise ConfigError(f"option {option} is of ours alone, and is set by SQL; leave it out") from None
    return text


def _exactly_once(parsed: ParsedOptions, use: Use) -> ExactlyOnceOptions | None:
    if parsed.choice("delivery", DeliveryGuarantee) is DeliveryGuarantee.AT_LEAST_ONCE:
        needless = [name for name in _EXACTLY_ONCE_ONLY if parsed.is_given(name)]
        if needless:
            hint = ": give it to readStream" if needless[0] == "publishOffsets" else ""
            raise ConfigError(
                f"option {needless[0]} of a write is only of use with delivery=exactly_once{hint}"
            )
        return None
    suffix = parsed.text("outputSuffix") or ""
    name = (parsed.text("sinkId") or parsed.text("queryName") or "").strip()
    sink_id = sink_id_in(
        name + suffix if name else "",
        "delivery=exactly_once needs a name that stays the same from run to run: set the option sinkId, or give the query"
        " a name",
    )
    if "transactional.id" in parsed.client:
        raise ConfigError("kafka.transactional.id cannot be set with delivery=exactly_once: set sinkId")
    key = parsed.text("idempotenceKey")
    if key is not None and not 1 <= len(key) <= _KEY_MAX:
        raise ConfigError(f"option idempotenceKey takes 1 to {_KEY_MAX} characters, not {len(key)}")
    if key is not None and not key.isprintable():
        raise ConfigError(f"option idempotenceKey takes printable characters, not {key!r:.80}")
    return ExactlyOnceOptions(
        sink_id=sink_id,
        idempotence_key=key,
        taking_over=parsed.flag("takeOver"),
        resuming=parsed.flag("resume"),
        fail_on_data_loss=parsed.flag("failOnDataLoss"),
        publish_group=_publish_group(parsed, suffix),
        checkpoint=parsed.text("checkpointLocation"),
    )


def _max_partitions(parsed: ParsedOptions) -> int | None:
    most, least = parsed.number_or_none("maxPartitions"), parsed.number_or_none("minPartitions")
    if most is not None and least is not None and most < least:
        raise ConfigError(f"option maxPartitions ({most}) is less than minPartitions ({least})")
    return most


def _publish_group(parsed: ParsedOptions, suffix: str = "") -> str | None:
    group = parsed.text("publishOffsets")
    if group is not None and not group.strip():
        raise ConfigError("option publishOffsets names a consumer group; it is empty")
    return group if group is None else group.strip() + suffix


def _topics(parsed: ParsedOptions) -> TopicSelection:
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if parsed.text(name) is not None]
    if len(ways) != 1:
        what = f"{' and '.join(ways)} are both given" if ways else "none is given"
        raise ConfigError(
            f"exactly one of the options subscribe, subscribePattern and assign must name what to read; {what}"
        )
    text = parsed.text(ways[0]) or ""
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


def _topic_or_none(parsed: ParsedOptions, option: str, suffix: str) -> str | None:
    name = parsed.text(option)
    return None if name is None else _topic_name(name.strip() + suffix, option)


def _topic_name(name: str, option: str) -> str:
    try:
        check_topic_name(name)
    except KafkaError as error:
        raise ConfigError(f"option {option}: {error.message}") from None
    return name


def _projection(parsed: ParsedOptions) -> Projection:
    wanted = [
        column
        for option, column in (("includeHeaders", "headers"), ("includeRecord", "record"))
        if parsed.flag(option)
    ]
    text = parsed.text("columns")
    columns: tuple[str, ...] = (*DEFAULT_COLUMNS, *wanted)
    if text is not None:
        columns = _column_list(text)
        for column in wanted:
            if column not in columns:
                raise ConfigError(
                    f"include{column.capitalize()} is true, but the option columns leaves {column} out"
                )
    key, value = parsed.choice("keyDecode", Decoding), parsed.choice("valueDecode", Decoding)
    for name, decoding in (("key", key), ("value", value)):
        schema = parsed.text(f"{name}Schema")
        if decoding is Decoding.JSON and not (schema or "").strip():
            raise ConfigError(
                f"{name}Decode=json needs the option {name}Schema, such as 'id BIGINT, name STRING'"
            )
        if decoding is not Decoding.JSON and schema is not None:
            raise ConfigError(f"option {name}Schema is only of use with {name}Decode=json")
    on_error = parsed.choice("decodeErrors", OnDecodeError)
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
        key_schema=parsed.text("keySchema"),
        value_schema=parsed.text("valueSchema"),
        on_error=on_error,
        key_format=_format(parsed, "keyFormat"),
        value_format=_format(parsed, "valueFormat"),
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
