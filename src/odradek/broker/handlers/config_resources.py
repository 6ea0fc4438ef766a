"""Resources with settings, and the checks and changes of their settings. Shared by the three config APIs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from odradek.broker.requests.context import BrokerContext
from odradek.cluster.documents import BROKER, RESOURCE_CONFIGS
from odradek.cluster.image import ResourceConfigs, TopicImage
from odradek.config.broker import BROKER_SETTINGS
from odradek.config.client_metrics import CLIENT_METRICS_SETTINGS, BadPattern, check_client_metrics
from odradek.config.definition import Setting
from odradek.config.group import check_group
from odradek.config.listening.strictness import loosening
from odradek.config.loading import reconfigured, without_effect
from odradek.config.topic import TOPIC_SETTINGS
from odradek.model.errors import ConfigError, ErrorCode, ErrorContent, KafkaError
from odradek.model.ids import check_topic_name
from odradek.model.lazy import lazy
from odradek.runtime.turns import Turn
from odradek.telemetry import events
from odradek.telemetry.levels import LEVELS, ROOT, loggers, set_level

if TYPE_CHECKING:
    from odradek.broker.telemetry import subscriptions
else:
    subscriptions = lazy("odradek.broker.telemetry.subscriptions")

_log = events.caused_by_peers("broker")

TOPIC: Final = 2
_NAMED_TWICE: Final = "the request names this resource more than once"
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

_SETTINGS: Final[Mapping[int, Mapping[str, Setting]]] = {
    TOPIC: TOPIC_SETTINGS,
    BROKER: BROKER_SETTINGS,
    CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}

Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs on one setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Entry(Protocol):
    """One named setting of an alter request."""

    @property
    def name(self) -> str: ...

    @property
    def value(self) -> str | None: ...


class IncrementalEntry(Entry, Protocol):
    @property
    def config_operation(self) -> int: ...


def topic_resource(broker: BrokerContext, name: str) -> TopicImage:
    check_topic_name(name)
    topic = broker.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def broker_resource(broker: BrokerContext, name: str) -> None:
    """Check that the name is this broker's id, or "" for the default of all brokers."""
    if name not in ("", str(broker.config.server.node_id)):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {name!r} is unknown here: ask for {broker.config.server.node_id}, or '' for all",
        )


def _check_known(broker: BrokerContext, name: str) -> None:
    """Check that the name is the id of a broker that lives, or holds replicas."""
    brokers = {str(node.broker_id) for node in broker.image.brokers}
    if name not in brokers and not _holds_replicas(broker, name):
        known = ", ".join(sorted(brokers))
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}: ask for one of {known}, or '' for all"
        )


def _holds_replicas(broker: BrokerContext, name: str) -> bool:
    return any(
        name in map(str, partition.replicas)
        for topic in broker.image.topics.values()
        for partition in topic.partitions
    )


def logger_resource(broker: BrokerContext, name: str) -> None:
    """Check that the name is this broker's id: loggers belong to one process."""
    if name != str(broker.config.server.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {name!r} is unknown here: the loggers belong to broker {broker.config.server.node_id}",
        )


def named_resource(kind: int, name: str) -> None:
    """Check the name of a group, or of a subscription to clients' metrics."""
    if not name:
        what = "group" if kind == GROUP else "subscription to clients' metrics"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"name a {what}: there are no settings for all of them")


def unsupported(kind: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"there are no settings of resource type {kind}: use 2 (topic), 4 (broker), 8 (loggers), "
        "16 (clients' metrics) or 32 (group)",
    )


class Resource(Protocol):
    """The resource that an alter request changes."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


async def each_once(turn: Turn, resources: Sequence[R]) -> list[tuple[R, ErrorContent | None]]:
    """Returns the resources of a request, each once, in order; those named more than once with why they are refused."""
    first: dict[tuple[int, str], tuple[R, ErrorContent | None]] = {}
    for resource in resources:
        await turn.step()
        key = (resource.resource_type, resource.resource_name)
        known = first.get(key)
        refusal = (
            None if known is None else ErrorContent(code=ErrorCode.INVALID_REQUEST, message=_NAMED_TWICE)
        )
        first[key] = (resource if known is None else known[0], refusal)
    return list(first.values())


async def alter(broker: BrokerContext, kind: int, name: str, change: Change, *, validate_only: bool) -> None:
    """Carry out a change of one resource's settings, or raise a `KafkaError` with the reason."""
    if kind == TOPIC:
        if not name:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "a topic's settings cannot be changed without its name"
            )
        await broker.controller.alter_topic_configs(name, change, validate_only=validate_only)
    elif kind == BROKER and name == "":
        await _alter_all_brokers(broker, change, validate_only=validate_only)
    elif kind == BROKER:
        _check_known(broker, name)
        own = partial(_check_broker, broker)
        await _alter_named(broker, (BROKER, name), change, own, validate_only=validate_only)
    elif kind == GROUP:
        named_resource(kind, name)
        check = partial(_check_group, broker)
        await _alter_named(broker, (GROUP, name), change, check, validate_only=validate_only)
    elif kind == CLIENT_METRICS:
        named_resource(kind, name)
        await _alter_named(
            broker, (CLIENT_METRICS, name), change, _check_client_metrics, validate_only=validate_only
        )
    else:
        raise unsupported(kind)


async def _alter_all_brokers(broker: BrokerContext, change: Change, *, validate_only: bool) -> None:
    def checked(before: Mapping[str, str]) -> Mapping[str, str]:
        after = change(before)
        _reconfigure(broker, after, broker.config.dynamic)
        return after

    await broker.controller.alter_broker_configs(checked, validate_only=validate_only)


async def _alter_named(
    broker: BrokerContext,
    resource: tuple[int, str],
    change: Change,
    check: Callable[[Mapping[str, str]], None],
    *,
    validate_only: bool,
) -> None:
    def changed(before: ResourceConfigs) -> ResourceConfigs:
        configs = change(before.get(resource, {}))
        check(configs)
        return before.with_changes({resource: configs or None})

    await broker.controller.alter(RESOURCE_CONFIGS, changed, validate_only=validate_only)


def _check_broker(broker: BrokerContext, configs: Mapping[str, str]) -> None:
    _reconfigure(broker, broker.config.dynamic_defaults, configs)


def _reconfigure(broker: BrokerContext, defaults: Mapping[str, str], own: Mapping[str, str]) -> None:
    try:
        reconfigured(broker.config, defaults, own)
        for reason in loosening(broker.config.originals, {**defaults, **own}).values():
            raise ConfigError(reason)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    present = broker.config.dynamic_defaults.keys() | broker.config.dynamic.keys()
    for key in sorted((defaults.keys() | own.keys()) - present):
        if (meaning := without_effect(key)) is not None:
            _log.warning("broker_setting_without_effect", key=key, meaning=meaning)


def _check_group(broker: BrokerContext, configs: Mapping[str, str]) -> None:
    try:
        check_group(configs, broker.config)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_client_metrics(configs: Mapping[str, str]) -> None:
    try:
        check_client_metrics(configs, subscriptions.ClientPattern)
    except BadPattern as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def alter_loggers(
    broker: BrokerContext, name: str, entries: Iterable[IncrementalEntry], *, validate_only: bool
) -> None:
    """Set and give back levels of loggers, all of them or none (KIP-412). They last until a restart, as in Kafka."""
    logger_resource(broker, name)
    present = loggers()
    levels: dict[str, str | None] = {}
    for entry in entries:
        if entry.config_operation not in (Operation.SET, Operation.DELETE):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "levels of loggers are set and deleted, nothing else")
        if entry.name not in present:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no logger {entry.name!r}")
        levels[entry.name] = _level(entry)
    if not validate_only:
        for logger, level in levels.items():
            set_level(logger, level)


def _level(entry: IncrementalEntry) -> str | None:
    if entry.config_operation == Operation.DELETE:
        if entry.name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the root logger must have a level")
        return None
    if entry.value not in LEVELS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{entry.value!r} is no level: use {', '.join(LEVELS)}")
    return entry.value


def replacing(entries: Iterable[Entry]) -> Change:
    """Applies AlterConfigs: settings that are not named go back to their defaults."""
    wanted: dict[str, str] = {}
    for entry in entries:
        if entry.value is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"setting {entry.name} has no value: leave it out to reset it"
            )
        if entry.name in wanted:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"setting {entry.name} is named twice")
        wanted[entry.name] = entry.value
    return lambda before: wanted


def incremental(entries: Iterable[IncrementalEntry], kind: int) -> Change:
    """Applies IncrementalAlterConfigs: only the named settings change."""
    entries = list(entries)
    for name, count in Counter(entry.name for entry in entries).items():
        if count > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"setting {name} is named twice")

    def change(before: Mapping[str, str]) -> Mapping[str, str]:
        after = dict(before)
        for entry in entries:
            _apply(after, entry, kind)
        return after

    return change


def _apply(configs: dict[str, str], entry: IncrementalEntry, kind: int) -> None:
    try:
        operation = Operation(entry.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"operation {entry.config_operation} is not known"
        ) from None
    if operation is Operation.DELETE:
        configs.pop(entry.name, None)
        return
    if entry.value is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"setting {entry.name} needs a value for {operation.name}"
        )
    if operation is Operation.SET:
        configs[entry.name] = entry.value
        return
    configs[entry.name] = _edited(configs, entry.name, operation, entry.value, kind)


def _edited(configs: Mapping[str, str], name: str, operation: Operation, value: str, kind: int) -> str:
    setting = _SETTINGS.get(kind, {}).get(name)
    if setting is None or not isinstance(setting.default, tuple | frozenset):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{operation.name} works on lists only, and {name} is not one"
        )
    present = configs.get(name, setting.default_text or "")
    items = [part.strip() for part in present.split(",") if part.strip()]
    parts = dict.fromkeys(part.strip() for part in value.split(",") if part.strip())
    if operation is Operation.APPEND:
        items = list(dict.fromkeys(items) | parts)
    else:
        items = [part for part in items if part not in parts]
    return ",".join(items)
