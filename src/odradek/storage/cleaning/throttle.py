"""How long compaction must wait to stay below its share of the disk. Pure."""

from __future__ import annotations


class CleanerThrottle:
    """One for all threads of compaction: bytes read and written count alike."""

    __slots__ = ("_free_at",)

    def __init__(self) -> None:
        self._free_at = 0.0

    def delay(self, moved_bytes: int, bytes_per_second: float, now: float) -> float:
        """Seconds to wait after so many bytes were moved; `now` in seconds on a clock that never goes back."""
        self._free_at = max(self._free_at, now) + moved_bytes / bytes_per_second
        return self._free_at - now
