"""Properties that SET and requests have: ones with an effect here, and ksqlDB's properties that have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Flag, StrEnum, auto
from functools import partial
from typing import Final

from odradek.config.definition import Bounds, Setting, SettingType, at_least, between
from odradek.config.options import OptionTable
from odradek.dead_letters.processing_log import (
    ROWS_INCLUDE,
    STREAM_AUTO_CREATE,
    STREAM_NAME,
    TOPIC_AUTO_CREATE,
    TOPIC_NAME,
)
from odradek.model.errors import ConfigError
from odradek.sql.language.statements import SetProperty, Statement, UnsetProperty
from odradek.sql.queries.sleeping import SleepTerms
from odradek.sql.server.refusals import BAD_STATEMENT, RestRefusal
from odradek.sql.server.topics.processing_log import STREAM_DEFAULT
from odradek.sql.server.topics.source_topics import RESET
from odradek.values.errors import nearest
from odradek.values.formats import FORMAT_NAMES

DEFAULT_FORMATS: Final = ("ksql.persistence.default.format.key", "ksql.persistence.default.format.value")


class PropertyUse(Flag):
    """The ways to set a property: by SET, not at all, or when the server starts. SHOW PROPERTIES lists all."""

    SET = auto()
    SHOW = auto()
    START = auto()


class Reset(StrEnum):
    """The record with which a query begins to read."""

    LATEST = "latest"
    EARLIEST = "earliest"


_FORMAT: Final = Bounds(
    allowed=f"one of {', '.join(FORMAT_NAMES)}", accepts=lambda name: name.upper() in FORMAT_NAMES
)
_property: Final = partial(Setting, type=SettingType.TEXT, use=PropertyUse.SET)
_read_only: Final = partial(Setting, type=SettingType.TEXT, default="", use=PropertyUse.SHOW)
PROPERTIES: Final = OptionTable(
    (
        _property(
            key=RESET,
            type=SettingType.STRING,
            choices=Reset,
            default=Reset.LATEST,
            meaning="where a query begins to read: `earliest` is the first record. It is decided when the query is created, and"
            " kept with it",
        ),
        _property(
            key=DEFAULT_FORMATS[1],
            type=SettingType.STRING,
            valid=_FORMAT,
            default="",
            default_words="none",
            meaning="the value format of statements without one",
        ),
        _property(
            key=DEFAULT_FORMATS[0],
            type=SettingType.STRING,
            valid=_FORMAT,
            default="KAFKA",
            meaning="the same for keys",
        ),
        _property(
            key="cache.max.bytes.buffering",
            default="10000000",
            effective=False,
            meaning="accepted, does nothing",
        ),
        _property(key="commit.interval.ms", default="500", effective=False, meaning="accepted, does nothing"),
        _property(
            key="processing.guarantee",
            default="exactly_once_v2",
            effective=False,
            meaning="accepted, does nothing: queries are exactly once",
        ),
        _read_only(
            key="default.deserialization.exception.handler",
            default="log and go on",
            meaning="records that cannot be read are in the processing log",
        ),
        _read_only(key="ksql.service.id", meaning="the id of the server's cluster"),
        _read_only(key="ksql.schema.registry.url", meaning="the schema registry"),
    ),
    {PropertyUse.SET: "SET", PropertyUse.SHOW: "SHOW PROPERTIES"},
    noun="property",
)
"""The server's properties that a client may ask for; those that it may set."""
SETTABLE: Final = frozenset(option.key for option in PROPERTIES.of(PropertyUse.SET))
_setting: Final = partial(Setting, use=PropertyUse.START)
SERVER_SETTINGS: Final = OptionTable(
    (
        _setting(
            key="odradek.sql.awake.queries",
            type=SettingType.INT,
            valid=at_least(0),
            default=SleepTerms().awake_count_max,
            meaning="the queries that run all the time",
        ),
        _setting(
            key="odradek.sql.sleep.after.ms",
            type=SettingType.LONG,
            valid=at_least(0),
            default=round(SleepTerms().idle_s * 1000),
            meaning="others sleep after this time without records",
        ),
        _setting(
            key="odradek.sql.tasks",
            type=SettingType.INT,
            valid=between(0, 1_000),
            default=0,
            meaning="the tasks that run at the same time; 0: two for each core",
        ),
        _setting(
            key="odradek.sql.snapshot.commands",
            type=SettingType.INT,
            valid=at_least(1),
            default=500,
            meaning="the fewest commands between two snapshots of the command topic",
        ),
        _setting(
            key="odradek.sql.python.functions",
            type=SettingType.BOOLEAN,
            default=False,
            meaning="whether users may make functions, which run with the rights of the server",
        ),
        _setting(
            key="odradek.sql.archive.endpoints",
            type=SettingType.LIST,
            valid=Bounds(
                allowed="each a URL such as https://s3.example.org:9000",
                accepts=lambda urls: all(url.startswith(("http://", "https://")) for url in urls if url),
            ),
            default=(),
            meaning="the stores of archives that statements may name, in addition to AWS and the one of the server's"
            " environment",
        ),
        _setting(
            key=TOPIC_AUTO_CREATE,
            type=SettingType.BOOLEAN,
            default=True,
            meaning="make the topic, with one partition; the server needs the right to, and to write to it and to read it."
            " Without a topic the log is off",
        ),
        _setting(
            key=TOPIC_NAME,
            type=SettingType.STRING,
            default=None,
            default_words="`<service id>_ksql_processing_log`",
            meaning="the topic of the processing log",
        ),
        _setting(
            key=STREAM_AUTO_CREATE,
            type=SettingType.BOOLEAN,
            default=True,
            meaning="make the stream when the server starts and has none",
        ),
        _setting(
            key=STREAM_NAME,
            type=SettingType.STRING,
            default=STREAM_DEFAULT,
            meaning="the stream of the processing log",
        ),
        _setting(
            key=ROWS_INCLUDE,
            type=SettingType.BOOLEAN,
            default=False,
            meaning="entries have the bytes of the key or value, in base 64: everyone who may read the log sees them then",
        ),
    ),
    {PropertyUse.START: "odradek sql serve"},
    noun="setting",
)
"""What `odradek sql serve --set` takes."""
_NONE: Final = """
acceptable.recovery.lag buffered.records.per.partition client.id default.client.supplier default.dsl.store
default.production.exception.handler default.timestamp.extractor max.task.idle.ms max.warmup.replicas
metadata.max.age.ms metrics.num.samples metrics.recording.level metrics.sample.window.ms num.standby.replicas
num.stream.threads poll.ms probing.rebalance.interval.ms rack.aware.assignment.strategy receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms replication.factor request.timeout.ms retries retry.backoff.ms
rocksdb.config.setter send.buffer.bytes state.cleanup.delay.ms state.dir statestore.cache.max.bytes task.timeout.ms
topology.optimization upgrade.from window.size.ms windowstore.changelog.additional.retention.ms
enable.auto.commit fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.instance.id heartbeat.interval.ms
isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records session.timeout.ms
acks batch.size buffer.memory compression.type delivery.timeout.ms enable.idempotence linger.ms max.block.ms
max.in.flight.requests.per.connection max.request.size transaction.timeout.ms
ksql.any.key.name.enabled ksql.cast.strings.preserve.nulls ksql.create.or.replace.enabled ksql.execution.parallelism
ksql.fail.on.deserialization.error ksql.fail.on.production.error ksql.functions.collect_list.limit
ksql.functions.collect_set.limit ksql.headers.columns.enabled ksql.internal.topic.min.insync.replicas
ksql.internal.topic.replicas ksql.lambdas.enabled ksql.metastore.backup.location ksql.multicol.key.format.enabled
ksql.nested.error.set.null ksql.output.topic.name.prefix ksql.persistence.wrap.single.values
ksql.properties.overrides.denylist ksql.query.cleanup.shutdown.timeout.ms ksql.query.error.max.queue.size
ksql.query.persistent.active.limit ksql.query.persistent.max.bytes.buffering.total ksql.query.pull.consistency.token.enabled
ksql.query.pull.enable.standby.reads ksql.query.pull.interpreter.enabled ksql.query.pull.limit.clause.enabled
ksql.query.pull.max.allowed.offset.lag ksql.query.pull.max.concurrent.requests ksql.query.pull.max.qps
ksql.query.pull.metrics.enabled ksql.query.pull.range.scan.enabled ksql.query.pull.stream.enabled
ksql.query.pull.table.scan.enabled ksql.query.push.v2.alos.enabled ksql.query.push.v2.continuation.tokens.enabled
ksql.query.push.v2.enabled ksql.query.push.v2.interpreter.enabled ksql.query.push.v2.latest.reset.age.ms
ksql.query.push.v2.new.latest.delay.ms ksql.query.push.v2.registry.installed ksql.query.retry.backoff.initial.ms
ksql.query.retry.backoff.max.ms ksql.query.transient.max.bytes.buffering.total ksql.queryanonymizer.logs_enabled
ksql.readonly.topics ksql.rowpartition.rowoffset.enabled ksql.runtime.feature.shared.enabled ksql.shared.runtimes.count
ksql.sink.partitions ksql.sink.replicas ksql.source.table.materialization.enabled ksql.statestore.cache.max.bytes.buffering
ksql.suppress.buffer.size.bytes ksql.suppress.enabled ksql.timestamp.throw.on.invalid ksql.transient.prefix
ksql.udf.collect.metrics ksql.udfs.enabled ksql.variable.substitution.enable ksql.websocket.connection.max.timeout.ms
ksql.windowed.session.key.legacy
"""
WITHOUT_EFFECT: Final = frozenset(_NONE.split())
"""Properties of ksqlDB, Kafka Streams and Kafka's clients. They are taken, with a note."""
_PREFIXES: Final = (
    "ksql.streams.",
    "consumer.",
    "producer.",
    "main.consumer.",
    "restore.consumer.",
    "admin.",
    "topic.",
)


def plain_property(name: str) -> str:
    """Returns the name without the prefixes that ksqlDB allows."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def is_known(name: str) -> bool:
    """Tells whether a property may be set, with or without effect."""
    return plain_property(name) in SETTABLE | WITHOUT_EFFECT


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns plain names. Raises RestRefusal for one that does not exist, or a value that it cannot have."""
    plain = {plain_property(name): str(value) for name, value in properties.items()}
    checked: dict[str, str] = {}
    for name, value in plain.items():
        if not is_known(name):
            hint = nearest(name, SETTABLE | WITHOUT_EFFECT) or f"There are {', '.join(sorted(SETTABLE))}."
            raise RestRefusal(BAD_STATEMENT, f"{name} is no property that can be set. {hint}")
        option = PROPERTIES.get(name)
        try:
            checked[name] = value if option is None else str(option.parse(value, name))
        except ConfigError as error:
            raise RestRefusal(BAD_STATEMENT, str(error)) from None
    return checked


def notes(properties: Mapping[str, str]) -> Iterator[str]:
    """Yields a line for each property that changes nothing."""
    for name in sorted(WITHOUT_EFFECT & properties.keys()):
        yield f"{name} has no effect here."


def with_settings(properties: dict[str, str], statement: Statement) -> dict[str, str]:
    """Applies SET and UNSET to the later statements of the same request."""
    match statement:
        case SetProperty(name=name, value=value):
            return {**properties, **checked_properties({name: value})}
        case UnsetProperty(name=name):
            return {known: value for known, value in properties.items() if known != plain_property(name)}
    return properties
