"""The settings of topics. Topics that set the same share theirs, and a topic's partitions come in a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.config.topic import LogConfig, topic_config

KEPT_MAX: Final = 1000
KEPT_CHARACTERS_MAX: Final = 1 << 20
"""Keys and values of the settings that are kept may have about as many characters: a list of throttled replicas may be long,
and each change of it is another one."""


class TopicConfigs:
    """Settings of topics that were worked out before, of those that are used and of some that were."""

    __slots__ = ("_broker", "_kept", "_kept_characters")

    def __init__(self) -> None:
        self._broker: BrokerConfig | None = None
        """The broker's settings, which those that are kept inherit from."""
        self._kept: dict[frozenset[tuple[str, str]], LogConfig] = {}
        self._kept_characters = 0

    def of(self, own: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
        """Returns the settings of a topic that sets `own` itself."""
        if broker is not self._broker:
            self._forget()
            self._broker = broker
        key = frozenset(own.items())
        config = self._kept.get(key)
        if config is None:
            if len(self._kept) >= KEPT_MAX or self._kept_characters >= KEPT_CHARACTERS_MAX:
                self._forget()
            config = self._kept[key] = topic_config(own, broker)
            self._kept_characters += sum([len(name) + len(value) for name, value in key])
        return config

    def _forget(self) -> None:
        self._kept.clear()
        self._kept_characters = 0
