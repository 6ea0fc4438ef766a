"""Targets of large groups are worked out on another thread.

An assignor is a pure function. It takes 5 µs for each partition: half a second for a group that reads
100,000. So the decision that needs the target of a large group proceeds without it, as it does within the
assignment interval. When the target is there, an operation of the shard writes it, if the group is still what
it was worked out for. If the group has changed, the target is dropped, and the operation asks for another
one.

The first target of a group is worked out at once: it is for one member, and that member's epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from odradek.shards import Moment, Outcome

AT_ONCE_MAX: Final = 5_000
"""Partitions and members together of a group whose target is worked out at once: that takes about 10 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeTarget:
    """A target to compute for an epoch of a group, and the operation that writes it."""

    group_id: str
    epoch: int
    compute: Callable[[], object]
    """A pure function of values that no one changes: it runs on another thread."""
    write: Callable[[Any, Moment, Any], Outcome[None]]
    """Given the machine, the time, and what was computed."""


class LargeTargets(Protocol):
    """Works targets out, one for each group at a time."""

    def is_wanted(self, group_id: str, epoch: int) -> bool:
        """Returns whether to `begin` now: not while one is under way. Raises UNKNOWN_SERVER_ERROR if this epoch's was too
        large."""

    def begin(self, target: LargeTarget) -> None: ...


def is_large(partition_count: int, member_count: int) -> bool:
    return partition_count + member_count > AT_ONCE_MAX
