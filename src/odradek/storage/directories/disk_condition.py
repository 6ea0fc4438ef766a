"""Decides whether a log directory's disk has space, and answers in time. A pure core: events and times go in.

A disk is *full* from the first append that it had no space for. It has space again when a look found enough of it for a while:
longer each time it fills up again soon, so that no leadership goes to and fro.

A disk is *slow* when the 99th percentile of its syncs was above the bound in every slice of the time that the settings name.
It is well again when that was below half the bound for as long; longer each time it becomes slow again soon. A sync that has
not ended yet counts as soon as it takes longer than the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

SPACE_BYTES: Final = 4 * 1024 * 1024
"""A disk with less has no space: a batch of a producer may need this much."""
_HOLD_SECONDS: Final = (2.0, 64.0)
_AGAIN_SECONDS: Final = 600.0
"""A condition that returns within this time after its end counts as returning soon."""
_SLICES: Final = 5
_DOUBLINGS_MAX: Final = 3
_PERCENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDiskLimits:
    """The settings' definition of a slow disk. With a `sync_s` of 0 no disk counts as slow."""

    sync_s: float = 0.0
    """Upper bound of the 99th percentile."""
    after_s: float = 30.0
    """How long, in seconds, the percentile must be above the bound."""


@dataclass(slots=True)
class _Slice:
    """Syncs that ended within one slice of time."""

    begin: float
    count: int = 0
    above_count: int = 0
    """How many syncs took longer than the bound."""
    above_half_count: int = 0

    def note(self, seconds: float, bound_s: float) -> None:
        self.count += 1
        self.above_count += seconds > bound_s
        self.above_half_count += seconds > bound_s / 2

    @property
    def is_slow(self) -> bool:
        """The 99th percentile is above the bound."""
        return self.above_count * _PERCENT > self.count

    @property
    def is_fast(self) -> bool:
        """Whether the 99th percentile of the slice is below half the bound."""
        return self.count > 0 and self.above_half_count * _PERCENT <= self.count


class DiskCondition:
    """The condition of one disk: well, full or slow. `now` is the monotonic clock's. Used on the event loop only."""

    def __init__(self) -> None:
        self.is_full = False
        self.is_slow = False
        self._hold_s = _HOLD_SECONDS[0]
        self._space_since = inf
        """The time since which every check found space."""
        self._had_space_at = -inf
        """The time when the disk last stopped being full."""
        self._slice: _Slice | None = None
        self._slow_slices = 0
        """How many of the latest slices, in a row, were slow."""
        self._fast_slices = 0
        self._doublings = 0
        self._was_well_at = -inf
        """The time when the disk last stopped being slow."""

    @property
    def name(self) -> str:
        """The name of the condition: `full`, `slow`, or empty."""
        return "full" if self.is_full else "slow" if self.is_slow else ""

    # -- space

    def ran_full(self, now: float) -> bool:
        """Notes that an append found no space. Returns True if the disk was not known to be full."""
        self._space_since = inf
        if self.is_full:
            return False
        self.is_full = True
        shortest, longest = _HOLD_SECONDS
        again = now - self._had_space_at < _AGAIN_SECONDS
        self._hold_s = min(longest, 2 * self._hold_s) if again else shortest
        return True

    def saw_space(self, now: float, *, has_space: bool) -> bool:
        """Notes free space on a full disk. Returns True if the disk is not full any longer."""
        if not self.is_full:
            return False
        if not has_space:
            self._space_since = inf
            return False
        self._space_since = min(self._space_since, now)
        if now - self._space_since < self._hold_s:
            return False
        self.is_full, self._had_space_at = False, now
        return True

    # -- time

    def synced(self, seconds: float, now: float, limits: SlowDiskLimits) -> bool:
        """Notes the seconds of a sync that ended or is still under way. Returns True if that makes the disk slow, or well
        again."""
        if limits.sync_s <= 0:
            return self.looked(now, limits)
        changed = self.looked(now, limits)
        assert self._slice is not None, "a look begins a slice"
        self._slice.note(seconds, limits.sync_s)
        return changed

    def looked(self, now: float, limits: SlowDiskLimits) -> bool:
        """Notes that time went by. Returns True if the disk became slow, or well again."""
        if limits.sync_s <= 0:
            was_slow, self.is_slow, self._slice = self.is_slow, False, None
            return was_slow
        slice_s = limits.after_s / _SLICES
        if self._slice is None:
            self._slice = _Slice(now)
        if now < self._slice.begin + slice_s:
            return False
        ended, self._slice = self._slice, _Slice(now)
        self._slow_slices = self._slow_slices + 1 if ended.is_slow else 0
        self._fast_slices = self._fast_slices + 1 if ended.is_fast else 0
        if not self.is_slow and self._slow_slices >= _SLICES:
            again = now - self._was_well_at < _AGAIN_SECONDS
            self._doublings = min(self._doublings + 1, _DOUBLINGS_MAX) if again else 0
            self.is_slow, self._fast_slices = True, 0
            return True
        if self.is_slow and self._fast_slices >= _SLICES * 2**self._doublings:
            self.is_slow, self._was_well_at = False, now
            return True
        return False
