"""From the user's options to typed values: everything a read or a write needs to know, checked before
Spark starts it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import TopicPartition, check_topic_name
from odradek.spark.columns import COLUMN_NAMES, DEAD_LETTER, DEFAULT_COLUMNS
from odradek.spark.option_table import GivenOptions, Use, given_options
from odradek.spark.positions import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Everywhere,
    Position,
    partition_lists,
    partition_numbers,
)

_DURATION_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_KEY_MAX: Final = 500
_EXACTLY_ONCE_ONLY: Final = ("sinkId", "idempotenceKey", "takeOver", "publishOffsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSelection:
    """Which partitions to read: exactly one of the three is set."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


class Decoding(StrEnum):
    """What to make of a key's or a value's bytes."""

    BINARY = "binary"
    UTF8 = "utf8"
    JSON = "json"


class OnDecodeError(StrEnum):
    FAIL = "fail"
    NULL = "null"
    DEAD_LETTER = "dead-letter"


class NoNewerRecord(StrEnum):
    """What a starting timestamp means in a partition that holds no record that new."""

    ERROR = "error"
    LATEST = "latest"


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
class ReadOptions:
    """A checked read, batch or streaming."""

    client: Mapping[str, str]
    topics: TopicSelection
    starting: Position
    ending: Position
    no_newer_record: NoNewerRecord
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    projection: Projection
    offset_retries: int
    offset_retry_interval_ms: int
    poll_timeout_ms: int
    offset_poll_interval_ms: int
    partition_discovery_interval_ms: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceOptions:
    """What `delivery=exactly_once` needs to know."""

    sink_id: str
    idempotence_key: str | None
    taking_over: bool
    fail_on_data_loss: bool
    publish_group: str | None
    checkpoint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """A checked write, batch or streaming."""

    client: Mapping[str, str]
    topic: str | None
    dead_letter_topic: str | None
    delivery_headers: bool
    exactly_once: ExactlyOnceOptions | None
    """None: at least once."""
    warnings: tuple[str, ...]


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """Check the options of a read; ConfigError says which one is wrong and what would be right."""
    given = given_options(options, use)
    return ReadOptions(
        client=given.client,
        topics=_topics(given),
        starting=_starting(given, use),
        ending=_ending(given),
        no_newer_record=_choice(given, "startingOffsetsByTimestampStrategy", NoNewerRecord.ERROR),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        max_offsets_per_trigger=_positive_or_none(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_positive_or_none(given, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", "15m"),
        min_partitions=_positive_or_none(given, "minPartitions"),
        max_records_per_partition=_positive_or_none(given, "maxRecordsPerPartition"),
        projection=_projection(given),
        offset_retries=_whole(given, "fetchOffset.numRetries", 3),
        offset_retry_interval_ms=_whole(given, "fetchOffset.retryIntervalMs", 10),
        poll_timeout_ms=_whole(given, "kafkaConsumer.pollTimeoutMs", 120_000, at_least=1),
        offset_poll_interval_ms=_whole(given, "offsetPollIntervalMs", 50),
        partition_discovery_interval_ms=_whole(given, "partitionDiscoveryIntervalMs", 1_000),
        warnings=given.warnings,
    )


def write_options(options: Mapping[str, str], use: Use) -> WriteOptions:
    """Check the options of a write. Streams mark their records for deduplication unless told not to."""
    given = given_options(options, use)
    exactly_once = _exactly_once(given, use)
    _boolean(given, "includeHeaders", True)
    return WriteOptions(
        client=given.client,
        topic=_topic_or_none(given, "topic"),
        dead_letter_topic=_topic_or_none(given, "deadLetterTopic"),
        delivery_headers=_boolean(given, "deliveryHeaders", use is Use.STREAM_WRITE and exactly_once is None),
        exactly_once=exactly_once,
        warnings=given.warnings,
    )


def _exactly_once(given: GivenOptions, use: Use) -> ExactlyOnceOptions | None:
    if _choice(given, "delivery", DeliveryGuarantee.AT_LEAST_ONCE) is DeliveryGuarantee.AT_LEAST_ONCE:
        needless = [name for name in _EXACTLY_ONCE_ONLY if given.get(name) is not None]
        if needless:
            raise ConfigError(f"option {needless[0]} is only of use with delivery=exactly_once")
        return None
    sink_id = (given.get("sinkId") or given.get("queryName") or "").strip()
    if not sink_id:
        raise ConfigError(
            "delivery=exactly_once needs a name that stays the same from run to run: set the option sinkId, or give the"
            " query a name"
        )
    if not _SINK_ID.fullmatch(sink_id):
        raise ConfigError(
            f"option sinkId takes 1 to 200 letters, digits, dots, dashes and underscores, not {sink_id!r:.80}"
        )
    if "transactional.id" in given.client:
        raise ConfigError("kafka.transactional.id cannot be set with delivery=exactly_once: set sinkId")
    key = given.get("idempotenceKey")
    if key is not None and not 1 <= len(key) <= _KEY_MAX:
        raise ConfigError(f"option idempotenceKey takes 1 to {_KEY_MAX} characters, not {len(key)}")
    if key is not None and not key.isprintable():
        raise ConfigError(f"option idempotenceKey takes printable characters, not {key!r:.80}")
    group = given.get("publishOffsets")
    if group is not None and not group.strip():
        raise ConfigError("option publishOffsets names a consumer group; it is empty")
    return ExactlyOnceOptions(
        sink_id=sink_id,
        idempotence_key=key,
        taking_over=_boolean(given, "takeOver", False),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        publish_group=group,
        checkpoint=given.get("checkpointLocation"),
    )


def _topics(given: GivenOptions) -> TopicSelection:
    ways = [name for name in ("assign", "subscribe", "subscribePattern") if given.get(name) is not None]
    if len(ways) != 1:
        found = f"{' and '.join(ways)} are both given" if ways else "none is given"
        raise ConfigError(
            f"exactly one of the options subscribe, subscribePattern and assign says what to read; {found}"
        )
    text = given.get(ways[0]) or ""
    if ways[0] == "assign":
        partitions = partition_lists(text, "assign")
        for each in partitions:
            _topic_name(each.topic, "assign")
        return TopicSelection(partitions=partitions)
    if ways[0] == "subscribe":
        names = tuple(
            sorted({_topic_name(each.strip(), "subscribe") for each in text.split(",") if each.strip()})
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


def _topic_or_none(given: GivenOptions, option: str) -> str | None:
    name = given.get(option)
    return None if name is None else _topic_name(name.strip(), option)


def _topic_name(name: str, option: str) -> str:
    try:
        check_topic_name(name)
    except KafkaError as error:
        raise ConfigError(f"option {option}: {error.message}") from None
    return name


def _starting(given: GivenOptions, use: Use) -> Position:
    by_time = _position_by_time(given, "startingTimestamp", "startingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    text = given.get("startingOffsets")
    streaming = use is Use.STREAM_READ
    if text is None:
        return Everywhere(bound=LATEST if streaming else EARLIEST)
    position = _position_by_offset(text, "startingOffsets")
    if use is Use.BATCH_READ and _mentions(position, LATEST):
        raise ConfigError(
            "option startingOffsets of a batch read cannot be latest (-1): there would be nothing to read"
        )
    return position


def _ending(given: GivenOptions) -> Position:
    by_time = _position_by_time(given, "endingTimestamp", "endingOffsetsByTimestamp")
    if by_time is not None:
        return by_time
    text = given.get("endingOffsets")
    position = Everywhere(bound=LATEST) if text is None else _position_by_offset(text, "endingOffsets")
    if _mentions(position, EARLIEST):
        raise ConfigError("option endingOffsets cannot be earliest (-2): there would be nothing to read")
    return position


def _mentions(position: Position, bound: int) -> bool:
    if isinstance(position, Everywhere):
        return position.bound == bound
    return isinstance(position, AtOffsets) and bound in position.offsets.values()


def _position_by_offset(text: str, option: str) -> Position:
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Everywhere(bound=EARLIEST if word == "earliest" else LATEST)
    if not word.startswith("{"):
        raise ConfigError(
            f"option {option} is earliest, latest or JSON like {{'topic': {{'0': 23}}}}, not {text!r}"
        )
    offsets = partition_numbers(text, option)
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            raise ConfigError(
                f"option {option}: {offset} for {partition} is no offset, nor -2 (earliest), nor -1 (latest)"
            )
    return AtOffsets(offsets=offsets)


def _position_by_time(given: GivenOptions, everywhere: str, each: str) -> Position | None:
    text = given.get(everywhere)
    if text is not None:
        return AtTime(timestamp_ms=_whole(given, everywhere, 0))
    text = given.get(each)
    if text is None:
        return None
    timestamps = partition_numbers(text, each)
    if any(moment < 0 for moment in timestamps.values()):
        raise ConfigError(f"option {each} holds a negative timestamp; it takes milliseconds since 1970")
    return AtTimes(timestamps_ms=timestamps)


def _projection(given: GivenOptions) -> Projection:
    wanted = [
        column
        for option, column in (("includeHeaders", "headers"), ("includeRecord", "record"))
        if _boolean(given, option, False)
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
    key, value = _choice(given, "keyDecode", Decoding.BINARY), _choice(given, "valueDecode", Decoding.BINARY)
    for name, decoding in (("key", key), ("value", value)):
        schema = given.get(f"{name}Schema")
        if decoding is Decoding.JSON and not (schema or "").strip():
            raise ConfigError(
                f"{name}Decode=json needs the option {name}Schema, such as 'id BIGINT, name STRING'"
            )
        if decoding is not Decoding.JSON and schema is not None:
            raise ConfigError(f"option {name}Schema is only of use with {name}Decode=json")
    on_error = _choice(given, "decodeErrors", OnDecodeError.FAIL)
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
    for asked in (each.strip() for each in text.split(",") if each.strip()):
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


def _boolean(given: GivenOptions, name: str, default: bool) -> bool:
    text = given.get(name)
    if text is None:
        return default
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ConfigError(f"option {name} is true or false, not {text!r}")
    return word == "true"


_Chosen = TypeVar("_Chosen", bound=StrEnum)


def _choice(given: GivenOptions, name: str, default: _Chosen) -> _Chosen:
    text = given.get(name)
    if text is None:
        return default
    try:
        return type(default)(text.strip().lower())
    except ValueError:
        raise ConfigError(f"option {name} is one of {', '.join(type(default))}, not {text!r}") from None


def _whole(given: GivenOptions, name: str, default: int, *, at_least: int = 0) -> int:
    text = given.get(name)
    if text is None:
        return default
    try:
        number = int(text.strip())
    except ValueError:
        number = at_least - 1
    if number < at_least:
        raise ConfigError(f"option {name} is a whole number of at least {at_least}, not {text!r}")
    return number


def _positive_or_none(given: GivenOptions, name: str) -> int | None:
    return None if given.get(name) is None else _whole(given, name, 1, at_least=1)


def _duration_ms(given: GivenOptions, name: str, default: str) -> int:
    text = given.get(name) or default
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    unit = _DURATION_UNITS_MS.get(match.group(2) or "ms") if match else None
    if match is None or unit is None:
        raise ConfigError(f"option {name} is a duration such as 500ms, 30s or 15m, not {text!r}")
    return int(match.group(1)) * unit
