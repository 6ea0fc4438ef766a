"""The names of the classic protocol's assignors, as `partition.assignment.strategy` lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek.model.errors import ConfigError

RANGE: Final = "range"
ROUNDROBIN: Final = "roundrobin"
STICKY: Final = "sticky"
COOPERATIVE_STICKY: Final = "cooperative-sticky"
_NAMES: Final = (RANGE, ROUNDROBIN, STICKY, COOPERATIVE_STICKY)
_JAVA_NAMES: Final[Mapping[str, str]] = {
    "RangeAssignor": RANGE,
    "RoundRobinAssignor": ROUNDROBIN,
    "StickyAssignor": STICKY,
    "CooperativeStickyAssignor": COOPERATIVE_STICKY,
}


def assignor_names(strategy: str) -> tuple[str, ...]:
    """Returns the short names in a list that is separated by commas: short ones or Kafka's class names. ConfigError for
    others, and for an empty list."""
    chosen: dict[str, None] = {}
    for word in filter(None, (part.strip() for part in strategy.split(","))):
        name = _JAVA_NAMES.get(word.rpartition(".")[2], word)
        if name not in _NAMES:
            raise ConfigError(
                f"partition.assignment.strategy={strategy!r} is not allowed: expected any of {', '.join(_NAMES)}"
            )
        chosen[name] = None
    if not chosen:
        raise ConfigError(
            f"partition.assignment.strategy names no assignor: expected any of {', '.join(_NAMES)}"
        )
    return tuple(chosen)
