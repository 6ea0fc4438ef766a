"""Every option of `format("odradek")`: its name as Spark's Kafka connector spells it, where it applies, what it means.

Spark hands options over with their names in lower case, so they are looked up without regard to case. The tables of
`docs/spark.md` are written from these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto
from functools import partial
from typing import Final

from odradek.config.definition import Setting, SettingType, at_least
from odradek.config.options import GivenOptions, OptionTable
from odradek.model.errors import ConfigError


class Use(Flag):
    """The operations to which an option can be given."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    STREAM = STREAM_READ | STREAM_WRITE
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


_text: Final = partial(Setting, type=SettingType.TEXT, default=None)
_flag: Final = partial(Setting, type=SettingType.BOOLEAN, default=False)
_whole: Final = partial(Setting, type=SettingType.LONG, default=None, valid=at_least(0))
_count: Final = partial(Setting, type=SettingType.LONG, default=None, valid=at_least(1))
_choice: Final = partial(Setting, type=SettingType.STRING)
_BINARY: Final = "`utf8`: a string; `json`: a struct (see below)"
_DDL: Final = "for `json`: fields as DDL, such as `id BIGINT, tags ARRAY<STRING>`"
_FORMAT: Final = "set by SQL: the format of records that the source reads as structs, or the sink writes"
_STORE: Final = "where the archive's store or Iceberg catalog is"

# fmt: off
_ROWS: Final = (
    _text(key="subscribe", use=Use.READ, meaning="topics, separated by commas"),
    _text(key="subscribePattern", use=Use.READ, meaning=
        "regular expression that a topic's whole name must match; new topics join by themselves"),
    _text(key="assign", use=Use.READ, meaning='partitions: `{"flights": [0, 1]}`'),
    _text(key="startingOffsets", use=Use.READ, default_words="batch: `earliest`, stream: `latest`", meaning=
        "or `group:NAME`: the committed offsets of a consumer group; or JSON for every partition,"
        ' `{"flights": {"0": 23, "1": -2}}`; -2 earliest, -1 latest'),
    _whole(key="startingTimestamp", use=Use.READ, meaning="milliseconds since 1970: the first record at or after it"),
    _text(key="startingOffsetsByTimestamp", use=Use.READ, meaning="the same for each partition, as JSON"),
    _choice(key="startingOffsetsByTimestampStrategy", use=Use.READ, choices=NoNewerRecord, default=NoNewerRecord.ERROR,
        meaning="or `latest`: what to do in partitions with no record that new"),
    _text(key="endingOffsets", use=Use.BATCH_READ, default_words="`latest`", meaning=
        "where to stop: `latest`, or JSON; -1 latest"),
    _whole(key="endingTimestamp", use=Use.BATCH_READ, meaning=
        "milliseconds since 1970: where to stop, before the first record at or after it"),
    _text(key="endingOffsetsByTimestamp", use=Use.BATCH_READ, meaning="the same for each partition, as JSON"),
    _flag(key="failOnDataLoss", use=Use.ALL, default=True, meaning=
        "`false`: warn and go on when records were lost before they were read; exactly once: when a decided batch timed out"),
    _count(key="maxOffsetsPerTrigger", use=Use.STREAM_READ, tolerated=True, meaning=
        "records per micro-batch, at most, fairly shared among partitions"),
    _count(key="minOffsetsPerTrigger", use=Use.STREAM_READ, tolerated=True, meaning=
        "wait for this many records, but no longer than `maxTriggerDelay`"),
    Setting(key="maxTriggerDelay", use=Use.STREAM_READ, type=SettingType.DURATION, default=900_000, tolerated=True, meaning=
        "how long to wait for `minOffsetsPerTrigger` records"),
    _count(key="minPartitions", use=Use.READ, meaning="at least this many Spark partitions: large ranges are cut"),
    _count(key="maxPartitions", use=Use.READ, meaning=
        "at most this many: one task reads several of the topic's partitions. Saves about 20 ms a task in small batches"),
    _count(key="maxRecordsPerPartition", use=Use.READ, meaning="at most this many records in one Spark partition"),
    _flag(key="includeHeaders", use=Use.ALL, meaning="read: add the column `headers`; write: accepted, does nothing"),
    _text(key="columns", use=Use.READ, default_words="all", meaning=
        "such as `key,value`: the others are never built, which is faster"),
    _choice(key="keyDecode", use=Use.READ, choices=Decoding, default=Decoding.BINARY, meaning=_BINARY),
    _choice(key="valueDecode", use=Use.READ, choices=Decoding, default=Decoding.BINARY, meaning=_BINARY),
    _text(key="keySchema", use=Use.READ, meaning=_DDL),
    _text(key="valueSchema", use=Use.READ, meaning=_DDL),
    _text(key="keyFormat", use=Use.READ | Use.STREAM_WRITE, meaning=_FORMAT),
    _text(key="valueFormat", use=Use.READ | Use.STREAM_WRITE, meaning=_FORMAT),
    _choice(key="decodeErrors", use=Use.READ, choices=OnDecodeError, default=OnDecodeError.FAIL, meaning=
        "`null`: what cannot be decoded becomes null; `dead-letter`: it is kept ([below](#bad-records))"),
    _flag(key="includeRecord", use=Use.READ, meaning=
        "add the column `record`: key, value and headers as they were read, in addition to what is decoded"),
    _flag(key="filterPushdown", use=Use.BATCH_READ, meaning=
        "`true` reads only what the query's filters need ([filters](#filters), and their catch)"),
    _choice(key="keyPartitioner", use=Use.READ, choices=KeyPartitioner, default=KeyPartitioner.UNKNOWN, meaning=
        "`murmur2`: records are where Kafka's own clients put their key, so a filter on `key` reads one partition"
        " ([filters](#filters))"),
    _whole(key="fetchOffset.numRetries", use=Use.READ, default=3, meaning="how often to ask again for offsets that look wrong"),
    _whole(key="fetchOffset.retryIntervalMs", use=Use.READ, default=10, meaning="and how long to wait before that"),
    _count(key="kafkaConsumer.pollTimeoutMs", use=Use.READ, default=120_000, meaning=
        "how long a task waits for its next records"),
    _whole(key="offsetPollIntervalMs", use=Use.STREAM_READ, default=50, meaning=
        "how often an idle stream asks for new offsets; for a quarter of a second after records it asks more often"),
    _whole(key="idleWaitMs", use=Use.STREAM_READ, default=0, meaning=
        "a stream that has read everything waits for records for so long in place of looking at each trigger. All that wait in"
        " one process ask for offsets together, five times a second. Not where a program counts on its triggers, as timers of"
        " the wall clock do"),
    _text(key="idleWaitQuery", use=Use.STREAM_READ, meaning=
        "a name that all sources of one query share: while one of them has something to read, the others do not wait"),
    _whole(key="triggerWaitMs", use=Use.STREAM_READ, default=0, meaning=
        "a stream that has read everything waits for records for so long within a trigger, so that a batch begins when they"
        " come; less than the trigger's interval. One source of a query waits for all. Not where a program counts on triggers"),
    _text(key="triggerWaitTopics", use=Use.STREAM_READ, meaning=
        "topics of other sources of the query, separated by commas: their records end the wait, too"),
    _text(key="taskRows", use=Use.STREAM_READ, meaning="set by streams programs: how records become rows of their tasks"),
    _whole(key="partitionDiscoveryIntervalMs", use=Use.STREAM_READ, default=1_000, meaning=
        "how often it looks for new partitions and topics"),
    _text(key="archive", use=Use.READ, meaning=
        "an archive of the topics: what they no longer hold is read there"
        " ([read-through](archive.md#topic-and-archive-as-one-table))"),
    _text(key="archiveEndpoint", use=Use.READ, meaning=_STORE),
    _text(key="archiveRegion", use=Use.READ, meaning=_STORE),
    _text(key="archiveCatalog", use=Use.READ, meaning=_STORE),
    _text(key="groupIdPrefix", use=Use.READ, tolerated=True, meaning="accepted, does nothing: reads use no consumer group"),
    _text(key="topic", use=Use.WRITE, meaning="the topic of all rows; without it, the column `topic`"),
    _text(key="outputSuffix", use=Use.WRITE, meaning=
        "what the names of all written topics, of the sink and of `publishOffsets` end in: a second output next to the first,"
        " as `pipeline upgrade --mode rebuild` makes"),
    _text(key="deadLetterTopic", use=Use.WRITE, meaning="where rows with a `deadLetter` go ([below](#bad-records))"),
    _text(key="tracingEndpoint", use=Use.WRITE, meaning=
        "`http://HOST:4318` of an OpenTelemetry collector, which gets the spans `batch` and `sink` of rows whose column"
        " `headers` has a sampled `traceparent` ([traces](tracing.md)); needs `odradek[otel]` on the workers"),
    _text(key="leftOutLog", use=Use.WRITE, meaning=
        "set by SQL: where rows that a query leaves out are noted"
        " ([processing log](sql.md#records-that-cannot-be-read))"),
    _text(key="packedRows", use=Use.STREAM_WRITE, meaning=
        "set by streams programs: what the columns are of rows that come packed"),
    _choice(key="delivery", use=Use.WRITE, choices=DeliveryGuarantee, default=DeliveryGuarantee.AT_LEAST_ONCE, meaning=
        "or `exactly_once` (see below)"),
    _flag(key="deliveryHeaders", use=Use.WRITE, default=None, default_words="stream at least once: `true`, else `false`",
        meaning="mark records for `deduplicate`"),
    _text(key="sinkId", use=Use.WRITE | Use.STREAM_READ, default_words="write: the query's name", meaning=
        "exactly once: a name of this output, the same from run to run; read: the sink whose last decision `resume` takes"),
    _text(key="idempotenceKey", use=Use.BATCH_WRITE, meaning=
        "exactly once: a write with the sink's last key is not done again"),
    _flag(key="takeOver", use=Use.WRITE, meaning="exactly once: go on after another query's decision, or without any"),
    _flag(key="resume", use=Use.STREAM, meaning=
        "read: without a checkpoint, go on from the last decision of an exactly-once sink ([below](#without-its-checkpoint));"
        " write: go on after another query's decision if this one begins where that one ended"),
    _text(key="publishOffsets", use=Use.STREAM, meaning=
        "a consumer group whose offsets show what the query has read ([lag](#lag)); of an exactly-once query, give it to the"
        " write, else to the read"),
    _text(key="checkpointLocation", use=Use.ALL, meaning="Spark's own"),
    _text(key="queryName", use=Use.STREAM_WRITE, meaning="Spark's own"),
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
        assert option is not None
        if option.tolerated and (option not in OPTIONS.of(use) or option.key == "groupIdPrefix"):
            warnings.append(f"option {option.key} is ignored in {OPTIONS.spell(use)}")
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
