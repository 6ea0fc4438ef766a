"""Every option of `format("odradek")`: its name as Spark's Kafka connector spells it, where it applies,
what it means.

Spark hands options over with their names in lower case, so they are looked up without regard to case and
spelled back as they stand here. `docs/spark.md` lists the same names; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto
from typing import Final

from odradek.config.options import (
    BOOLEAN,
    DURATION_MS,
    TEXT,
    GivenOptions,
    Option,
    OptionTable,
    OptionType,
    choice,
    whole,
)
from odradek.model.errors import ConfigError


class Use(Flag):
    """The operations to which an option can be given."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


_USE_NAMES: Final = {
    Use.BATCH_READ: "a batch read",
    Use.STREAM_READ: "a streaming read",
    Use.BATCH_WRITE: "a batch write",
    Use.STREAM_WRITE: "a streaming write",
}


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


def _option(
    name: str,
    use: Use,
    meaning: str,
    *,
    type: OptionType = TEXT,  # noqa: A002 - the field's name
    default: object = None,
    tolerated: bool = False,
) -> Option:
    return Option(name=name, use=use, meaning=meaning, type=type, default=default, tolerated=tolerated)


# fmt: off
_ROWS: Final = (
    _option("subscribe", Use.READ, "topics to read, separated by commas"),
    _option("subscribePattern", Use.READ, "regular expression that a topic's whole name must match"),
    _option("assign", Use.READ, 'partitions to read: {"topic": [0, 1]}'),
    _option("startingOffsets", Use.READ, "earliest, latest (streams only), group:NAME or JSON, -2 earliest, -1 latest"),
    _option("startingTimestamp", Use.READ, "milliseconds: the first record at or after it, in every partition", type=whole()),
    _option("startingOffsetsByTimestamp", Use.READ, "the same for each partition, as JSON"),
    _option("startingOffsetsByTimestampStrategy", Use.READ, type=choice(NoNewerRecord), default=NoNewerRecord.ERROR, meaning=
        "error or latest, where no record is that new"),
    _option("endingOffsets", Use.BATCH_READ, "latest or JSON, -1 latest"),
    _option("endingTimestamp", Use.BATCH_READ, "milliseconds: stop before the first record at or after it", type=whole()),
    _option("endingOffsetsByTimestamp", Use.BATCH_READ, "the same for each partition, as JSON"),
    _option("failOnDataLoss", Use.ALL, type=BOOLEAN, default=True, meaning=
        "fail (true), or warn and go on (false), when offsets are gone, or a decided batch can no longer be committed"),
    _option("maxOffsetsPerTrigger", Use.STREAM_READ, "records per micro-batch, at most", type=whole(1), tolerated=True),
    _option("minOffsetsPerTrigger", Use.STREAM_READ, type=whole(1), tolerated=True, meaning=
        "wait for this many records, but no longer"),
    _option("maxTriggerDelay", Use.STREAM_READ, "than this (15m)", type=DURATION_MS, default=900_000, tolerated=True),
    _option("minPartitions", Use.READ, "Spark partitions, at least", type=whole(1)),
    _option("maxPartitions", Use.READ, "Spark partitions, at most: one reads several of the topic's", type=whole(1)),
    _option("maxRecordsPerPartition", Use.READ, "records per Spark partition, at most", type=whole(1)),
    _option("includeHeaders", Use.READ | Use.WRITE, type=BOOLEAN, default=False, meaning=
        "read: add the column headers; write: accepted, needless"),
    _option("columns", Use.READ, "columns to produce, separated by commas: the others are never built"),
    _option("keyDecode", Use.READ, "binary, utf8 or json", type=choice(Decoding), default=Decoding.BINARY),
    _option("valueDecode", Use.READ, "binary, utf8 or json", type=choice(Decoding), default=Decoding.BINARY),
    _option("keySchema", Use.READ, "the key's fields for keyDecode=json, as DDL: id BIGINT, name STRING"),
    _option("valueSchema", Use.READ, "the value's fields for valueDecode=json, as DDL"),
    _option("decodeErrors", Use.READ, type=choice(OnDecodeError), default=OnDecodeError.FAIL, meaning=
        "for what cannot be decoded: fail, null, or dead-letter (keep it in the column deadLetter)"),
    _option("includeRecord", Use.READ, type=BOOLEAN, default=False, meaning=
        "add the column record: key, value and headers as they were read"),
    _option("keyPartitioner", Use.READ, type=choice(KeyPartitioner), default=KeyPartitioner.UNKNOWN, meaning=
        "murmur2: a filter on key reads one partition; unknown: all of them"),
    _option("filterPushdown", Use.BATCH_READ, type=BOOLEAN, default=False, meaning=
        "true: read no more than the query's filters need"),
    _option("fetchOffset.numRetries", Use.READ, type=whole(), default=3, meaning=
        "how often to ask again for offsets that look wrong"),
    _option("fetchOffset.retryIntervalMs", Use.READ, "and how long to wait before that", type=whole(), default=10),
    _option("kafkaConsumer.pollTimeoutMs", Use.READ, type=whole(1), default=120_000, meaning=
        "how long a task waits for its next records"),
    _option("offsetPollIntervalMs", Use.STREAM_READ, type=whole(), default=50, meaning=
        "how often an idle stream asks for new offsets"),
    _option("idleWaitMs", Use.STREAM_READ, type=whole(), default=0, meaning=
        "a stream that has read everything waits for records so long, and asks for offsets once for all that wait; 0: never"),
    _option("idleWaitQuery", Use.STREAM_READ, "a name that the sources of one query share, so that none waits for another"),
    _option("partitionDiscoveryIntervalMs", Use.STREAM_READ, type=whole(), default=1_000, meaning=
        "how often it looks for new partitions"),
    _option("taskRows", Use.STREAM_READ, "of ours: how a streams program's records become rows of its tasks"),
    _option("archive", Use.READ, "an archive of the topics: what they no longer hold is read there"),
    _option("archiveEndpoint", Use.READ, "the URL of its S3-compatible store"),
    _option("archiveRegion", Use.READ, "the region of its store"),
    _option("archiveCatalog", Use.READ, "its NAME:NAMESPACE.TABLE in an Iceberg catalog"),
    _option("groupIdPrefix", Use.READ, "accepted and ignored: reads use no consumer group", tolerated=True),
    _option("topic", Use.WRITE, "the topic of every row; without it, the column topic"),
    _option("deadLetterTopic", Use.WRITE, "where rows with a deadLetter go, in place of what they hold else"),
    _option("leftOutLog", Use.WRITE, "of ours: the processing log, for rows of a streams program that are left out"),
    _option("tracingEndpoint", Use.WRITE, meaning=
        "an OpenTelemetry collector (OTLP over HTTP) that gets spans of rows whose headers have a sampled traceparent"),
    _option("outputSuffix", Use.WRITE, meaning=
        "what the names of the written topics and of the sink end in: an output beside the first one"),
    _option("delivery", Use.WRITE, type=choice(DeliveryGuarantee), default=DeliveryGuarantee.AT_LEAST_ONCE, meaning=
        "at_least_once or exactly_once"),
    _option("sinkId", Use.WRITE | Use.STREAM_READ, meaning=
        "exactly once: a name of this output, the same from run to run (the query's name)"),
    _option("idempotenceKey", Use.BATCH_WRITE, "exactly once: a write with the sink's last key is not done again"),
    _option("takeOver", Use.WRITE, type=BOOLEAN, default=False, meaning=
        "exactly once: go on after another query's, or without a, decision"),
    _option("resume", Use.STREAM_READ | Use.STREAM_WRITE, type=BOOLEAN, default=False, meaning=
        "without a checkpoint, go on from the sink's last decision"),
    _option("publishOffsets", Use.STREAM_READ | Use.STREAM_WRITE, meaning=
        "a consumer group whose offsets say what the query has read"),
    _option("deliveryHeaders", Use.WRITE, "add headers by which a reader can drop duplicates", type=BOOLEAN),
    _option("checkpointLocation", Use.ALL, "Spark's own"),
    _option("queryName", Use.STREAM_WRITE, "Spark's own"),
)
# fmt: on
OPTIONS: Final = OptionTable(_ROWS, _USE_NAMES, known_elsewhere=("kafka.bootstrap.servers",))
CLIENT_PREFIX: Final = "kafka."
_SERVERS_MEANT: Final = "unknown option {given!r}; did you mean kafka.bootstrap.servers?"
_OFTEN_MEANT: Final = {
    "path": 'format("odradek") takes no path: name topics with the option subscribe, and call load()',
    "bootstrap.servers": _SERVERS_MEANT,
    "bootstrapservers": _SERVERS_MEANT,
}
_REPLACED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets are kept in Spark's checkpoint",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "kafka.key.deserializer": "use keyDecode",
    "kafka.value.deserializer": "use valueDecode",
    "kafka.key.serializer": "cast the column key to string or binary",
    "kafka.value.serializer": "cast the column value to string or binary",
}
_TOLERATED_CLIENT_KEYS: Final = {"kafka.group.id": "reads use no consumer group"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedOptions(GivenOptions):
    """The options of one read or write."""

    client: Mapping[str, str] = field(repr=False)
    """The options with the prefix `kafka.`, without it."""
    warnings: tuple[str, ...]


def parsed_options(options: Mapping[str, str], use: Use) -> ParsedOptions:
    """Checks the user's options; ConfigError for an unknown one, or for one that cannot do here what it promises."""
    values: dict[str, object] = {}
    client: dict[str, str] = {}
    warnings: list[str] = []
    for name, text in options.items():
        key = name.lower()
        if key.startswith(CLIENT_PREFIX):
            _add_client_key(key, text, client, warnings)
            continue
        if key in _OFTEN_MEANT:
            raise ConfigError(_OFTEN_MEANT[key].format(given=name))
        values[key] = OPTIONS.parse(name, text, use)
        option = OPTIONS.get(key)
        if (
            option is not None
            and option.tolerated
            and (not option.use & use or option.name == "groupIdPrefix")
        ):
            warnings.append(f"option {option.name} is ignored in {OPTIONS.spell(use)}")
    if "bootstrap.servers" not in client:
        raise ConfigError(
            'option kafka.bootstrap.servers is missing: .option("kafka.bootstrap.servers", "host:9092")'
        )
    return ParsedOptions(table=OPTIONS, values=values, client=client, warnings=tuple(warnings))


def _add_client_key(key: str, value: str, client: dict[str, str], warnings: list[str]) -> None:
    if key in _REPLACED:
        raise ConfigError(f"option {key} cannot be set: {_REPLACED[key]}")
    if key in _TOLERATED_CLIENT_KEYS:
        warnings.append(f"option {key} is ignored: {_TOLERATED_CLIENT_KEYS[key]}")
        return
    client[key.removeprefix(CLIENT_PREFIX)] = value
