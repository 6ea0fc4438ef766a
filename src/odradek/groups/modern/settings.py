"""A group's own settings (KIP-1043), in place of the broker's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NO_OWN_SETTINGS: Final[Mapping[str, str]] = {}


def own_or(own: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    """The group's own value, or the broker's. It stays within the broker's bounds even when those were narrowed since."""
    value = own.get(key)
    return default if value is None else min(max(int(value), least), most)
