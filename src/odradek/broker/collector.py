"""Python's garbage collector in a broker: it holds the event loop only for short times, however much the broker holds."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from typing import Final

_WHOLE_COLLECTIONS_AFTER: Final = 10
"""Python's own."""
_WHOLE_COLLECTIONS_NEVER: Final = 1 << 30
_MIDDLE_GENERATION: Final = 1
_OLDEST_GENERATION: Final = 2
_LOOK_AGAIN: Final = 1.25
"""A full look follows when memory holds this many times the blocks that it held at the last full look."""
_GROWN_SECONDS: Final = 30.0
_HARDLY_MORE: Final = 1.1
"""No large request is served if there are at most this many times the fewest blocks of these seconds."""
_FREEZE_BLOCKS: Final = 60_000
"""A look at the objects in this many blocks takes about 20 ms."""
_PARTITION_BLOCKS: Final = 130
"""The memory blocks of a partition: its replica, its log and its entry in the image (measured with 7,750 partitions)."""


def keep_collections_small(is_busy: bool) -> None:
    """Lets the collector look at young objects only while large requests are served.

    A look at all takes 50 ms for each 100,000 objects, and what is read from a frame, or will be written to one, has no cycles.
    """
    young, middle, old = gc.get_threshold()
    if is_busy:
        gc.set_threshold(young, middle, _WHOLE_COLLECTIONS_NEVER)
    elif old == _WHOLE_COLLECTIONS_NEVER:
        gc.set_threshold(young, middle, _WHOLE_COLLECTIONS_AFTER)


class SurvivorFreezer:
    """A callback of the collector: survivors are put aside (`gc.freeze`), so the next collection looks at newer objects only.

    A look at everything takes 50 ms for each 100,000 objects, and a broker of 10,000 partitions has 700,000.
    What is put aside is freed when nothing refers to it, as before; only a cycle that becomes garbage stays.
    What comes and goes has none (`tests/scenarios/lifetimes`). A full collection still runs when for 30 s
    there was a quarter more than the last time, and more partitions are not the reason: on the event loop, at
    a moment when no large request has made objects.

    Survivors of a small collection are put aside without a further look when they are many: a request of a million elements,
    a thousand new partitions.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        partition_count: Callable[[], int],
        later: Callable[[Callable[[], None]], object],
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        self._blocks = blocks
        self._partition_count = partition_count
        self._now = now
        self._known_blocks = self._frozen_blocks = blocks()
        self._known_partition_count = partition_count()
        self._later = later
        """Calls a function soon, outside of the collector. `call_soon_threadsafe` of the loop: any thread may collect."""
        self._grown_since: float | None = None
        self._least_blocks = 0
        """The fewest blocks since `_grown_since`."""
        self._is_whole = False

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop":
            return
        if info["generation"] == _OLDEST_GENERATION:
            self._on_full_collection()
        elif info["generation"] == _MIDDLE_GENERATION:
            blocks = self._blocks()
            self._frozen_blocks = min(self._frozen_blocks, blocks)
            if not self._is_whole and blocks - self._frozen_blocks > _FREEZE_BLOCKS:
                self._freeze(blocks)

    def _on_full_collection(self) -> None:
        blocks = self._blocks()
        if self._is_whole:
            self._is_whole = False
            self._note_known(blocks)
        elif self._has_grown(blocks):
            self._later(self._check_everything)
        elif blocks < self._known_blocks:
            self._note_known(blocks)
        self._freeze(blocks)

    def _has_grown(self, blocks: int) -> bool:
        new_partition_count = max(self._partition_count() - self._known_partition_count, 0)
        if blocks <= _LOOK_AGAIN * (self._known_blocks + _PARTITION_BLOCKS * new_partition_count):
            self._grown_since = None
            return False
        now = self._now()
        if self._grown_since is None:
            self._grown_since, self._least_blocks = now, blocks
        self._least_blocks = min(self._least_blocks, blocks)
        return now - self._grown_since >= _GROWN_SECONDS

    def _check_everything(self) -> None:
        """Collects everything, unless there are clearly more blocks than before: then the next full collection tries again."""
        if self._grown_since is not None and self._blocks() <= _HARDLY_MORE * self._least_blocks:
            self._is_whole = True
            gc.unfreeze()
            gc.collect()

    def _note_known(self, blocks: int) -> None:
        self._known_blocks = blocks
        self._known_partition_count = self._partition_count()
        self._grown_since = None

    def _freeze(self, blocks: int) -> None:
        gc.freeze()
        self._frozen_blocks = blocks
