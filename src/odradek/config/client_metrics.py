"""Subscriptions to clients' metrics (KIP-714): which metrics a broker would have clients push.

They are kept and described as Kafka keeps them. The broker itself is the receiver of what clients push.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.config.definition import DynamicUpdate, Setting, SettingType, between
from odradek.config.describe import DescribedSetting, Synonym, ValueSource
from odradek.model.errors import ConfigError, OdradekError

CLIENT_METRICS_SETTINGS: Final = {
    setting.key: setting
    for setting in (
        Setting(
            key="interval.ms",
            type=SettingType.INT,
            default=300_000,
            meaning="How often clients push, in milliseconds.",
            valid=between(100, 3_600_000),
            dynamic=DynamicUpdate.CLUSTER_WIDE,
        ),
        Setting(
            key="match",
            type=SettingType.LIST,
            default=(),
            meaning="Which clients: NAME=PATTERN of their properties, separated by commas. Nothing: all of them.",
            dynamic=DynamicUpdate.CLUSTER_WIDE,
        ),
        Setting(
            key="metrics",
            type=SettingType.LIST,
            default=(),
            meaning="Which metrics: beginnings of their names, separated by commas. '*': all of them.",
            dynamic=DynamicUpdate.CLUSTER_WIDE,
        ),
    )
}
_SELECTORS: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class BadPattern(ConfigError):
    """A pattern for clients that cannot be."""


def check_client_metrics(overrides: Mapping[str, str], compiled: Callable[[str], object]) -> None:
    """Raises ConfigError unless every override is known and well-formed; `BadPattern` for what clients to match.

    `compiled` reads a regular expression, and raises an OdradekError for one that cannot be.
    """
    for key, text in overrides.items():
        setting = CLIENT_METRICS_SETTINGS.get(key)
        if setting is None:
            raise ConfigError(f"Unknown client metrics configuration: {key}")
        value = setting.parse(text)
        if key == "match":
            for pair in value:
                _, pattern = pattern_of(pair)
                try:
                    compiled(pattern)
                except OdradekError as error:
                    raise BadPattern(f"{pair!r} does not match clients: {error}") from error


def pattern_of(pair: str) -> tuple[str, str]:
    """Returns the property and the regular expression of `NAME=PATTERN`."""
    name, equals, pattern = pair.partition("=")
    if not equals or name.strip() not in _SELECTORS:
        raise BadPattern(
            f"{pair!r} does not match clients: expected NAME=PATTERN with one of {sorted(_SELECTORS)}"
        )
    return name.strip(), pattern.strip()


def describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedSetting]:
    """Returns every setting of a subscription, by key."""
    described = []
    for setting in CLIENT_METRICS_SETTINGS.values():
        value = overrides.get(setting.key)
        own = Synonym(key=setting.key, value=value, source=ValueSource.CLIENT_METRICS)
        described.append(
            DescribedSetting(
                key=setting.key,
                value=setting.default_text if value is None else value,
                source=ValueSource.DEFAULT if value is None else ValueSource.CLIENT_METRICS,
                type=setting.type,
                documentation=setting.meaning,
                read_only=False,
                sensitive=False,
                synonyms=() if value is None else (own,),
            )
        )
    return described
