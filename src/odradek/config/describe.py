"""Settings as DescribeConfigs tells them: the value, where it comes from, and its synonyms (KIP-226).

As in Kafka, a synonym is the broker's setting of the same meaning and unit: not log.retention.hours for retention.ms, although
the value may come from there. CreateTopics does tell that source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from odradek.config.broker import BROKER_SETTINGS, UNSUPPORTED, BrokerConfig
from odradek.config.data_directory import default_data_directory
from odradek.config.definition import DynamicUpdate, Setting, SettingType
from odradek.config.listener_security import (
    dynamic_of_listener,
    is_of_listener,
    is_sensitive_of_listener,
)
from odradek.config.topic import TOPIC_ATTRIBUTES, TOPIC_SETTINGS, topic_config

_MIN_IN_SYNC: Final = "min.insync.replicas"


class ValueSource(IntEnum):
    """The source of a value; the numbers come from DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A setting that gives, or would give, a value; None for one that must not be shown."""

    key: str
    value: str | None
    source: ValueSource


_OLDER_ID: Final = "broker.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSetting:
    """One entry of an answer to DescribeConfigs. The first of `synonyms` is where the value comes from."""

    key: str
    value: str | None
    source: ValueSource
    type: SettingType
    documentation: str
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, *, older_names: bool = False
) -> list[DescribedSetting]:
    """Returns every setting of a topic that sets `overrides`, by key. Raises KafkaError as `topic_config`.

    `older_names`: log.retention.hours and its like are synonyms, too.
    """
    config = topic_config(overrides, broker)
    described = []
    for setting in _shown(TOPIC_SETTINGS):
        names = setting.synonyms if older_names else setting.synonyms[:1]
        synonyms = tuple(_of_topic(setting, overrides, broker, names))
        described.append(
            DescribedSetting(
                key=setting.key,
                value=_as_given(setting, overrides[setting.key])
                if setting.key in overrides
                else setting.text(getattr(config, TOPIC_ATTRIBUTES[setting.key])),
                source=synonyms[0].source if synonyms else ValueSource.DEFAULT,
                type=setting.type,
                documentation=_documentation(setting),
                read_only=False,
                sensitive=setting.sensitive,
                synonyms=synonyms,
            )
        )
    return described


def describe_broker(broker: BrokerConfig) -> list[DescribedSetting]:
    """Returns every setting of the broker that its owner set, or that has an effect or is a topic's default, by key.

    Its value is what was written for this very key, else its default: log.retention.ms has none where
    log.retention.hours was used. `broker.id` has the broker's actual id, which may be written as `node.id`.
    """
    given = broker.originals.keys() | broker.dynamic_defaults.keys() | broker.dynamic.keys()
    unknown = {key: settingbroker_synonyms(key) for key in given - BROKER_SETTINGS.keys()}
    described = []
    for setting in _shown(BROKER_SETTINGS | unknown, UNSUPPORTED.keys() - given):
        synonyms = tuple(broker_synonyms((setting.key,), broker))
        own = synonyms[0] if synonyms else None
        described.append(
            DescribedSetting(
                key=setting.key,
                value=str(broker.server.node_id) if setting.key == _OLDER_ID else own.value if own else None,
                source=own.source if own else ValueSource.DEFAULT,
                type=setting.type,
                documentation=_documentation(setting),
                read_only=setting.dynamic is DynamicUpdate.READ_ONLY,
                sensitive=setting.sensitive,
                synonyms=synonyms,
            )
        )
    return described


def describe_broker_defaults(broker: BrokerConfig) -> list[DescribedSetting]:
    """Returns the dynamic settings of all brokers, by key: those that were set, and `min.insync.replicas`."""
    described = []
    for key, text in sorted(_defaults_of_all(broker).items()):
        setting = settingbroker_synonyms(key)
        value = None if setting.sensitive else text
        own = Synonym(key=key, value=value, source=ValueSource.DYNAMIC_DEFAULT_BROKER)
        described.append(
            DescribedSetting(
                key=key,
                value=value,
                source=own.source,
                type=setting.type,
                documentation=_documentation(setting),
                read_only=setting.dynamic is DynamicUpdate.READ_ONLY,
                sensitive=setting.sensitive,
                synonyms=(own,),
            )
        )
    return described


def settingbroker_synonyms(key: str) -> Setting:
    """Returns a broker's setting. An unknown one may belong to a plugin and be a secret: it is never shown, as in Kafka."""
    known = BROKER_SETTINGS.get(key)
    if known is None and is_of_listener(key) and not is_sensitive_of_listener(key):
        return Setting(
            key=key,
            type=SettingType.STRING,
            default=None,
            meaning="Of one listener.",
            dynamic=dynamic_of_listener(key),
        )
    return known or Setting(
        key=key, type=SettingType.UNKNOWN, default=None, meaning="Nothing here knows it.", effective=False
    )


def broker_default(key: str) -> str | None:
    """Returns a broker setting's default as text; the default data directory depends on the user."""
    if key == "log.dir":
        return default_data_directory()
    return settingbroker_synonyms(key).default_text


def _shown(settings: Mapping[str, Setting], hidden: AbstractSet[str] = frozenset()) -> list[Setting]:
    """Returns the settings to show, sorted by key."""
    shown = (setting for setting in settings.values() if not setting.internal and setting.key not in hidden)
    return sorted(shown, key=lambda setting: setting.key)


def _documentation(setting: Setting) -> str:
    return setting.meaning if setting.effective else f"Not supported yet: no effect. {setting.meaning}"


def _of_topic(
    setting: Setting, overrides: Mapping[str, str], broker: BrokerConfig, names: tuple[str, ...]
) -> Iterator[Synonym]:
    if setting.key in overrides:
        value = _as_given(setting, overrides[setting.key])
        yield Synonym(key=setting.key, value=value, source=ValueSource.DYNAMIC_TOPIC)
    yield from broker_synonyms(names, broker)


def _as_given(setting: Setting, text: str) -> str | None:
    """Returns a value as it is read; but words stay in the order in which they were given."""
    if setting.type is SettingType.LIST:
        return ",".join(word.strip() for word in text.split(","))
    return setting.text(setting.parse(text))


def _defaults_of_all(broker: BrokerConfig) -> Mapping[str, str]:
    """Returns the dynamic settings of all brokers.

    `min.insync.replicas` is one of them from the beginning, where it decides who may lead (KIP-966): Kafka's controller
    writes there what it was started with.
    """
    if _MIN_IN_SYNC in broker.dynamic_defaults:
        return broker.dynamic_defaults
    started_with = broker.originals.get(_MIN_IN_SYNC) or broker_default(_MIN_IN_SYNC)
    return (
        broker.dynamic_defaults
        if started_with is None
        else {**broker.dynamic_defaults, _MIN_IN_SYNC: started_with}
    )


def broker_synonyms(keys: tuple[str, ...], broker: BrokerConfig) -> Iterator[Synonym]:
    """Yields synonyms, strongest first: changes on the running broker, its static configuration, defaults."""
    given = (
        (ValueSource.DYNAMIC_BROKER, broker.dynamic),
        (ValueSource.DYNAMIC_DEFAULT_BROKER, _defaults_of_all(broker)),
        (ValueSource.STATIC_BROKER, broker.originals),
        (ValueSource.DEFAULT, {key: broker_default(key) for key in keys}),
    )
    for source, values in given:
        for key in keys:
            value = values.get(key)
            if value is not None:
                hidden = settingbroker_synonyms(key).sensitive
                yield Synonym(key=key, value=None if hidden else value, source=source)
