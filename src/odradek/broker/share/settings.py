"""The settings of each share group: the broker's, and what the group has of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek.cluster.image import ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.groups.share.settings import ShareSettings

_GROUP: Final = 32
"""The type of resource (KIP-1043) that a group's own settings are kept under."""
_NONE: Final[Mapping[str, str]] = {}


class ShareSettingsByGroup:
    """Kept until the broker's settings, or the group's, are others."""

    __slots__ = ("_config", "_image", "_kept", "_made_from")

    def __init__(self, config: Callable[[], BrokerConfig], image: Callable[[], ClusterImage]) -> None:
        self._config = config
        self._image = image
        self._made_from: BrokerConfig | None = None
        self._kept: dict[str, tuple[Mapping[str, str], ShareSettings]] = {}

    def __call__(self, group_id: str) -> ShareSettings:
        config = self._config()
        if config is not self._made_from:
            self._made_from = config
            self._kept.clear()
        own = self._image().resource_configs.get((_GROUP, group_id), _NONE)
        kept = self._kept.get(group_id)
        if kept is None or kept[0] is not own:
            kept = self._kept[group_id] = own, ShareSettings.of(config, own)
        return kept[1]

    def forget(self, group_id: str) -> None:
        self._kept.pop(group_id, None)
