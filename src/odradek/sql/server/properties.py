"""Properties that SET and requests have: those with an effect here, and those of ksqlDB that have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.sql.language.statements import SetProperty, Statement, UnsetProperty
from odradek.sql.server.refusals import BAD_STATEMENT, RestRefusal
from odradek.sql.server.topics.source_topics import RESET
from odradek.values.errors import nearest
from odradek.values.formats import FORMAT_NAMES

PROPERTIES: Final = {
    RESET: "latest",
    "cache.max.bytes.buffering": "10000000",
    "commit.interval.ms": "500",
    "default.deserialization.exception.handler": "log and go on",
    "ksql.persistence.default.format.key": "KAFKA",
    "ksql.persistence.default.format.value": "",
    "ksql.service.id": "",
    "ksql.schema.registry.url": "",
    "processing.guarantee": "exactly_once_v2",
}
"""The server's properties that a client may ask for."""
DEFAULT_FORMATS: Final = ("ksql.persistence.default.format.key", "ksql.persistence.default.format.value")
SETTABLE: Final = frozenset(
    {RESET, "cache.max.bytes.buffering", "commit.interval.ms", "processing.guarantee", *DEFAULT_FORMATS}
)
"""Only `auto.offset.reset` and the default formats change what a statement does."""
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
    for name, value in plain.items():
        if not is_known(name):
            hint = nearest(name, SETTABLE | WITHOUT_EFFECT) or f"There are {', '.join(sorted(SETTABLE))}."
            raise RestRefusal(BAD_STATEMENT, f"{name} is no property that can be set. {hint}")
        if name == RESET and value.lower() not in ("earliest", "latest"):
            raise RestRefusal(BAD_STATEMENT, f"auto.offset.reset is earliest or latest, not {value!r}")
        if name in DEFAULT_FORMATS and value.upper() not in FORMAT_NAMES:
            raise RestRefusal(BAD_STATEMENT, f"{name} is one of {', '.join(FORMAT_NAMES)}, not {value!r}")
    return {name: value.lower() if name == RESET else value for name, value in plain.items()}


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
