"""The states of a classic group, and which may follow which."""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """The values are what DescribeGroups and ListGroups say."""

    EMPTY = "Empty"
    """No members; there may be offsets."""
    PREPARING = "PreparingRebalance"
    """Members are joining; those who wait for the others wait with a ticket."""
    COMPLETING = "CompletingRebalance"
    """A generation was formed; its leader's assignment is awaited."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted."""


FOLLOWS: Final = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.EMPTY, State.COMPLETING, State.STABLE}),
    State.COMPLETING: frozenset({State.PREPARING}),
    State.STABLE: frozenset({State.COMPLETING}),
    State.DEAD: frozenset({State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE, State.DEAD}),
}
"""The states that each state may follow, while a coordinator runs. What is read back from the log begins as Empty or Stable."""

CAN_REBALANCE: Final = FOLLOWS[State.PREPARING]
