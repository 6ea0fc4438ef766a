"""The settings of single groups (KIP-848, KIP-932): dynamic overrides of what the broker gives to every group.

`GROUP_SETTINGS` has each key and the broker setting with its default. A group's value is between the broker's
own minimum and maximum, if there are any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.config.broker import BROKER_PATHS, BrokerConfig, value_of
from odradek.config.definition import Bounds, DynamicUpdate, Setting, SettingType, at_least, one_of
from odradek.config.describe import DescribedSetting, Synonym, ValueSource, broker_synonyms
from odradek.model.durations import by_duration_ms
from odradek.model.errors import ConfigError, KafkaError
from odradek.model.ids import check_topic_name


def is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


INT, LONG, STRING, BOOLEAN = SettingType.INT, SettingType.LONG, SettingType.STRING, SettingType.BOOLEAN
_TAG_KEYS: Final = Bounds(
    allowed="the keys of client tags, all different",
    accepts=lambda keys: all(keys) and len(set(keys)) == len(keys),
)
_OFFSET_RESET: Final = Bounds(
    allowed="earliest, latest or by_duration:PnDTnHnMn.nS",
    accepts=lambda text: text in ("earliest", "latest") or by_duration_ms(text) is not None,
)
_DEAD_LETTER_TOPIC: Final = Bounds(
    allowed="the name of a topic that is not internal, or nothing",
    accepts=lambda name: not name or (is_topic_name(name) and not name.startswith("__")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """A group's setting and the broker's settings for its default and its bounds."""

    setting: Setting
    broker_key: str | None
    """The key of the value for groups that set nothing themselves."""
    least: tuple[str, int] | None = None
    """The broker's setting for the least value, and Kafka's default of it."""
    most: tuple[str, int] | None = None


def _family(
    key: str,
    type_: SettingType,
    default: object,
    meaning: str,
    valid: Bounds | None = None,
    *,
    least: int | None = None,
    most: int | None = None,
    shared: bool = True,
    internal: bool = False,
) -> _Family:
    kind, _, rest = key.partition(".")
    limit = rest.removesuffix(".limit") + ".limit" if rest.endswith(".limit") else rest
    return _Family(
        setting=Setting(
            key=key,
            type=type_,
            default=default,
            meaning=meaning,
            valid=valid,
            dynamic=DynamicUpdate.CLUSTER_WIDE,
            internal=internal,
        ),
        broker_key=f"group.{key}" if shared else None,
        least=None if least is None else (f"group.{kind}.min.{limit}", least),
        most=None if most is None else (f"group.{kind}.max.{limit}", most),
    )


_ASSIGNMENT: Final = "The time between two assignments of this group, in milliseconds."
_HEARTBEAT: Final = "How often members of this group must send heartbeats, in milliseconds."
_SESSION: Final = "After this long without a heartbeat, in milliseconds, a member is taken for dead."

_FAMILIES: Final = (
    _family(
        "errors.deadletterqueue.copy.record.enable",
        BOOLEAN,
        False,
        "Whether the group's dead letters have the key and the value of the records that were given up (KIP-1191).",
        shared=False,
    ),
    _family(
        "errors.deadletterqueue.topic.name",
        STRING,
        "",
        "The topic for records that this share group rejects, or delivers too often (KIP-1191); empty: they are dropped. It "
        "must exist, and have errors.deadletterqueue.group.enable=true.",
        _DEAD_LETTER_TOPIC,
        shared=False,
    ),
    _family("consumer.assignment.interval.ms", INT, 1000, _ASSIGNMENT, at_least(0), least=0, most=15_000),
    _family("consumer.heartbeat.interval.ms", INT, 5000, _HEARTBEAT, at_least(1), least=5000, most=15_000),
    _family("consumer.session.timeout.ms", INT, 45_000, _SESSION, at_least(1), least=45_000, most=60_000),
    _family("share.assignment.interval.ms", INT, 1000, _ASSIGNMENT, at_least(0), least=0, most=15_000),
    _family(
        "share.auto.offset.reset",
        STRING,
        "latest",
        "Where the group begins in a partition that it has not read yet.",
        _OFFSET_RESET,
        shared=False,
    ),
    _family(
        "share.delivery.count.limit",
        INT,
        5,
        "How often a record is delivered at the most.",
        at_least(2),
        least=2,
        most=10,
    ),
    _family("share.heartbeat.interval.ms", INT, 5000, _HEARTBEAT, at_least(1), least=5000, most=15_000),
    _family(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        "Whether records of transactions are delivered before these are committed.",
        one_of("read_committed", "read_uncommitted"),
        shared=False,
    ),
    _family(
        "share.partition.max.record.locks",
        INT,
        2000,
        "How many records of one partition may be locked at once.",
        at_least(100),
        least=100,
        most=10_000,
    ),
    _family(
        "share.record.lock.duration.ms",
        INT,
        30_000,
        "For how long, in milliseconds, a record is locked for the consumer that got it.",
        at_least(1000),
        least=15_000,
        most=60_000,
    ),
    _family(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        True,
        "Whether consumers of this group may renew their locks.",
        shared=False,
    ),
    _family("share.session.timeout.ms", INT, 45_000, _SESSION, at_least(1), least=45_000, most=60_000),
    _family("streams.assignment.interval.ms", INT, 1000, _ASSIGNMENT, at_least(0), least=0, most=15_000),
    _family("streams.heartbeat.interval.ms", INT, 5000, _HEARTBEAT, at_least(1), least=5000, most=15_000),
    _family(
        "streams.initial.rebalance.delay.ms",
        INT,
        3000,
        "How long a new group waits for more members before its first assignment, in milliseconds.",
        at_least(0),
    ),
    _Family(
        setting=Setting(
            key="streams.assignor.name",
            type=STRING,
            default="sticky",
            meaning="The assignor that shares out the tasks; by default the first of the broker's group.streams.assignors.",
            valid=one_of("sticky"),
            dynamic=DynamicUpdate.CLUSTER_WIDE,
        ),
        broker_key="group.streams.assignors",
    ),
    _Family(
        setting=Setting(
            key="streams.num.standby.replicas",
            type=INT,
            default=0,
            meaning="How many standby copies each task has.",
            valid=at_least(0),
            dynamic=DynamicUpdate.CLUSTER_WIDE,
        ),
        broker_key="group.streams.num.standby.replicas",
        most=("group.streams.max.standby.replicas", 2),
    ),
    _family(
        "streams.acceptable.recovery.lag",
        LONG,
        10_000,
        "How many records a copy of a task's state may lack to count as complete.",
        at_least(0),
        internal=True,
    ),
    _family(
        "streams.rack.aware.assignment.tags",
        SettingType.LIST,
        (),
        "Keys of client tags: the standby tasks of a task go to processes whose values differ, the first key before the "
        "others.",
        _TAG_KEYS,
    ),
    _family(
        "streams.task.offset.interval.ms",
        INT,
        60_000,
        "How often members report how far they have restored the state of their tasks, in milliseconds.",
        at_least(1),
        least=15_000,
        internal=True,
    ),
    _family("streams.session.timeout.ms", INT, 45_000, _SESSION, at_least(1), least=45_000, most=60_000),
)

GROUP_SETTINGS: Final[dict[str, Setting]] = {family.setting.key: family.setting for family in _FAMILIES}
_BY_KEY: Final = {family.setting.key: family for family in _FAMILIES}
_ORDERED: Final = ("consumer", "share", "streams")


def broker_key_of(key: str) -> str | None:
    """Returns the broker's setting that a group's setting overrides; None where the broker has none."""
    return _BY_KEY[key].broker_key


def group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Any]:
    """Returns the value of every setting of a group that sets `overrides`, by key. They were checked when they were set."""
    return {
        family.setting.key: family.setting.parse(overrides[family.setting.key])
        if family.setting.key in overrides
        else _inherited(family, broker)
        for family in _FAMILIES
    }


def check_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raises ConfigError unless every override is known, well-formed, and within what the broker allows."""
    for key, text in overrides.items():
        family = _BY_KEY.get(key)
        if family is None:
            raise ConfigError(f"Unknown group config name: {key}")
        value = family.setting.parse(text)
        _check_bound(key, value, family.least, broker, above=True)
        _check_bound(key, value, family.most, broker, above=False)
    values = group_config(overrides, broker)
    for kind in _ORDERED:
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if (heartbeat in overrides or session in overrides) and values[heartbeat] >= values[session]:
            raise ConfigError(
                f"{session}={values[session]} must be greater than {heartbeat}={values[heartbeat]}"
            )


def _check_bound(
    key: str, value: int, bound: tuple[str, int] | None, broker: BrokerConfig, *, above: bool
) -> None:
    if bound is None:
        return
    broker_key, default = bound
    limit = _broker_value(broker_key, broker, default)
    if value < limit if above else value > limit:
        word = "at least" if above else "at most"
        raise ConfigError(f"{key}={value} is not allowed: {broker_key}={limit} says {word} so much")


def _inherited(family: _Family, broker: BrokerConfig) -> Any:
    if family.broker_key is None:
        return family.setting.default
    value = _broker_value(family.broker_key, broker, family.setting.default)
    is_choice = isinstance(value, tuple) and family.setting.type is STRING
    return value[0] if is_choice else value


def _broker_value(key: str, broker: BrokerConfig, default: Any) -> Any:
    return value_of(broker, key) if key in BROKER_PATHS else default


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedSetting]:
    """Returns every setting of a group, by key. Internal ones are left out unless they are set, as in Kafka."""
    described = []
    for family in _FAMILIES:
        if family.setting.internal and family.setting.key not in overrides:
            continue
        setting, inherited = family.setting, _inherited(family, broker)
        synonyms = []
        if setting.key in overrides:
            synonyms.append(Synonym(key=setting.key, value=overrides[setting.key], source=ValueSource.GROUP))
        of_broker = list(broker_synonyms((family.broker_key,), broker)) if family.broker_key else []
        default = Synonym(
            key=family.broker_key or setting.key, value=setting.text(inherited), source=ValueSource.DEFAULT
        )
        synonyms += of_broker or [default]
        described.append(
            DescribedSetting(
                key=setting.key,
                value=synonyms[0].value,
                source=synonyms[0].source,
                type=setting.type,
                documentation=setting.meaning,
                read_only=False,
                sensitive=False,
                synonyms=tuple(synonyms),
            )
        )
    return described
