"""Divides the process's file descriptors. A pure core; `real_process.py` asks the system.

A descriptor that a stranger takes is one that a log lacks, or the registry. So each kind of owner has a share of its own:
clients' connections, logs, and the rest of the broker, whose share no one else can take (the registry, checkpoints, other
brokers, listeners, and what is opened for one call only, on every thread).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_RESERVED_MAX: Final = 96
_RESERVED_SHARE: Final = 4
_READERS_SHARE: Final = 4
_READERS_MAX: Final = 1024
_BEYOND_MAX: Final = 64
"""Descriptors for connections beyond `max.connections`, which are about to be refused, or closed to make room."""
_PARTITIONS_PER_WRITER: Final = 8
"""A partition that no one writes to gives its descriptor back, so there may be more of them than descriptors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorBudget:
    """The parts of the limit of open files."""

    limit: int
    reserved: int
    """Descriptors for the broker itself."""
    connections: int
    """Descriptors for accepted connections."""
    readers: int
    """Descriptors for files of logs that are only read."""
    writers: int
    """Descriptors for files of logs that are written, or were recently."""

    @classmethod
    def of(cls, limit: int, *, connections_max: int | None = None) -> DescriptorBudget:
        """Returns the shares of a limit (RLIMIT_NOFILE): a reserve, and half of the rest each for connections and logs. If
        `connections_max` allows fewer connections than that, logs get the rest."""
        reserved = min(_RESERVED_MAX, limit // _RESERVED_SHARE)
        rest = limit - reserved
        connections = rest // 2
        if connections_max is not None:
            connections = min(connections, connections_max + _BEYOND_MAX)
        logs = rest - connections
        readers = max(1, min(_READERS_MAX, logs // _READERS_SHARE))
        return cls(
            limit=limit,
            reserved=reserved,
            connections=connections,
            readers=readers,
            writers=max(1, logs - readers),
        )

    def for_connections(self, connections_max: int) -> DescriptorBudget:
        """Returns the shares of the same limit for a broker that has at most this many connections; these where those have as
        many descriptors."""
        budget = DescriptorBudget.of(self.limit, connections_max=connections_max)
        return self if budget.connections == self.connections else budget

    @property
    def partitions_max(self) -> int:
        """Replicas that a broker can serve with this many descriptors."""
        return self.writers * _PARTITIONS_PER_WRITER


UNLIMITED: Final = DescriptorBudget.of(2**31 - 1)
