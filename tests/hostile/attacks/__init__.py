"""Every attack, by the order of the table."""

from __future__ import annotations

from typing import Final

from tests.hostile.attack import Attack
from tests.hostile.attacks import (
    compressed,
    connections,
    crowds,
    descriptors,
    disk,
    elements,
    frames,
    pipelines,
    refusals,
)

ATTACKS: Final[tuple[Attack, ...]] = (
    *elements.ATTACKS,
    *pipelines.ATTACKS,
    *compressed.ATTACKS,
    *connections.ATTACKS,
    *descriptors.ATTACKS,
    *refusals.ATTACKS,
    *disk.ATTACKS,
    *crowds.ATTACKS,
    *frames.ATTACKS,
)
