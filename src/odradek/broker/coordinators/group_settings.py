"""The settings of each group: the broker's, and what the group has of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from odradek.cluster.image import ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.groups.shard.settings import NO_OWN_SETTINGS

S = TypeVar("S")
_GROUP: Final = 32
"""The type of resource (KIP-1043) that a group's own settings are kept under."""


class SettingsByGroup(Generic[S]):
    """A cache of each group's settings. An entry is computed again when the broker's settings, or the group's, have changed."""

    __slots__ = ("_config", "_default", "_image", "_kept", "_made_from", "_of")

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        image: Callable[[], ClusterImage],
        of: Callable[[BrokerConfig, Mapping[str, str]], S],
    ) -> None:
        self._config = config
        self._image = image
        self._of = of
        self._made_from = config()
        self._default = of(self._made_from, NO_OWN_SETTINGS)
        self._kept: dict[str, tuple[Mapping[str, str], S]] = {}
        """The settings of groups that have settings of their own, with what they were made from."""

    def __call__(self, group_id: str) -> S:
        config = self._config()
        if config is not self._made_from:
            self._made_from, self._default = config, self._of(config, NO_OWN_SETTINGS)
            self._kept.clear()
        own = self._image().resource_configs.get((_GROUP, group_id))
        if own is None:
            self._kept.pop(group_id, None)
            return self._default
        kept = self._kept.get(group_id)
        if kept is None or kept[0] is not own:
            kept = self._kept[group_id] = own, self._of(config, own)
        return kept[1]
