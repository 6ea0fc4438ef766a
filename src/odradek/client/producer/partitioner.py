"""Which partition a record goes to.

With a key: the Java client's murmur2, so that producers in every language agree. Without: stay with one
partition for about one batch, then change to another one, more likely to one with a short queue (KIP-480,
KIP-794).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Partitioner = Callable[[str, bytes | None, int], int | None]
"""A user's own: (topic, key, partition count) -> partition, or None to leave the choice to the usual rule."""


def next_sticky(queue_lengths: Sequence[int], chance: float, *, adaptive: bool = True) -> int:
    """Returns an index into `queue_lengths` (batches waiting per candidate) chosen by `chance` in [0, 1).

    Adaptive: weighted by how much shorter a queue is than the longest, so that a slow broker gets less.
    """
    if not adaptive:
        return min(int(chance * len(queue_lengths)), len(queue_lengths) - 1)
    ceiling = max(queue_lengths) + 1
    weights = [ceiling - length for length in queue_lengths]
    target = chance * sum(weights)
    for index, weight in enumerate(weights):
        target -= weight
        if target < 0:
            return index
    return len(weights) - 1
