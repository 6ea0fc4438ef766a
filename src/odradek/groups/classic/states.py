"""The states of a classic group, and which may follow which."""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """The state of a classic group. The values appear in DescribeGroups and ListGroups."""

    __hash__ = object.__hash__  # as in `ClassicTimer`: each request asks what may follow the state

    EMPTY = "Empty"
    """No members; there may be offsets."""
    PREPARING = "PreparingRebalance"
    """Members are joining; members that wait for the others wait with a ticket."""
    COMPLETING = "CompletingRebalance"
    """A generation was formed; its leader's assignment is awaited."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Deleted."""


FOLLOWS: Final = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING}),
    ClassicGroupState.PREPARING: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING, ClassicGroupState.STABLE}
    ),
    ClassicGroupState.COMPLETING: frozenset({ClassicGroupState.PREPARING}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING}),
    ClassicGroupState.DEAD: frozenset(
        {
            ClassicGroupState.EMPTY,
            ClassicGroupState.PREPARING,
            ClassicGroupState.COMPLETING,
            ClassicGroupState.STABLE,
            ClassicGroupState.DEAD,
        }
    ),
}
"""The states that each state may follow, while a coordinator runs. What is read back from the log begins as Empty or Stable."""

CAN_REBALANCE: Final = FOLLOWS[ClassicGroupState.PREPARING]
