"""Limits the lines of a log for each cause. A pure core: no clock, no output.

Each cause has a bucket of lines that fills again with time. What finds it empty is dropped and counted. The count comes with
the cause's next line, or by itself once the cause was quiet for a while. Causes are many, and strangers choose them: beyond a
number of causes the others share one bucket for each event.
"""

from __future__ import annotations

from typing import Final, NamedTuple

LINES_AT_ONCE: Final = 40
_PER_SECOND: Final = 1.0
_CAUSES_MAX: Final = 256
_QUIET_SECONDS: Final = 10.0


class Cause(NamedTuple):
    room: str
    event: str
    host: str
    """The peer's host; "" where there is none, or where there are too many."""


class _Bucket:
    __slots__ = ("dropped_at", "dropped_count", "filled_at", "lines")

    def __init__(self, lines: float, now: float) -> None:
        self.lines = lines
        self.filled_at = now
        self.dropped_count = 0
        self.dropped_at = now


class LineLimiter:
    """Allows at most `burst` lines of a cause at once, and `per_second` in the long run. Times are seconds of any one clock."""

    def __init__(
        self,
        *,
        burst: int = LINES_AT_ONCE,
        per_second: float = _PER_SECOND,
        causes_max: int = _CAUSES_MAX,
        quiet_seconds: float = _QUIET_SECONDS,
    ) -> None:
        self._burst = burst
        self._per_second = per_second
        self._causes_max = causes_max
        self._quiet_seconds = quiet_seconds
        self._buckets: dict[Cause, _Bucket] = {}
        self._looked_at = 0.0

    def __len__(self) -> int:
        return len(self._buckets)

    def admit(self, cause: Cause, now: float) -> int | None:
        """Returns None when the line must be dropped, else how many of its cause were dropped since the last
        report."""
        bucket = self._bucket(cause, now)
        passed = max(0.0, now - bucket.filled_at)  # a wall clock may be set back
        bucket.lines = min(self._burst, bucket.lines + passed * self._per_second)
        bucket.filled_at = now
        if bucket.lines < 1.0:
            bucket.dropped_count += 1
            bucket.dropped_at = now
            return None
        bucket.lines -= 1.0
        dropped_count, bucket.dropped_count = bucket.dropped_count, 0
        return dropped_count

    def overdue(self, now: float) -> list[tuple[Cause, int]]:
        """Causes that are quiet by now, with what was dropped of each; it is reported once. Cheap: it looks once a second."""
        if 0.0 <= now - self._looked_at < 1.0:
            return []
        self._looked_at = now
        answers: list[tuple[Cause, int]] = []
        for cause, bucket in list(self._buckets.items()):
            if bucket.dropped_count and not 0.0 <= now - bucket.dropped_at < self._quiet_seconds:
                answers.append((cause, bucket.dropped_count))
                bucket.dropped_count = 0
            if not bucket.dropped_count and self._is_full(bucket, now):
                del self._buckets[cause]
        return answers

    def _is_full(self, bucket: _Bucket, now: float) -> bool:
        return bucket.lines + max(0.0, now - bucket.filled_at) * self._per_second >= self._burst

    def _bucket(self, cause: Cause, now: float) -> _Bucket:
        bucket = self._buckets.get(cause)
        if bucket is None:
            if len(self._buckets) >= self._causes_max and cause.host:
                return self._bucket(cause._replace(host=""), now)
            bucket = self._buckets[cause] = _Bucket(float(self._burst), now)
        return bucket
