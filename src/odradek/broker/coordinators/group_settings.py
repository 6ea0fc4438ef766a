"""The settings of each group: the broker's, and what the group has of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from odradek.cluster.image import ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.groups.shard.settings import NO_OWN_SETTINGS

S = TypeVar("S")
_GROUP: Final = 32
"""The type of resource (KIP-1043) that a group's own settings are cached under."""


class SettingsByGroup(Generic[S]):
    """A cache of each group's settings. An entry is computed again when the broker's settings, or the group's, have changed."""

    __slots__ = ("_cache", "_config", "_config_used", "_default", "_image", "_of")

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        of: Callable[[BrokerConfig, Mapping[str, str]], S],
    ) -> None:
        self._config = config
        self._image = image
        self._of = of
        self._config_used = config()
        self._default = of(self._config_used, NO_OWN_SETTINGS)
        self._cache: dict[str, tuple[Mapping[str, str], S]] = {}
        """The settings of groups that have settings of their own, with what they were made from."""

    def __call__(self, group_id: str) -> S:
        config = self._config()
        if config is not self._config_used:
            self._config_used, self._default = config, self._of(config, NO_OWN_SETTINGS)
            self._cache.clear()
        own = self._image().resource_configs.get((_GROUP, group_id))
        if own is None:
            self._cache.pop(group_id, None)
            return self._default
        cached = self._cache.get(group_id)
        if cached is None or cached[0] is not own:
            cached = self._cache[group_id] = own, self._of(config, own)
        return cached[1]
